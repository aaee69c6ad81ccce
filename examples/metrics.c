/* SPDX-License-Identifier: Apache-2.0
 * metrics: a loader to train and one to validate. The accuracy counts each held-out
 * sample once, although their number fits no batch and no number of ranks. Points of a
 * square and which of three rings they lie in:
 *     srun --accel-config=fsdp.yaml ./metrics [OUT] */
#include <math.h>
#include <stdio.h>
#include <accel.h>

enum { POINTS = 2063, CLASSES = 3, WIDTH = 64, BATCH = 32 };

static accel_tensor_t *w1, *b1, *w2, *b2;

/* accel_fetch_f: dst[0] is a point, float32 [2], dst[1] its ring, int32. */
static int fetch_point(void *user, int64_t index, void *const *dst)
{
    float *point = dst[0];

    (void)user;
    for (int i = 0; i < 2; i++) {
        /* a place between -1 and 1 that follows from the index */
        double t = (double)(index + 1) * (i ? 0.7548776662466927 : 0.5698402909980532);

        point[i] = (float)(2 * (t - floor(t)) - 1);
    }
    *(int32_t *)dst[1] = (int)(hypotf(point[0], point[1]) * 2.5f) % CLASSES;
    return 0;
}

/* With labels the loss, without the logits [B, CLASSES] in float32. */
static accel_tensor_t *classify(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    accel_tensor_t *x = accel_linear(in[0], w1, b1, ACCEL_ACT_GELU);

    (void)m;
    x = accel_linear(x, w2, b2, ACCEL_ACT_NONE);
    return n == 2 ? accel_cross_entropy(x, NULL, NULL, in[1], NULL)
                  : accel_cast(x, ACCEL_F32);
}

/* An epoch after the other, a step per batch. */
static accel_status_t train_rings(accel_t *run, accel_module_t *model,
                                  accel_loader_t *l, accel_error_t *err)
{
    accel_tensor_t *batch[2];
    accel_status_t st = ACCEL_OK;
    int got;

    while (!st && accel_more(run)) {
        st = accel_loader_next(l, batch, 2, &got, err);
        if (st || !got)
            continue; /* an epoch has ended: the next call begins another */
        st = accel_backward(run, accel_call(model, batch, 2), err);
        st = st ? st : accel_step(run, err);
    }
    return st;
}

/* The ring and the guess of each point of a batch. */
static accel_status_t guess(accel_module_t *model, accel_tensor_t *const *batch,
                            float (*pair)[2], int64_t rows, accel_error_t *err)
{
    float logits[BATCH][CLASSES], ring[BATCH];
    size_t n = (size_t)rows;

    if (accel_tensor_read(accel_call(model, batch, 1), &logits[0][0], n * CLASSES,
                          err) ||
        accel_tensor_read(batch[1], ring, n, err))
        return err->code;
    for (int64_t i = 0; i < rows; i++) {
        int best = 0;

        for (int c = 1; c < CLASSES; c++)
            if (logits[i][c] > logits[i][best])
                best = c;
        pair[i][0] = ring[i];
        pair[i][1] = (float)best;
    }
    return ACCEL_OK;
}

/* The loader fills up the last step, so that all ranks make the same calls, and says
 * which samples count. */
static accel_status_t accuracy(accel_t *run, accel_module_t *model, accel_loader_t *l,
                               accel_error_t *err)
{
    static float pair[BATCH][2], all[1024 * BATCH][2];
    int64_t seen = 0, right = 0;
    accel_status_t st = ACCEL_OK;
    accel_tensor_t *batch[2];
    const int64_t *dims;
    int got = 1;

    accel_inference_mode(run, 1);
    while (!st && !(st = accel_loader_next(l, batch, 2, &got, err)) && got) {
        accel_batch_end_t end = accel_loader_end(l);
        accel_array_t mine = { ACCEL_F32, 2, { 0, 2 }, 0, pair };
        accel_array_t to = { .elems = sizeof(all) / sizeof(float), .data = all };

        accel_tensor_shape(batch[0], &dims);
        mine.dims[0] = dims[0];
        st = guess(model, batch, pair, dims[0], err);
        st = accel_agree(run, st, err); /* nobody waits for a rank that has failed */
        if (!st)
            st = accel_gather_for_metrics_array(run, &mine, &end, &to, err);
        for (int64_t i = 0; !st && i < to.dims[0]; i++, seen++)
            right += all[i][0] == all[i][1];
    }
    if (!st)
        accel_print(run, "accuracy %.4f of %lld samples", (double)right / (double)seen,
                    (long long)seen);
    return st;
}

int main(int argc, char **argv)
{
    static const accel_class_t rings = { sizeof(rings), "Rings", classify, 0 };
    static const accel_field_t fields[] = { { ACCEL_F32, 1, { 2 } },
                                            { ACCEL_I32, 0, { 0 } } };
    accel_options_t o = { sizeof(o), .run_name = "metrics", .log = accel_log_stderr };
    const accel_init_t zero = { ACCEL_INIT_ZEROS, 0 },
                       some = { ACCEL_INIT_UNIFORM, 0.7f };
    accel_loader_options_t learn = { sizeof(learn), .seed = 1, .drop_last = 1,
                                     .prefetch = 2 };
    accel_loader_options_t check = { sizeof(check), .batch = BATCH, .held_out = 1 };
    const accel_optimizer_t adam = { sizeof(adam), .lr = 1e-2f };
    accel_job_t job = { sizeof(job), .steps = 2000, .optimizer = &adam };
    accel_loader_t *training, *validation;
    accel_dataset_t *points = NULL;
    accel_error_t err = { 0 };
    accel_t *run = NULL;

    job.out_dir = argc > 1 ? argv[1] : NULL;
    if (accel_dataset_new(&points, POINTS, fields, 2, fetch_point, NULL, 0.05, &err) ||
        accel_open(&run, &o, &err))
        return accel_report(&err);
    learn.batch = job.batch = BATCH / accel_world_size(run);
    job.model = accel_module_new(run, &rings, NULL, "");
    w1 = accel_param(job.model, "in.weight", 2, (int64_t[]){ WIDTH, 2 }, some);
    b1 = accel_param(job.model, "in.bias", 1, (int64_t[]){ WIDTH }, some);
    w2 = accel_param(job.model, "out.weight", 2, (int64_t[]){ CLASSES, WIDTH }, some);
    b2 = accel_param(job.model, "out.bias", 1, (int64_t[]){ CLASSES }, zero);
    if (!accel_loader_new(&training, run, "training", points, &learn, &err) &&
        !accel_loader_new(&validation, run, "validation", points, &check, &err) &&
        !accel_prepare(run, &job, &err) && !train_rings(run, job.model, training, &err))
        accuracy(run, job.model, validation, &err);
    accel_close(run, err.code ? NULL : &err);
    accel_dataset_close(points);
    return accel_report(&err);
}
