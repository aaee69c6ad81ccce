/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of a whole run: a batch size that fits, by attempts that leave no trace,
 * memory that is given back, regions, seeds, and what the run says of itself.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "numbers/rng.h"
#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/fork_world.h"
#include "tests/world/model_run.h"
#include "tests/world/run_folder.h"

enum { BATCH = 2, WIDTH = 4, MOST = 32 };

static accel_tensor_t *gain;
static char said[16384];

static void keep_line(void *user, accel_log_level_t level, const char *line)
{
    (void)user, (void)level;
    snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s\n", line);
}

static accel_tensor_t *net_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)m, (void)n;
    return accel_mean(accel_rmsnorm(in[0], gain, 1e-5f), -1);
}

enum { SAMPLES = 64, HELD_OUT = 16, HELD_NS = 2000000 };
/* samples from this one on take HELD_NS each */
static int64_t slow_from = SAMPLES;

static int net_fetch(void *user, int64_t index, void *const *dst)
{
    const int64_t until = clock_ns() + HELD_NS;

    (void)user;
    while (index >= slow_from && clock_ns() < until)
        ;
    for (int i = 0; i < WIDTH; i++)
        ((float *)dst[0])[i] = (float)(1 + (index + i) % 5);
    return 0;
}

/* ---- a run ----------------------------------------------------------------------- */

struct rig {
    char dir[64], config[96], out[96];
    accel_job_t job;
    accel_t *run;
};

static void rig_open(struct rig *k, const char *out)
{
    static const accel_class_t cls = { sizeof(cls), "Net", net_forward, 0 };
    static const accel_field_t field = { ACCEL_F32, 1, { WIDTH } };
    static const int64_t width = WIDTH;
    static const accel_optimizer_t adamw = { sizeof(adamw), .lr = 0.1f };
    accel_options_t o = { sizeof(o), .config_file = k->config, .run_name = "helped",
                          .threads = 1, .log = keep_line };
    accel_error_t err = { 0 };

    said[0] = '\0';
    snprintf(k->out, sizeof(k->out), "%s/%s", k->dir, out);
    k->job =
        (accel_job_t){ sizeof(accel_job_t), .optimizer = &adamw, .steps = 4,
                       .batch = BATCH,      .seed = 77,          .out_dir = k->out };
    if (accel_dataset_new(&k->job.data, SAMPLES, &field, 1, net_fetch, NULL, 0.25,
                          &err) ||
        accel_open(&k->run, &o, &err)) {
        tap_ok(false, "open: %s", err.text);
        exit(tap_done());
    }
    k->job.model = accel_module_new(k->run, &cls, NULL, "");
    gain = accel_param(k->job.model, "gain", 1, &width,
                       (accel_init_t){ ACCEL_INIT_ONES, 0 });
}

static void rig_prepare(struct rig *k)
{
    accel_error_t err = { 0 };

    tap_ok(!accel_prepare(k->run, &k->job, &err), "prepared %s", err.text);
}

/* Two steps, and the loss of the held-out samples with what they gave. */
static double rig_train(struct rig *k)
{
    accel_tensor_t *batch[1];
    accel_error_t err = { 0 };
    double loss = NAN;

    for (int i = 0; i < 2; i++)
        if (accel_next(k->run, batch, 1, &err) ||
            accel_backward(k->run, accel_call(k->job.model, batch, 1), &err) ||
            accel_step(k->run, &err))
            tap_diag("%s", err.text);
    accel_evaluate(k->run, 0, &loss, &err);
    return loss;
}

static void rig_close(struct rig *k)
{
    accel_close(k->run, NULL);
    accel_dataset_close(k->job.data);
}

/* ---- a batch size that fits ------------------------------------------------------ */

struct attempts {
    struct rig *k;
    int fits, made, size[64];
    bool hides, steps;
    accel_status_t fails;
};

/* A forward and backward; above `fits` the forward asks for 8 PiB. */
static accel_status_t attempt(void *user, int batch, accel_error_t *err)
{
    static const int64_t huge[] = { INT32_MAX, 1 << 20 };
    struct attempts *a = user;
    float values[MOST * WIDTH];
    const int64_t dims[] = { batch, WIDTH };
    accel_tensor_t *x, *next[1];
    accel_status_t st;

    a->size[a->made++ % 64] = batch;
    if (a->fails)
        return accel_error_set(err, a->fails, "the attempt's own", NULL);
    for (int i = 0; i < batch * WIDTH; i++)
        values[i] = (float)(i + 1);
    if (a->steps && accel_next(a->k->run, next, 1, err))
        return err->code;
    x = accel_input(a->k->run, ACCEL_F32, 2, dims, values, err);
    if (batch > a->fits)
        graph_tensor(&a->k->run->graph, ACCEL_F32, 2, huge);
    st = accel_backward(a->k->run, accel_call(a->k->job.model, &x, 1), err);
    if (a->steps)
        st = accel_step(a->k->run, err);
    return a->hides ? ACCEL_OK : st;
}

static void test_find(struct rig *k)
{
    struct attempts a = { .k = k, .fits = 6 };
    accel_error_t err = { 0 };
    double plain, after;
    int batch = 0;

    rig_open(k, "plain");
    rig_prepare(k);
    plain = rig_train(k);
    rig_close(k);
    rig_open(k, "found");
    rig_prepare(k);
    tap_ok(!accel_find_batch_size(k->run, 22, attempt, &a, &batch, &err), "found %s",
           err.text);
    tap_ok(batch == 5 && a.made == 3 && a.size[0] == 22 && a.size[1] == 11 &&
               a.size[2] == 5,
           "22, 11, 5: %d after %d attempts", batch, a.made);
    tap_ok(strstr(said, "a batch of 22 does not fit: cannot allocate") &&
               strstr(said, "a batch of 11 does not fit"),
           "and the log says why");
    a = (struct attempts){ .k = k, .fits = 6, .hides = true };
    tap_ok(!accel_find_batch_size(k->run, 8, attempt, &a, &batch, &err) && batch == 4,
           "also where the attempt does not say so");
    a = (struct attempts){ .k = k };
    tap_ok(accel_find_batch_size(k->run, 5, attempt, &a, &batch, &err) ==
                   ACCEL_ENOMEM &&
               a.made == 3 && batch == 4 && strstr(err.text, "from 5 down to 1"),
           "%s", err.text);
    a = (struct attempts){ .k = k, .fails = ACCEL_EIO };
    tap_ok(accel_find_batch_size(k->run, 5, attempt, &a, &batch, &err) == ACCEL_EIO &&
               a.made == 1 && !strcmp(err.text, "the attempt's own"),
           "another failure ends it");
    after = rig_train(k);
    tap_ok(after == plain && isfinite(plain), "and the run is as before: %.17g, %.17g",
           after, plain);
    rig_close(k);
}

static void test_find_refused(struct rig *k)
{
    struct attempts a = { .k = k, .fits = 9, .steps = true };
    accel_error_t err = { 0 };
    accel_tensor_t *batch[1];
    int size = 0;

    rig_open(k, "refused");
    tap_ok(accel_find_batch_size(k->run, 4, attempt, &a, &size, &err) == ACCEL_EINVAL &&
               accel_free_memory(k->run, NULL, &err) == ACCEL_EINVAL,
           "%s", err.text);
    rig_prepare(k);
    tap_ok(accel_find_batch_size(k->run, 0, attempt, &a, &size, &err) == ACCEL_EINVAL,
           "%s", err.text);
    tap_ok(accel_find_batch_size(k->run, 4, NULL, &a, &size, &err) == ACCEL_EINVAL,
           "%s", err.text);
    tap_ok(accel_find_batch_size(k->run, 4, attempt, &a, NULL, &err) == ACCEL_EINVAL,
           "%s", err.text);
    tap_ok(accel_find_batch_size(k->run, 4, attempt, &a, &size, &err) == ACCEL_EINVAL &&
               err.message == 953,
           "%s", err.text);
    accel_next(k->run, batch, 1, &err);
    tap_ok(accel_find_batch_size(k->run, 4, attempt, &a, &size, &err) == ACCEL_EINVAL &&
               accel_free_memory(k->run, NULL, &err) == ACCEL_EINVAL &&
               strstr(err.text, "in the middle of a step"),
           "%s", err.text);
    rig_close(k);
}

/* Two ranks, of which one runs out of memory on its own, after both have gathered two
 * units and given none back. */
static accel_status_t rank_attempt(void *user, int batch, accel_error_t *err)
{
    accel_t *run = user;
    const struct residency *r = &run->graph.residency;
    void *data;

    for (int unit = 0; unit < 2 && batch == 4; unit++)
        if (r->want(r->user, unit, &data, err))
            return err->code;
    if (run->boot.rank == 1 && batch > 2)
        return accel_fail_nomem(err, "a test", 1);
    if (run->boot.rank == 0 && batch == 9)
        return accel_error_set(err, ACCEL_EIO, "rank 0 cannot read", NULL);
    return ACCEL_OK;
}

static int two_ranks(struct boot *b, void *arg)
{
    struct model_request r = { .dir = "none", .strategy = SHARD_FULL };
    accel_error_t err = { 0 };
    accel_t *run = calloc(1, sizeof(*run));
    float before[MODEL_RUN_LOGITS], after[MODEL_RUN_LOGITS];
    int batch = 0, wrong;
    int64_t n;

    (void)arg;
    if (!run || backend_cpu_open(&r.backend, 1, &err) ||
        model_run_open(run, b, &r, &err) ||
        model_run_logits(run, "gpt2", before, &n, &err))
        return 10;
    run->prepared = true;
    wrong =
        accel_find_batch_size(run, 8, rank_attempt, run, &batch, &err) != ACCEL_OK ||
        batch != 2;
    if (accel_find_batch_size(run, 9, rank_attempt, run, &batch, &err) != ACCEL_EIO)
        wrong |= 2;
    if ((b->rank == 0) != (strcmp(err.text, "rank 0 cannot read") == 0))
        wrong |= 4;
    if (model_run_logits(run, "gpt2", after, &n, &err) ||
        memcmp(before, after, (size_t)n * sizeof(*before)) != 0)
        wrong |= 8;
    run->prepared = false;
    model_run_close(run);
    free(run);
    return wrong;
}

/* ---- evaluation ------------------------------------------------------------------ */

static accel_module_t *judged[2];

static accel_tensor_t *both_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)m;
    return accel_add(accel_call(judged[0], in, n), accel_call(judged[1], in, n));
}

static accel_tensor_t *bias;

static accel_tensor_t *other_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    (void)m, (void)n;
    return accel_mean(accel_linear(in[0], bias, NULL, ACCEL_ACT_NONE), -1);
}

/* A run of accel_prepare_all: of the model of the rig and, for `models` 2, of one whose
 * loss is the mean of its inputs' sums. */
static void objects_open(struct rig *k, const char *out, int models)
{
    static const accel_class_t cls = { sizeof(cls), "Other", other_forward, 0 };
    accel_loop_t loop = { sizeof(loop), .steps = 4, .batch = BATCH, .seed = 77 };
    accel_error_t err = { 0 };
    accel_module_t *other;

    rig_open(k, out);
    other = accel_module_new(k->run, &cls, NULL, "");
    bias = accel_param(other, "weight", 2, (const int64_t[]){ 1, WIDTH },
                       (accel_init_t){ ACCEL_INIT_ONES, 0 });
    judged[0] = k->job.model;
    judged[1] = other;
    loop.data = k->job.data;
    loop.out_dir = k->out;
    tap_ok(!accel_model_add(k->run, models > 1 ? "net" : "", judged[0], &err) &&
               (models < 2 || !accel_model_add(k->run, "other", other, &err)) &&
               accel_optim_add(k->run, "o", &judged[0], 1, k->job.optimizer, &err) &&
               !accel_prepare_all(k->run, &loop, &err),
           "a run of %d models %s", models, err.text);
}

static void test_evaluate(struct rig *k)
{
    static const accel_class_t cls = { sizeof(cls), "Both", both_forward, 0 };
    double job = NAN, one = NAN, other = NAN, both = NAN, none = NAN;
    accel_error_t err = { 0 };

    rig_open(k, "a job");
    rig_prepare(k);
    accel_evaluate(k->run, 0, &job, &err);
    rig_close(k);
    objects_open(k, "one model", 1);
    tap_ok(!accel_evaluate(k->run, 0, &one, &err) && isfinite(job) && one == job,
           "the loss of a run's one model is that of a job: %.9g %s", one, err.text);
    rig_close(k);
    objects_open(k, "two models", 2);
    tap_ok(accel_evaluate(k->run, 0, &none, &err) == ACCEL_EINVAL &&
               strstr(err.text, "knows one model, but the run has 2"),
           "%s", err.text);
    tap_ok(!accel_model_evaluate(k->run, judged[0], 0, &one, &err) && one == job,
           "of two models that of the first %s", err.text);
    tap_ok(!accel_model_evaluate(k->run, judged[1], 0, &other, &err) &&
               fabs(other - 12) < 1,
           "that of the second: %g", other);
    tap_ok(!accel_model_evaluate(k->run, accel_module_new(k->run, &cls, NULL, ""), 0,
                                 &both, &err) &&
               fabs(both - one - other) < 1e-6,
           "and that of a module which calls both: %g %s", both, err.text);
    tap_ok(accel_model_evaluate(k->run, NULL, 0, &none, &err) == ACCEL_EINVAL &&
               isnan(none),
           "%s", err.text);
    rig_close(k);
}

/* The shortest of four steps, each with an evaluation in it, before it, or in inference
 * mode, and there with another loop of the program. */
static double shortest_step(struct rig *k, bool before, bool mode, double *data_out)
{
    accel_step_info_t info = { .bytes = sizeof(info) };
    accel_tensor_t *batch[1];
    accel_error_t err = { 0 };
    double loss, least = INFINITY;

    while (accel_more(k->run)) {
        accel_inference_mode(k->run, mode);
        if (before && accel_evaluate(k->run, 0, &loss, &err))
            break;
        slow_from = 0;
        for (int i = 0; mode && i < HELD_OUT / BATCH; i++)
            accel_next(k->run, batch, 1, &err);
        slow_from = SAMPLES - HELD_OUT;
        accel_inference_mode(k->run, 0);
        if (accel_next(k->run, batch, 1, &err) ||
            accel_backward(k->run, accel_call(k->job.model, batch, 1), &err) ||
            accel_step(k->run, &err) || accel_last_step(k->run, &info, &err))
            break;
        least = fmin(least, info.total_ms);
        *data_out = fmin(*data_out, info.data_ms);
    }
    tap_is_int(accel_steps_done(k->run), k->job.steps, "four steps %s", err.text);
    return least;
}

/* An evaluation takes 32 ms at least. */
static void test_step_time(struct rig *k)
{
    static const char *const where[] = { "in the step", "between two", "in its mode" };
    const double held_ms = HELD_OUT * HELD_NS / 1e6;

    slow_from = SAMPLES - HELD_OUT;
    for (int i = 0; i < 3; i++) {
        double data = INFINITY, least;

        rig_open(k, where[i]);
        k->job.eval_every = i == 0;
        rig_prepare(k);
        least = shortest_step(k, i > 0, i > 1, &data);
        tap_ok(least > 0 && least < held_ms,
               "a step takes %.3f ms, without the evaluation %s", least, where[i]);
        tap_ok(data < held_ms, "nor is its data the step's: %.3f ms", data);
        rig_close(k);
    }
    slow_from = SAMPLES;
}

/* ---- memory ---------------------------------------------------------------------- */

static void test_free_memory(struct rig *k)
{
    accel_error_t err = { 0 };
    double plain, after;
    int64_t first = 0, second = -1;

    rig_open(k, "plain again");
    rig_prepare(k);
    rig_train(k);
    plain = rig_train(k);
    rig_close(k);
    rig_open(k, "given back");
    rig_prepare(k);
    rig_train(k);
    accel_free_memory(k->run, &first, &err);
    tap_ok(first > 0 && first % (int64_t)BACKEND_STEP == 0,
           "%lld bytes are given back %s", (long long)first, err.text);
    tap_ok(!accel_free_memory(k->run, &second, &err) && second == 0,
           "then there is nothing to give");
    after = rig_train(k);
    tap_ok(after == plain, "and the run goes on: %.17g, %.17g", after, plain);
    rig_close(k);
}

/* ---- regions --------------------------------------------------------------------- */

struct tracked {
    char names[512];
    double inner, outer;
};

static accel_status_t tracked_write(void *user, int64_t step, double time,
                                    const accel_item_t *items, int n,
                                    accel_error_t *err)
{
    struct tracked *t = user;

    (void)time, (void)err;
    for (int i = 0; i < n; i++) {
        if (strncmp(items[i].name, "region/", 7) != 0)
            continue;
        snprintf(t->names + strlen(t->names), sizeof(t->names) - strlen(t->names),
                 "%lld:%s ", (long long)step, items[i].name);
        *(strstr(items[i].name, "inner") ? &t->inner : &t->outer) = items[i].value;
    }
    return ACCEL_OK;
}

static void test_regions(struct rig *k)
{
    struct tracked t = { 0 };
    accel_sink_t sink = { sizeof(sink), .name = "t", .write = tracked_write,
                          .user = &t };
    accel_error_t err = { 0 };

    rig_open(k, "regions");
    accel_track_sink(k->run, &sink, &err);
    rig_prepare(k);
    tap_ok(!accel_region_begin(k->run, "outer", &err) &&
               !accel_region_begin(k->run, "an inner", &err),
           "regions nest");
    tap_ok(accel_region_end(k->run, "outer", &err) == ACCEL_EINVAL &&
               strstr(err.text, "'outer'") && strstr(err.text, "'an inner'"),
           "%s", err.text);
    usleep(2000);
    tap_ok(!accel_region_end(k->run, "an inner", &err) &&
               !accel_region_begin(k->run, "an inner", &err) &&
               !accel_region_end(k->run, "an inner", &err) &&
               !accel_region_end(k->run, "outer", &err),
           "and end inside out %s", err.text);
    tap_ok(accel_region_end(k->run, "outer", &err) == ACCEL_EINVAL &&
               strstr(err.text, "no region is open"),
           "%s", err.text);
    rig_train(k);
    tap_is_str(t.names, "1:region/outer_ms 1:region/outer/an_inner_ms ",
               "tracked by the step that follows, and not again");
    tap_ok(t.inner >= 2 && t.outer >= t.inner && t.outer < 1000,
           "%.3f ms, of them %.3f inside", t.outer, t.inner);
    tap_ok(strstr(said, "step 1 region outer/an inner: ") &&
               strstr(said, " ms, 2 times"),
           "and in a log of level debug");
    rig_close(k);
}

static void test_regions_refused(struct rig *k)
{
    accel_error_t err = { 0 };
    char name[80];
    int depth = 0, many = 0;

    rig_open(k, "no regions");
    tap_ok(accel_region_begin(k->run, NULL, &err) == ACCEL_EINVAL &&
               accel_region_begin(k->run, "", &err) == ACCEL_EINVAL,
           "%s", err.text);
    memset(name, 'x', sizeof(name));
    name[64] = '\0';
    tap_ok(accel_region_begin(k->run, name, &err) == ACCEL_EINVAL, "%s", err.text);
    name[63] = '\0';
    while (depth < 9 && !accel_region_begin(k->run, name, &err))
        depth++;
    tap_ok(depth == 3 && k->run->regions.depth == 3,
           "too long with those around it: %s", err.text);
    while (depth-- > 0)
        accel_region_end(k->run, name, &err);
    for (depth = 0; depth < 20 && !accel_region_begin(k->run, "d", &err);)
        depth++;
    tap_ok(depth == 16, "16 deep, then: %s", err.text);
    while (depth-- > 0)
        accel_region_end(k->run, "d", &err);
    tap_is_int(k->run->regions.depth, 0, "all have ended");
    for (; many < 99; many++) {
        snprintf(name, sizeof(name), "r%d", many);
        if (accel_region_begin(k->run, name, &err))
            break;
        accel_region_end(k->run, name, &err);
    }
    tap_ok(many == 64 - 3 - 16, "64 different ones, then: %s", err.text);
    rig_close(k);
}

/* Known only when a kernel has run. */
static void test_advice(struct rig *k)
{
    static const char advice[] = "install a library";
    const char *at;

    rig_open(k, "advice");
    rig_prepare(k);
    k->run->backend->advice = advice;
    rig_train(k);
    at = strstr(said, advice);
    tap_ok(at && !strstr(at + 1, advice), "the device's advice is said once");
    rig_close(k);
}

/* ---- seeds and information ------------------------------------------------------- */

/* The formula of accel_track.h. */
static uint64_t seed_by_formula(uint64_t key, const char *name, int64_t index)
{
    uint32_t out[4];

    rng_block(key, XXH3_64bits_withSeed(name, strlen(name), 1), (uint64_t)index, out);
    return out[0] + ((uint64_t)out[1] << 32);
}

static uint64_t seed_of(const struct rig *k, const char *purpose, int64_t index,
                        unsigned flags)
{
    accel_error_t err = { 0 };
    uint64_t seed = 0;

    if (accel_seed(k->run, purpose, index, flags, &seed, &err))
        tap_diag("%s", err.text);
    return seed;
}

static void test_seed(struct rig *k)
{
    accel_error_t err = { 0 };
    uint64_t one = 0, other;

    rig_open(k, "seeds");
    tap_ok(accel_seed(k->run, "x", 0, 0, &one, &err) == ACCEL_EINVAL && one == 0, "%s",
           err.text);
    rig_prepare(k);
    one = seed_of(k, "augment", 3, 0);
    other = seed_of(k, "augment", 3, ACCEL_SEED_PER_RANK);
    tap_ok(one == seed_by_formula(77, "augment", 3), "the formula of a seed");
    tap_ok(other == seed_by_formula(one, "rank", 0) && other != one,
           "and of that of a rank");
    tap_ok(one == UINT64_C(0x119156107b9c293c), "the value of every release: %llx",
           (unsigned long long)one);
    tap_ok(seed_of(k, "augment", 4, 0) != one && seed_of(k, "shuffle", 3, 0) != one,
           "another index, another purpose: another seed");
    k->run->boot.rank = 1;
    tap_ok(seed_of(k, "augment", 3, 0) == one &&
               seed_of(k, "augment", 3, ACCEL_SEED_PER_RANK) != other,
           "all ranks get the same, or each its own");
    k->run->boot.rank = 0;
    tap_ok(accel_seed(k->run, "", 0, 0, &one, &err) == ACCEL_EINVAL &&
               accel_seed(k->run, NULL, 0, 0, &one, &err) == ACCEL_EINVAL &&
               accel_seed(k->run, "x", 0, 0, NULL, &err) == ACCEL_EINVAL &&
               accel_seed(k->run, "x", 0, 2, &one, &err) == ACCEL_EINVAL,
           "%s", err.text);
    rig_close(k);
}

static void test_info(struct rig *k)
{
    accel_error_t err = { 0 };
    accel_info_t i = { .bytes = sizeof(i) };
    char host[256] = "";

    gethostname(host, sizeof(host) - 1);
    rig_open(k, "info");
    tap_ok(!accel_info(k->run, &i, &err) && !i.out_dir[0] && !i.checkpoint_dir[0] &&
               !strcmp(i.config_path, k->config) && !strcmp(i.config_source, "file"),
           "before accel_prepare %s", err.text);
    rig_prepare(k);
    rig_train(k);
    tap_ok(!accel_info(k->run, &i, &err) && !strcmp(i.out_dir, k->out) &&
               !strncmp(i.checkpoint_dir, k->out, strlen(k->out)) &&
               i.steps_done == 2 && i.samples_done == 4 && !i.resumed &&
               i.restarts == 0,
           "and after it");
    tap_ok(i.rank == 0 && i.world_size == 1 && i.local_rank == 0 && i.local_size == 1 &&
               i.node == 0 && i.nodes == 1 && i.threads == 1,
           "where it is");
    tap_ok(!strcmp(i.run_name, "helped") && !strcmp(i.version, accel_version()) &&
               !strncmp(i.host, host, 8) && !strcmp(i.device, "cpu") && i.isa[0] &&
               !i.bus_id[0] && !strcmp(i.compute, "float32") &&
               !strcmp(i.reduce, "float32") && !strcmp(i.sharding, "NO_SHARD"),
           "and what: %s, %s, %s, %s", i.isa, i.compute, i.reduce, i.sharding);
    tap_ok(accel_info(k->run, NULL, &err) == ACCEL_EINVAL, "%s", err.text);
    rig_close(k);
}

/* Options are a program's to leave out: all of them, or each of their texts. */
static void test_no_options(const struct rig *k)
{
    const accel_options_t empty = { .bytes = sizeof(empty) };
    const accel_options_t *const options[] = { NULL, &empty };

    setenv("ACCEL_CONFIG", k->config, 1);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(options); i++) {
        accel_error_t err = { 0 };
        accel_info_t info = { .bytes = sizeof(info) };
        accel_t *run = NULL;

        tap_ok(!accel_open(&run, options[i], &err) && !accel_info(run, &info, &err) &&
                   !strcmp(info.sharding, "NO_SHARD") && accel_rank(run) == 0 &&
                   accel_world_size(run) == 1,
               "a run with %s (%s)", i ? "empty options" : "no options", err.text);
        tap_is_int(accel_close(run, &err), ACCEL_OK, "and closes");
    }
    unsetenv("ACCEL_CONFIG");
}

int main(void)
{
    struct rig k = { .dir = "/tmp/accel-helped.XXXXXX" };

    tap_is_int(fork_world(2, two_ranks, NULL, HANG_S), 0,
               "out of memory on one rank halves the batch of all");
    run_folder_make(k.dir,
                    "distributed_type: 'NO'\nuse_cpu: true\nmixed_precision: 'no'\n"
                    "accel: {log_level: debug, checkpoint: {save: false}}\n",
                    k.config, sizeof(k.config));
    test_find(&k);
    test_find_refused(&k);
    test_evaluate(&k);
    test_step_time(&k);
    test_free_memory(&k);
    test_regions(&k);
    test_regions_refused(&k);
    test_advice(&k);
    test_seed(&k);
    test_info(&k);
    test_no_options(&k);
    run_folder_remove(k.dir);
    return tap_done();
}
