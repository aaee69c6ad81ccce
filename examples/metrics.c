/* SPDX-License-Identifier: Apache-2.0
 * metrics: the accuracy on held-out samples, each of which counts once, although their
 * number fits no batch and no number of ranks. Points of a square and which of three
 * rings they lie in:  srun --accel-config=fsdp.yaml ./metrics */
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
        double turn =
            (double)(index + 1) * (i ? 0.7548776662466927 : 0.5698402909980532);

        point[i] = (float)(2 * (turn - floor(turn)) - 1);
    }
    *(int32_t *)dst[1] = (int)(hypotf(point[0], point[1]) * 2.5f) % CLASSES;
    return 0;
}

/* With labels the loss, without the logits [B, CLASSES] in float32. */
static accel_tensor_t *rings_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    accel_tensor_t *x = accel_linear(in[0], w1, b1, ACCEL_ACT_GELU);

    (void)m;
    x = accel_linear(x, w2, b2, ACCEL_ACT_NONE);
    return n == 2 ? accel_cross_entropy(x, NULL, NULL, in[1], NULL)
                  : accel_cast(x, ACCEL_F32);
}

/* The class and the guess of each point of this rank's batch. */
static accel_status_t guess(accel_t *run, accel_module_t *model, float (*point)[2],
                            int32_t (*pair)[2], accel_error_t *err)
{
    float logits[BATCH][CLASSES];
    accel_tensor_t *x;
    accel_status_t st;

    accel_inference_mode(run, 1); /* frees the batch before */
    x = accel_input(run, ACCEL_F32, 2, (int64_t[]){ BATCH, 2 }, point, err);
    st = accel_tensor_read(accel_call(model, &x, 1), &logits[0][0], BATCH * CLASSES,
                           err);
    for (int i = 0; !st && i < BATCH; i++) {
        pair[i][1] = 0;
        for (int c = 1; c < CLASSES; c++)
            if (logits[i][c] > logits[i][pair[i][1]])
                pair[i][1] = c;
    }
    return st;
}

/* Batches go to the ranks in turn. The last round is filled up with samples from the
 * start, so that all ranks make the same calls; those do not count. */
static accel_status_t accuracy(accel_t *run, const accel_job_t *job, accel_error_t *err)
{
    int64_t begin = accel_dataset_samples(job->data), held = POINTS - begin;
    int64_t round = (int64_t)BATCH * accel_world_size(run), seen = 0, right = 0;
    static int32_t pair[BATCH][2], all[1024 * BATCH][2];
    accel_status_t st = ACCEL_OK;
    float point[BATCH][2];

    for (int64_t first = 0; !st && first < held; first += round) {
        accel_batch_end_t end = { first + round >= held, held % round, 0, 0 };
        accel_array_t mine = { ACCEL_I32, 2, { BATCH, 2 }, 0, pair };
        accel_array_t got = { .elems = sizeof(all) / sizeof(all[0][0]), .data = all };

        for (int i = 0; i < BATCH; i++) {
            int64_t place = first + (int64_t)accel_rank(run) * BATCH + i;

            fetch_point(NULL, begin + place % held, (void *[]){ point[i], pair[i] });
        }
        st = guess(run, job->model, point, pair, err);
        st = accel_agree(run, st, err); /* nobody waits for a rank that has failed */
        if (!st)
            st = accel_gather_for_metrics_array(run, &mine, &end, &got, err);
        for (int64_t i = 0; !st && i < got.dims[0]; i++, seen++)
            right += all[i][0] == all[i][1];
    }
    if (!st)
        accel_print(run, "accuracy %.4f of %lld samples", (double)right / (double)seen,
                    (long long)seen);
    return st;
}

int main(void)
{
    static const accel_class_t rings = { "Rings", rings_forward, 0 };
    static const accel_field_t fields[] = { { ACCEL_F32, 1, { 2 } },
                                            { ACCEL_I32, 0, { 0 } } };
    const accel_options_t options = { NULL, "metrics", accel_log_stderr, NULL, 0, 0 };
    const accel_init_t zero = { ACCEL_INIT_ZEROS, 0 },
                       some = { ACCEL_INIT_UNIFORM, 0.7f };
    static accel_job_t job = { .steps = 2000, .batch = BATCH };
    static accel_error_t err;
    accel_tensor_t *batch[2];
    accel_t *run = NULL;

    job.optimizer.lr = 1e-2f;
    if (accel_dataset_new(&job.data, POINTS, fields, 2, fetch_point, NULL, 0.05,
                          &err) ||
        accel_open(&run, &options, &err))
        return accel_report(&err);
    job.model = accel_module_new(run, &rings, NULL, "");
    w1 = accel_param(job.model, "in.weight", 2, (int64_t[]){ WIDTH, 2 }, some);
    b1 = accel_param(job.model, "in.bias", 1, (int64_t[]){ WIDTH }, some);
    w2 = accel_param(job.model, "out.weight", 2, (int64_t[]){ CLASSES, WIDTH }, some);
    b2 = accel_param(job.model, "out.bias", 1, (int64_t[]){ CLASSES }, zero);
    accel_prepare(run, &job, &err);
    while (accel_more(run) && !accel_next(run, batch, 2, &err) &&
           !accel_backward(run, accel_call(job.model, batch, 2), &err))
        accel_step(run, &err);
    if (!err.code)
        accuracy(run, &job, &err);
    accel_close(run, err.code ? NULL : &err);
    accel_dataset_close(job.data);
    return accel_report(&err);
}
