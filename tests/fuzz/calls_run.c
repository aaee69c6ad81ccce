/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of accel.h: errors, data, prepare, the loop of a job, save.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/calls_world.h"

/* ---- data ------------------------------------------------------------------------ */

/* A kind of samples, the same bytes whenever they are asked for. */
struct kind {
    accel_field_t field[2];
    int fields;
    int64_t samples;
    /* a sample that cannot be had; -1: none */
    int64_t bad;
};

static const struct kind kinds[] = {
    { { { ACCEL_F32, 1, { 2 } }, { ACCEL_F32, 1, { 2 } } }, 2, 13, -1 },
    { { { ACCEL_I32, 1, { 4 } }, { ACCEL_I32, 1, { 4 } } }, 2, 9, -1 },
    { { { ACCEL_F32, 2, { 3, 2 } } }, 1, 17, -1 },
    { { { ACCEL_F32, 1, { 2 } }, { ACCEL_I64, 0, { 0 } } }, 2, 11, 7 },
};

static void fill_sample(const struct kind *k, int64_t index, void *const *dst)
{
    for (int f = 0; f < k->fields; f++) {
        int64_t n = 1;

        for (int d = 0; d < k->field[f].ndim; d++)
            n *= k->field[f].dims[d];
        for (int64_t i = 0; i < n; i++)
            if (k->field[f].dtype == ACCEL_F32)
                ((float *)dst[f])[i] = (float)((index * 3 + i) % 7) / 7;
            else if (k->field[f].dtype == ACCEL_I32)
                ((int32_t *)dst[f])[i] = (int32_t)((index + i) % 4);
            else
                ((int64_t *)dst[f])[i] = index;
    }
}

static int fetch_kind(void *user, int64_t index, void *const *dst)
{
    const struct kind *k = user;

    if (index == k->bad)
        return 1;
    fill_sample(k, index, dst);
    return 0;
}

/* Streams of the process, one per kind: a place each. */
struct stream_of_kind {
    const struct kind *kind;
    int64_t at;
};

static int next_of_kind(void *user, void *const *dst)
{
    struct stream_of_kind *s = user;

    if (s->at == s->kind->samples)
        return 0;
    if (s->at == s->kind->bad)
        return -1;
    fill_sample(s->kind, s->at++, dst);
    return 1;
}

static int rewind_kind(void *user, int64_t epoch)
{
    ((struct stream_of_kind *)user)->at = 0;
    return epoch == 5;
}

/* A stream has one reader: each dataset gets its own, for the life of the process. */
static void *new_stream(const struct kind *k)
{
    static struct stream_of_kind pool[1 << 12];
    static unsigned used;
    struct stream_of_kind *s = &pool[used++ % (1 << 12)];

    *s = (struct stream_of_kind){ .kind = k };
    return s;
}

/* NULL: no place is empty. */
static accel_dataset_t *keep_dataset(struct world *w, accel_dataset_t *d)
{
    for (int i = 0; d && i < CALLS_SLOTS; i++)
        if (!w->now->data[i])
            return w->now->data[i] = d;
    accel_dataset_close(d);
    return NULL;
}

accel_dataset_t *calls_dataset(struct world *w)
{
    const struct kind *k = &kinds[calls_random(w, 4)];
    accel_iterable_t source = { sizeof(source), .next = next_of_kind,
                                .rewind = rewind_kind };
    accel_dataset_t *d = NULL;

    if (calls_once_in(w, 4)) {
        source.samples = calls_once_in(w, 2) ? k->samples : 0;
        source.user = new_stream(k);
        CALL(w, false,
             accel_dataset_iterable_new(&d, &source, k->field, k->fields,
                                        calls_error(w)));
    } else {
        CALL(w, false,
             accel_dataset_new(&d, k->samples, k->field, k->fields, fetch_kind,
                               (void *)k, calls_once_in(w, 2) ? 0.25 : 0,
                               calls_error(w)));
        if (calls_once_in(w, 2))
            CALL(w, false, accel_dataset_set_threads(d, 4, calls_error(w)));
    }
    return keep_dataset(w, d);
}

accel_dataset_t *calls_samples(struct world *w)
{
    const struct kind *k = &kinds[0];
    accel_dataset_t *d = NULL;

    CALL(w, false,
         accel_dataset_new(&d, k->samples, k->field, k->fields, fetch_kind, (void *)k,
                           0.25, calls_error(w)));
    return keep_dataset(w, d);
}

static void misuse_dataset(struct world *w)
{
    accel_field_t field[2] = { { ACCEL_F32, (int)calls_number(w), { 0 } } };
    accel_iterable_t source = { sizeof(source),
                                .next = calls_once_in(w, 2) ? next_of_kind : NULL,
                                .samples = calls_number(w) };
    accel_dataset_t *d = NULL;
    int n = (int)calls_number(w);

    for (int i = 0; i < 3; i++)
        field[0].dims[i] = calls_number(w);
    field[0].dtype = (accel_dtype_t)calls_number(w);
    field[1] = field[0];
    switch (calls_random(w, 5)) {
    case 0:
        CALL(w, n < 1,
             accel_dataset_new(&d, calls_number(w), field, n > 2 ? 9 : n, fetch_kind,
                               NULL, calls_real(w), calls_error(w)));
        break;
    case 1:
        CALL(w, true,
             accel_dataset_new(NULL, 3, kinds[0].field, 2, NULL, NULL, 0,
                               calls_error(w)));
        break;
    case 2:
        CALL(w, true,
             accel_dataset_iterable_new(&d, calls_once_in(w, 2) ? &source : NULL, field,
                                        n > 2 ? 9 : n, calls_error(w)));
        break;
    case 3:
        CALL(w, true, accel_dataset_set_threads(NULL, 1, calls_error(w)));
        break;
    default:
        CALL(w, true,
             accel_dataset_open(&d, calls_once_in(w, 2) ? "/nonexistent" : NULL,
                                (int)calls_number(w), calls_real(w), calls_error(w)));
    }
    accel_dataset_close(d);
    (void)accel_dataset_samples(NULL);
    (void)accel_dataset_vocab(NULL);
}

/* ---- the run --------------------------------------------------------------------- */

/* Settings of the program, with NULL behind the last. */
static const char *const good_settings[][3] = {
    { NULL },
    { "accel.checkpoint.keep=3", "gradient_accumulation_steps=2", NULL },
    { "mixed_precision=bf16", NULL },
    { "accel.precision.reduce=bf16", NULL },
    { "gradient_clipping=0.5", "accel.track=jsonl", NULL },
};
static const char *const bad_settings[][3] = {
    { "", NULL },
    { "accel.checkpoint.keep", NULL },
    { "accel.checkpoint.keep=many", NULL },
    { "=3", NULL },
    { "no.such.key=1", NULL },
    { "num_processes=7", NULL },
    { "gradient_accumulation_steps=1", "gradient_accumulation_steps=-1", NULL },
    { "mixed_precision=\001\033[2J", NULL },
};

void calls_open(struct world *w)
{
    char config[256];
    accel_options_t o = { sizeof(o), .threads = 1, .config_file = config };

    snprintf(config, sizeof(config), "%s/%s", w->dir,
             calls_once_in(w, 4) ? "debug.yaml" : "plain.yaml");
    *w->now = (struct side){ 0 };
    snprintf(w->now->dir, sizeof(w->now->dir), "%s/%d", w->dir,
             w->now != w->side && !calls_once_in(w, 8));
    if (calls_once_in(w, 3))
        o.set = good_settings[calls_random(w, 5)];
    if (calls_once_in(w, 10)) {
        o.set = bad_settings[calls_random(w, 8)];
        CALL(w, true, accel_open(&w->now->run, &o, calls_error(w)));
        o.set = NULL;
    }
    CALL(w, false, accel_open(&w->now->run, &o, calls_error(w)));
    for (int i = 0; i < 2; i++)
        calls_dataset(w);
}

void calls_close(struct world *w)
{
    struct side *s = w->now;

    for (int i = 0; i < CALLS_SLOTS; i++)
        accel_kv_free(s->kv[i]);
    accel_close(s->run, calls_error(w));
    for (int i = 0; i < CALLS_SLOTS; i++)
        accel_dataset_close(s->data[i]);
    *s = (struct side){ 0 };
}

static void call_open(struct world *w)
{
    accel_options_t o = { sizeof(o), .config_file = "/nonexistent/accel.yaml",
                          .threads = -1 };
    accel_t *run = NULL;

    if (w->ranks > 1 || w->inside || w->allowed)
        return;
    if (w->side[1].run || calls_once_in(w, 4)) {
        CALL(w, true,
             accel_open(calls_once_in(w, 2) ? NULL : &run, &o, calls_error(w)));
        return;
    }
    w->now = &w->side[1];
    calls_open(w);
    if (calls_once_in(w, 2))
        calls_set_up(w);
    w->now = &w->side[0];
}

/* Only where it is refused: worlds end elsewhere. */
static void call_close(struct world *w)
{
    if (w->inside || w->allowed)
        CALL(w, true, accel_close(w->now->run, calls_error(w)));
}

static void call_errors(struct world *w)
{
    accel_error_t e = { .code = (accel_status_t)calls_number(w) };
    char text[64];

    (void)accel_exit_code((accel_status_t)calls_number(w));
    if (!accel_status_name((accel_status_t)calls_number(w)))
        calls_finding(w, "accel_status_name", "it is NULL");
    accel_error_set(calls_once_in(w, 2) ? &e : NULL, (accel_status_t)calls_number(w),
                    calls_name(w), calls_name(w));
    accel_error_format(calls_once_in(w, 4) ? NULL : &e,
                       calls_once_in(w, 4) ? NULL : text,
                       calls_random(w, sizeof(text)));
    (void)accel_report(NULL);
}

static void call_who(struct world *w)
{
    bool none = false;
    accel_t *run = calls_run(w, &none);

    if (accel_rank(run) >= accel_world_size(run) || accel_local_rank(run) < 0)
        calls_finding(w, "accel_rank", "no such rank");
    (void)accel_is_main(run);
    (void)accel_should_stop(run);
    (void)accel_more(run);
    (void)accel_steps_done(run);
    (void)accel_is_local_main(run);
    (void)accel_is_last(run);
    (void)accel_stream(run);
}

static void call_prepare(struct world *w)
{
    bool bad = w->now->prepared, none = false;
    accel_optimizer_t optimizer = { .bytes = sizeof(optimizer) };
    accel_job_t job = { sizeof(job),
                        .optimizer = &optimizer,
                        .model = PICK(w, module, &none),
                        .data = w->now->data[calls_random(w, CALLS_SLOTS)],
                        .steps = calls_number(w),
                        .warmup = calls_number(w),
                        .batch = 1 + (int)calls_random(w, 3),
                        .accumulate = (int)calls_random(w, 3),
                        .clip = (float)calls_real(w),
                        .eval_every = calls_once_in(w, 3),
                        .out_dir = w->now->dir };
    accel_t *run = calls_run(w, &bad);

    optimizer.kind = (accel_optimizer_kind_t)calls_random(w, 3);
    optimizer.lr = (float)calls_real(w) / 100;
    if (calls_once_in(w, 8))
        job.batch = (int)calls_number(w);
    if (CALL(w, bad,
             accel_prepare(run, calls_once_in(w, 10) ? NULL : &job, calls_error(w))))
        w->now->prepared = true;
}

static void call_prepare_all(struct world *w)
{
    bool bad = w->now->prepared;
    accel_loop_t loop = { sizeof(loop),
                          .data = w->now->data[calls_random(w, CALLS_SLOTS)],
                          .steps = calls_number(w),
                          .batch = 1 + (int)calls_random(w, 3),
                          .accumulate = (int)calls_random(w, 3),
                          .out_dir = w->now->dir };
    accel_t *run = calls_run(w, &bad);

    if (CALL(w, bad,
             accel_prepare_all(run, calls_once_in(w, 10) ? NULL : &loop,
                               calls_error(w))))
        w->now->prepared = true;
}

/* ---- the loop -------------------------------------------------------------------- */

static void call_next(struct world *w)
{
    bool bad = !w->now->prepared || w->inside > 0;
    accel_t *run = calls_run(w, &bad);
    accel_tensor_t *batch[9] = { NULL };
    int64_t index[8];

    if (calls_once_in(w, 2)) {
        int n = calls_once_in(w, 5) ? (int)calls_number(w) : 2;

        if (n > 8)
            n = 9;
        if (CALL(w, bad,
                 accel_next(run, calls_once_in(w, 12) ? NULL : batch, n,
                            calls_error(w))))
            for (int i = 0; i < 2; i++)
                KEEP(w, tensor, batch[i]);
    } else {
        int n = 1 + (int)calls_random(w, 3);

        CALL(w, bad,
             accel_next_samples(run, calls_once_in(w, 3) ? NULL : index,
                                calls_once_in(w, 10) ? -1 : n, calls_error(w)));
    }
}

static void call_input(struct world *w)
{
    static const double zeros[64];
    int ndim = 1 + (int)calls_random(w, 4);
    int64_t dims[4] = { 1, 1, 1, 1 };
    bool bad = false;
    accel_t *run = calls_run(w, &bad);
    accel_dtype_t dtype = (accel_dtype_t)calls_random(w, 3);
    accel_tensor_t *t;
    const void *host = zeros;

    for (int i = 0; i < ndim; i++)
        dims[i] = (int64_t)calls_random(w, 4);
    if (calls_once_in(w, 20)) {
        host = NULL;
        bad = true;
    }
    if (calls_once_in(w, 20)) {
        dims[0] = calls_once_in(w, 2) ? -1 : INT64_MAX;
        bad = true;
    }
    if (calls_once_in(w, 20)) {
        ndim = calls_once_in(w, 2) ? -1 : 5;
        bad = true;
    }
    if (calls_once_in(w, 20)) {
        dtype = (accel_dtype_t)99;
        bad = true;
    }
    calls_say(w, "accel_input");
    t = accel_input(run, dtype, ndim, calls_once_in(w, 40) ? NULL : dims, host,
                    calls_error(w));
    calls_made(w, "accel_input", bad, t);
    KEEP(w, tensor, t);
}

accel_tensor_t *calls_values(struct world *w, int64_t rows)
{
    static const float values[] = { 0.5f, -0.25f, 1, 0.125f, -1, 0.75f, 0.5f, 0.25f };
    const int64_t dims[] = { rows, 2 };
    accel_tensor_t *t;

    calls_say(w, "accel_input [n, 2]");
    t = accel_input(w->now->run, ACCEL_F32, 2, dims, values, calls_error(w));
    calls_made(w, "accel_input [n, 2]", false, t);
    KEEP(w, tensor, t);
    return t;
}

accel_tensor_t *calls_ids(struct world *w)
{
    static const int32_t values[] = { 0, 1, 2, 1 };
    const int64_t dims[] = { 2, 2 };
    accel_tensor_t *t;

    calls_say(w, "accel_input of ids");
    t = accel_input(w->now->run, ACCEL_I32, 2, dims, values, calls_error(w));
    calls_made(w, "accel_input of ids", false, t);
    KEEP(w, tensor, t);
    return t;
}

static void call_backward(struct world *w)
{
    bool bad = !w->now->prepared || w->inside > 0;
    accel_t *run = calls_run(w, &bad);
    accel_tensor_t *loss = PICK(w, tensor, &bad);

    if (calls_once_in(w, 20))
        CALL(w, bad, accel_backward(run, loss, calls_error(w)));
}

static void call_step(struct world *w)
{
    bool bad = !w->now->prepared || w->inside > 0;
    accel_t *run = calls_run(w, &bad);

    CALL(w, bad, accel_step(run, calls_error(w)));
}

static void call_evaluate(struct world *w)
{
    bool bad = !w->now->prepared || w->inside > 0;
    accel_t *run = calls_run(w, &bad);
    double loss;

    if (calls_once_in(w, 6))
        CALL(w, bad,
             accel_evaluate(run, (int)calls_number(w),
                            calls_once_in(w, 20) ? NULL : &loss, calls_error(w)));
}

static void see_gradient(void *user, const char *name, float *gradient, int64_t first,
                         int64_t count)
{
    (void)user, (void)name, (void)first;
    for (int64_t i = 0; i < count; i++)
        gradient[i] *= 0.5f;
    if (calls_now->ranks == 1)
        calls_inside(calls_now);
}

static void call_on_gradient(struct world *w)
{
    bool bad = false, none = calls_once_in(w, 10);
    accel_t *run = calls_run(w, &bad);

    CALL(w, bad || none,
         accel_on_gradient(run, calls_once_in(w, 2) ? NULL : "a/*",
                           none ? NULL : see_gradient, NULL, calls_error(w)));
}

static void call_save(struct world *w)
{
    bool bad = !w->now->prepared || w->inside > 0;
    accel_t *run = calls_run(w, &bad);

    CALL(w, bad, accel_save(run, calls_error(w)));
}

const struct calls_action calls_of_run[] = {
    { misuse_dataset, 2, true },    { call_open, 1, false },
    { call_close, 4, false },       { call_errors, 1, true },
    { call_who, 2, true },          { call_prepare, 2, false },
    { call_prepare_all, 2, false }, { call_next, 6, false },
    { call_input, 8, false },       { call_backward, 4, false },
    { call_step, 8, false },        { call_evaluate, 2, false },
    { call_on_gradient, 2, false }, { call_save, 2, false },
    { calls_train, 16, false },     { NULL, 0, false },
};
