/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaders of a run: a training and a validation loader side by side, a fetch that fails,
 * and calls that are refused.
 */
#include <string.h>

#include "common/common.h"
#include "loader/stream.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"

enum { WIDTH = 4, SAMPLES = 10, BATCH = 4 };

struct rig {
    char dir[64], config[96];
    accel_t *run;
    accel_dataset_t *data;
    accel_module_t *model;
    int64_t fails;
    bool measured; /* the job has data, so that the plan measures a forward */
};

/* The result of the latest forward. */
static accel_tensor_t *kept;

static accel_tensor_t *loader_forward(accel_module_t *m, accel_tensor_t *const *in,
                                      int n)
{
    accel_tensor_t **gain = accel_module_state(m);

    (void)n;
    return kept = accel_mean(accel_rmsnorm(in[0], *gain, 1e-5f), -1);
}

static int rig_fetch(void *user, int64_t index, void *const *dst)
{
    for (int i = 0; i < WIDTH; i++)
        ((float *)dst[0])[i] = (float)(index + 1);
    return index == *(int64_t *)user ? 3 : 0;
}

/* Opens the run, as a rule with a job that feeds itself. */
static bool rig_open(struct rig *k)
{
    static const accel_class_t cls = { sizeof(cls), "Net", loader_forward,
                                       sizeof(accel_tensor_t *) };
    static const accel_field_t field = { ACCEL_F32, 1, { WIDTH } };
    static const accel_init_t ones = { ACCEL_INIT_ONES, 0 };
    const int64_t dims[] = { WIDTH };
    accel_options_t o = { sizeof(o), .config_file = k->config, .threads = 1 };
    accel_job_t job = { sizeof(job), .steps = 100, .batch = BATCH, .seed = 1,
                        .out_dir = k->dir };
    accel_error_t err = { 0 };

    k->fails = -1;
    if (accel_dataset_new(&k->data, SAMPLES, &field, 1, rig_fetch, &k->fails, 0.2,
                          &err) ||
        accel_open(&k->run, &o, &err))
        return tap_ok(false, "open: %s", err.text);
    job.data = k->measured ? k->data : NULL;
    job.model = k->model = accel_module_new(k->run, &cls, NULL, "");
    *(accel_tensor_t **)accel_module_state(k->model) =
        accel_param(k->model, "gain", 1, dims, ones);
    return tap_ok(!accel_prepare(k->run, &job, &err), "prepared %s", err.text);
}

static void rig_close(struct rig *k)
{
    accel_close(k->run, NULL);
    accel_dataset_close(k->data);
    k->run = NULL;
}

/* One epoch of training, a step per batch. Returns its samples; -1: failed. */
static int train_epoch(struct rig *k, accel_loader_t *l, accel_error_t *err)
{
    accel_tensor_t *batch[1];
    const int64_t *dims;
    int got = 1, samples = 0;

    while (!accel_loader_next(l, batch, 1, &got, err) && got) {
        accel_tensor_shape(batch[0], &dims);
        samples += (int)dims[0];
        if (accel_backward(k->run, accel_call(k->model, batch, 1), err) ||
            accel_step(k->run, err))
            return -1;
    }
    return got ? -1 : samples;
}

/* accel_prepare measures a forward, whose tensors a program may have kept. So may it
 * those of an evaluation. */
static void test_kept(struct rig *k)
{
    accel_error_t err = { 0 };
    float value = 0;
    double loss;

    kept = NULL;
    k->measured = true;
    if (!rig_open(k))
        return;
    k->measured = false;
    tap_ok(kept && accel_tensor_read(kept, &value, 1, &err) == ACCEL_EINVAL,
           "a tensor of the measured forward has no values: %s", err.text);
    tap_ok(!accel_evaluate(k->run, 0, &loss, &err) &&
               accel_tensor_read(kept, &value, 1, &err) == ACCEL_EINVAL,
           "nor has one of an evaluation, after it: %s", err.text);
    rig_close(k);
}

static void test_train(struct rig *k)
{
    accel_loader_t *train = NULL, *valid = NULL;
    accel_tensor_t *batch[1];
    accel_error_t err = { 0 };
    float value[8] = { 0 };
    int got = 0;

    if (!rig_open(k))
        return;
    tap_ok(
        !accel_loader_new(&train, k->run, "train", k->data,
                          &(accel_loader_options_t){ sizeof(accel_loader_options_t),
                                                     .batch = BATCH, .prefetch = 2,
                                                     .seed = 3 },
                          &err) &&
            !accel_loader_new(&valid, k->run, "valid", k->data,
                              &(accel_loader_options_t){ sizeof(accel_loader_options_t),
                                                         .batch = 2, .held_out = 1 },
                              &err),
        "two loaders %s", err.text);
    tap_ok(accel_loader_length(train) == 2 && accel_loader_length(valid) == 1,
           "their lengths");
    for (int epoch = 0; epoch < 3; epoch++) {
        tap_is_int(train_epoch(k, train, &err), 8, "epoch %d %s", epoch, err.text);
        accel_inference_mode(k->run, 1);
        tap_ok(!accel_loader_next(valid, batch, 1, &got, &err) && got &&
                   !accel_tensor_read(batch[0], value, 8, &err) &&
                   value[0] + value[4] == 19 && accel_loader_at_end(valid) &&
                   accel_loader_real(valid) == 2,
               "the held-out samples %s", err.text);
        tap_ok(!accel_loader_next(valid, batch, 1, &got, &err) && !got, "their end");
        accel_inference_mode(k->run, 0);
        tap_ok(!accel_step(k->run, &err), "no backward is due %s", err.text);
    }
    tap_is_int(accel_steps_done(k->run), 6, "six steps");
    tap_is_int(accel_loader_epoch(train), 3, "three epochs");
    accel_inference_mode(k->run, 1);
    tap_ok(!accel_loader_next(valid, batch, 1, &got, &err) &&
               accel_backward(k->run, accel_call(k->model, batch, 1), &err) ==
                   ACCEL_EINVAL,
           "nor is one possible: %s", err.text);
    accel_loader_close(valid);
    rig_close(k);
}

/* The samples of an epoch, of whose elements about half are dropped. */
static bool drop(struct rig *k, const char *name, int batch, float *values_out)
{
    const accel_loader_options_t o = { sizeof(o), .batch = batch,
                                       .sampler = ACCEL_SAMPLER_SEQUENTIAL };
    accel_loader_t *l = NULL;
    accel_tensor_t *in[1];
    accel_error_t err = { 0 };
    int got;

    accel_loader_new(&l, k->run, name, k->data, &o, &err);
    for (int i = 0; i < 8; i += batch)
        if (accel_loader_next(l, in, 1, &got, &err) ||
            accel_tensor_read(accel_dropout(in[0], 0.5f), values_out + i * WIDTH,
                              (size_t)(batch * WIDTH), &err))
            return false;
    return true;
}

static void test_dropped(struct rig *k)
{
    float four[8 * WIDTH] = { 0 }, two[8 * WIDTH] = { 1 };

    if (!rig_open(k))
        return;
    tap_ok(drop(k, "four", 4, four) && drop(k, "two", 2, two) &&
               !memcmp(four, two, sizeof(two)),
           "what is dropped of a sample does not depend on its batch");
    rig_close(k);
}

/* ---- attempts -------------------------------------------------------------------- */

struct reader {
    struct rig *k;
    accel_loader_t *l;
};

/* Takes a batch, which is too large above 2 samples. */
static accel_status_t attempt_reads(void *user, int size, accel_error_t *err)
{
    struct reader *r = user;
    accel_tensor_t *batch[1];
    int got;
    accel_status_t st = accel_loader_next(r->l, batch, 1, &got, err);

    if (st == ACCEL_OK && size > 2)
        return accel_error_set(err, ACCEL_ENOMEM, "too large", NULL);
    return st ? st : accel_backward(r->k->run, accel_call(r->k->model, batch, 1), err);
}

static void test_attempt(struct rig *k)
{
    struct reader r = { .k = k };
    accel_tensor_t *batch[1];
    accel_error_t err = { 0 };
    float value[BATCH * WIDTH] = { 0 };
    int got = 0, size = 0;

    if (!rig_open(k))
        return;
    tap_ok(!accel_loader_new(&r.l, k->run, "train", k->data,
                             &(accel_loader_options_t){
                                 sizeof(accel_loader_options_t), .batch = 1,
                                 .prefetch = 2, .sampler = ACCEL_SAMPLER_SEQUENTIAL },
                             &err) &&
               !accel_loader_next(r.l, batch, 1, &got, &err) &&
               !accel_backward(k->run, accel_call(k->model, batch, 1), &err) &&
               !accel_step(k->run, &err),
           "a step %s", err.text);
    tap_ok(!accel_find_batch_size(k->run, 8, attempt_reads, &r, &size, &err) &&
               size == 2,
           "three attempts take batches %s", err.text);
    tap_ok(!accel_loader_next(r.l, batch, 1, &got, &err) && got &&
               !accel_tensor_read(batch[0], value, WIDTH, &err) && value[0] == 2,
           "and the loader goes on where it was: sample %g", (double)value[0] - 1);
    rig_close(k);
}

static void test_fetch_fails(struct rig *k)
{
    accel_loader_t *l = NULL;
    accel_error_t err = { 0 };

    if (!rig_open(k))
        return;
    accel_loader_new(&l, k->run, "train", k->data,
                     &(accel_loader_options_t){ sizeof(accel_loader_options_t),
                                                .batch = 2, .prefetch = 2 },
                     &err);
    k->fails = 5;
    tap_ok(train_epoch(k, l, &err) == -1 && err.code == ACCEL_EIO &&
               strstr(err.text, "sample 5"),
           "%s", err.text);
    tap_ok(!accel_more(k->run), "the run has failed");
    rig_close(k);
}

static void test_refused(struct rig *k)
{
    static const accel_loader_options_t o = { sizeof(o), .batch = 2 };
    accel_iterable_t nothing = { .bytes = sizeof(nothing) };
    accel_field_t field = { .dtype = ACCEL_F32 };
    accel_loader_t *l = NULL, *other = NULL;
    accel_dataset_t *d = NULL;
    accel_tensor_t *batch[2];
    accel_error_t err = { 0 };
    int got;

    tap_is_int(accel_loader_new(&l, NULL, "a", NULL, &o, &err), ACCEL_EINVAL, "no run");
    tap_is_int(accel_loader_next(NULL, batch, 1, &got, &err), ACCEL_EINVAL,
               "no loader");
    accel_loader_close(NULL);
    tap_ok(accel_loader_length(NULL) == -1 && !accel_loader_at_end(NULL) &&
               !accel_loader_epoch(NULL) && !accel_loader_real(NULL) &&
               accel_loader_remainder(NULL) == -1,
           "nor what it says");
    tap_is_int(accel_dataset_iterable_new(&d, &nothing, &field, 1, &err), ACCEL_EINVAL,
               "an iterable dataset without functions");
    if (!rig_open(k))
        return;
    tap_is_int(accel_loader_new(&l, k->run, "a b", k->data, &o, &err), ACCEL_EINVAL,
               "%s", "a blank in the name");
    tap_is_int(accel_loader_new(&l, k->run, "a", NULL, &o, &err), ACCEL_EINVAL,
               "no data");
    tap_is_int(accel_loader_new(NULL, k->run, "a", k->data, &o, &err), ACCEL_EINVAL,
               "no place for it");
    accel_loader_new(&l, k->run, "a", k->data, &o, &err);
    tap_ok(accel_loader_new(&other, k->run, "a", k->data, &o, &err) == ACCEL_EINVAL &&
               !other && strcmp(err.where, "a") == 0,
           "%s", err.text);
    tap_ok(accel_loader_next(l, batch, 2, &got, &err) == ACCEL_EINVAL &&
               strstr(err.text, "2 tensors, not 1"),
           "%s", err.text);
    tap_ok(!accel_loader_next(l, batch, 1, &got, &err) && got, "and it goes on");
    rig_close(k);
}

static int no_sample(void *user, void *const *dst)
{
    (void)user, (void)dst;
    return 0;
}

static int no_rewind(void *user, int64_t epoch)
{
    (void)user, (void)epoch;
    return 0;
}

/* Where the fields of a dropped sample go: one behind the other, each whole. */
enum { PLACES = 5 };

struct places {
    const accel_field_t *field;
    int fields, left, wrong;
};

static int place_next(void *user, void *const *dst)
{
    struct places *p = user;

    for (int f = 1; f < p->fields; f++)
        p->wrong +=
            (char *)dst[f] < (char *)dst[f - 1] + (size_t)p->field[f - 1].dims[0];
    for (int f = 0; f < p->fields && !p->wrong; f++)
        memset(dst[f], f, (size_t)p->field[f].dims[0]);
    return --p->left >= 0;
}

static int place_rewind(void *user, int64_t epoch)
{
    struct places *p = user;

    (void)epoch;
    p->left = PLACES;
    return 0;
}

static void test_places(void)
{
    static const int sizes[] = { 1, 63, 64, 65, 4096 };

    for (size_t a = 0; a < ACCEL_ARRAY_SIZE(sizes); a++)
        for (size_t b = 0; b < ACCEL_ARRAY_SIZE(sizes); b++) {
            const accel_field_t field[] = { { ACCEL_U8, 1, { sizes[a] } },
                                            { ACCEL_U8, 1, { sizes[b] } },
                                            { ACCEL_U8, 1, { 1 } } };
            struct places p = { field, 3, 0, 0 };
            const accel_iterable_t source = { sizeof(source), place_next, place_rewind,
                                              &p, 0 };
            accel_dataset_t *d = NULL;
            struct stream s = { 0 };
            accel_error_t err = { 0 };
            bool got = true;
            int n = 0;

            tap_ok(!accel_dataset_iterable_new(&d, &source, field, 3, &err) &&
                       !stream_open(&s, d, &err),
                   "fields of %d and %d bytes (%s)", sizes[a], sizes[b], err.text);
            stream_begin(&s, 0);
            while (!stream_read(&s, n, NULL, &got, &err) && got)
                n++;
            tap_ok(n == PLACES && p.wrong == 0,
                   "each has its place: %d samples, %d are wrong", n, p.wrong);
            stream_close(&s);
            accel_dataset_close(d);
        }
}

/* A job has samples with numbers; a loader of an empty iterable dataset would ask for
 * ever. */
static void test_iterable_job(struct rig *k)
{
    static const accel_iterable_t source = { sizeof(source), no_sample, no_rewind, NULL,
                                             0 };
    static const accel_field_t field = { ACCEL_F32, 1, { WIDTH } };
    static const accel_loader_options_t o = { sizeof(o), .batch = 2, .prefetch = 1 };
    accel_options_t options = { sizeof(options), .config_file = k->config,
                                .threads = 1 };
    accel_job_t job = { sizeof(job), .steps = 1, .batch = BATCH, .out_dir = k->dir };
    accel_loader_t *l = NULL;
    accel_tensor_t *batch[1];
    accel_error_t err = { 0 };
    int got = 1;

    tap_ok(!accel_dataset_iterable_new(&job.data, &source, &field, 1, &err) &&
               !accel_open(&k->run, &options, &err) &&
               accel_prepare(k->run, &job, &err) == ACCEL_EINVAL &&
               strstr(err.text, "iterable"),
           "%s", err.text);
    accel_close(k->run, NULL);
    if (!rig_open(k))
        return;
    tap_ok(!accel_loader_new(&l, k->run, "none", job.data, &o, &err), "%s", err.text);
    tap_ok(accel_loader_next(l, batch, 1, &got, &err) == ACCEL_EINVAL &&
               err.message == 934 && strcmp(err.where, "none") == 0 &&
               strstr(err.text, "epoch 0 has no sample"),
           "an epoch without a sample: %s", err.text);
    rig_close(k);
    accel_dataset_close(job.data);
}

/* An epoch may be without a batch, in a validation too; a program that asks again at
 * once asks for ever. */
static void test_idle(struct rig *k)
{
    static const accel_loader_options_t large = { sizeof(large), .batch = SAMPLES,
                                                  .drop_last = 1 };
    static const accel_loader_options_t fits = { sizeof(fits), .batch = BATCH,
                                                 .drop_last = 1 };
    accel_loader_t *idle = NULL, *busy = NULL;
    accel_tensor_t *batch[1];
    accel_error_t err = { 0 };
    int got = 1;

    if (!rig_open(k))
        return;
    tap_ok(!accel_loader_new(&idle, k->run, "idle", k->data, &large, &err) &&
               !accel_loader_new(&busy, k->run, "busy", k->data, &fits, &err),
           "two loaders %s", err.text);
    for (int epoch = 0; epoch < 2; epoch++) {
        tap_ok(!accel_loader_next(idle, batch, 1, &got, &err) && !got,
               "epoch %d has no batch %s", epoch, err.text);
        tap_ok(train_epoch(k, busy, &err) > 0, "steps between %s", err.text);
    }
    tap_ok(!accel_loader_next(idle, batch, 1, &got, &err) && !got, "once more");
    tap_ok(accel_loader_next(idle, batch, 1, &got, &err) == ACCEL_EINVAL &&
               err.message == 934 && strcmp(err.where, "idle") == 0 &&
               strstr(err.text, "a step of 10 samples"),
           "and again at once: %s", err.text);
    rig_close(k);
}

int main(void)
{
    struct rig k = { .dir = "/tmp/accel-loader.XXXXXX" };

    run_folder_make(k.dir,
                    "distributed_type: 'NO'\nuse_cpu: true\n"
                    "accel: {checkpoint: {save: false}}\n",
                    k.config, sizeof(k.config));
    test_kept(&k);
    test_train(&k);
    test_dropped(&k);
    test_attempt(&k);
    test_fetch_fails(&k);
    test_refused(&k);
    test_places();
    test_iterable_job(&k);
    test_idle(&k);
    run_folder_remove(k.dir);
    return tap_done();
}
