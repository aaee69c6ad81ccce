/* SPDX-License-Identifier: Apache-2.0
 *
 * Accumulation through the calls of accel_objects.h and loaders: Accelerate's rows on 1
 * and 2 ranks, the end of an epoch, short groups, gradients reduced in every
 * micro-batch, micro-batches without a backward, and what is refused.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/accumulate_rows.h"
#include "tests/world/number_run.h"
#include "tests/world/open_world.h"
#include "tests/world/run_folder.h"

static char root[64] = "/tmp/accel-groups-XXXXXX";
static char config[96], out_dir[96];

/* Sample i is i + 1, or 1 where `user` is not NULL. */
static int fetch(void *user, int64_t index, void *const *dst)
{
    *(float *)dst[0] = user ? 1 : (float)(index + 1);
    return 0;
}

static int one;

/* A run that has a loader of `samples` samples; the loop's k is `every`. */
static accel_loader_t *groups_open(struct number_run *k, accel_dataset_t **data_out,
                                   int samples, int every, bool ones)
{
    const accel_field_t field = { .dtype = ACCEL_F32, .ndim = 1, .dims = { 1 } };
    const accel_loader_options_t sequential = { sizeof(sequential),
                                                .sampler = ACCEL_SAMPLER_SEQUENTIAL,
                                                .batch = 1 };
    const accel_schedule_t ranks = { sizeof(ranks), .move = ACCEL_MOVE_BY_RANKS };
    const accel_loop_t loop = { sizeof(loop), .steps = 1000, .batch = 1,
                                .accumulate = every, .out_dir = out_dir };
    accel_loader_t *l = NULL;

    number_open(k, config);
    accel_schedule_add(k->oa, &ranks, &k->err);
    accel_dataset_new(data_out, samples, &field, 1, fetch, ones ? &one : NULL, 0,
                      &k->err);
    accel_loader_new(&l, k->run, "train", *data_out, &sequential, &k->err);
    accel_prepare_all(k->run, &loop, &k->err);
    return l;
}

static void groups_close(struct number_run *k, accel_dataset_t *data)
{
    accel_close(k->run, NULL);
    accel_dataset_close(data);
}

/* The next batch and its backward; *sync_out: does it end a step? False at the end of
 * the epoch. */
static bool groups_micro(struct number_run *k, accel_loader_t *l, int *sync_out)
{
    accel_tensor_t *x;
    int got = 0;

    accel_loader_next(l, &x, 1, &got, &k->err);
    if (!got)
        return false;
    *sync_out = accel_sync(k->run);
    accel_backward(k->run, accel_call(k->a, &x, 1), &k->err);
    accel_step(k->run, &k->err);
    return true;
}

/* ---- one rank -------------------------------------------------------------------- */

/* Two epochs; the row's gradients are seen in what steps of rate 1 leave. */
static bool like_row(const struct accumulate_row *row)
{
    const int batches = row->batches;
    accel_dataset_t *data;
    struct number_run run;
    accel_loader_t *l = groups_open(&run, &data, batches, row->every, true);
    double w = 2;
    bool same = true;

    for (int i = 0; i < 2 * batches; i++) {
        int sync = -1;

        if (i == batches)
            same = same && !groups_micro(&run, l, &sync);
        same = same && groups_micro(&run, l, &sync) && sync == (row->sync[i] != 0) &&
               (double)run.run->loop.group.step == row->step[i];
        if (sync)
            w -= row->gradient[i];
        same = same && fabs(number_of(&run, run.a) - w) < 1e-5;
    }
    groups_close(&run, data);
    return same;
}

/* Epochs of 3 batches, 1 2 3: the flags of two epochs, and the number after them. */
static void test_rule(const accel_accumulation_t *rule, const char *flags, double want,
                      const char *what)
{
    accel_dataset_t *data;
    struct number_run k;
    accel_loader_t *l = groups_open(&k, &data, 3, 1, false);
    char got[16] = "";

    tap_is_int(accel_accumulate_rule(k.run, rule, &k.err), ACCEL_OK, "%s", what);
    for (int epoch = 0; epoch < 2; epoch++)
        for (int sync; groups_micro(&k, l, &sync);)
            strcat(got, sync ? "1" : "0");
    tap_ok(!strcmp(got, flags) && fabs(number_of(&k, k.a) - want) < 1e-5,
           "steps at %s, the number is %g", got, (double)number_of(&k, k.a));
    groups_close(&k, data);
}

/* A new k counts again; a batch without a backward does not count; nor do those of an
 * evaluation. */
static void test_changes(void)
{
    accel_tensor_t *x;
    accel_dataset_t *data;
    struct number_run k;
    accel_loader_t *l = groups_open(&k, &data, 100, 3, true);
    int sync = 0, got;

    for (int i = 0; i < 3; i++)
        groups_micro(&k, l, &sync);
    tap_ok(sync && !accel_accumulate(k.run, 2, &k.err), "after a step of three");
    groups_micro(&k, l, &sync);
    tap_ok(!sync, "a group of two is not over after one");
    accel_loader_next(l, &x, 1, &got, &k.err);
    tap_ok(accel_sync(k.run), "a batch that ends it");
    accel_inference_mode(k.run, 1);
    accel_loader_next(l, &x, 1, &got, &k.err);
    tap_ok(!accel_sync(k.run), "is left for one of an evaluation");
    accel_inference_mode(k.run, 0);
    accel_batch_begin(k.run, &k.err);
    accel_batch_begin(k.run, &k.err);
    tap_ok(accel_sync(k.run), "the next one ends it, also when begun twice");
    number_push(&k, k.a, 1);
    tap_ok(!accel_step(k.run, &k.err) && accel_steps_done(k.run) == 2, "two steps");
    groups_close(&k, data);
}

static void refuses(accel_status_t st, const struct number_run *k, const char *text)
{
    tap_ok(st == ACCEL_EINVAL && strstr(k->err.text, text) && k->err.hint[0],
           "refused: %s", k->err.text);
}

static void test_refused(void)
{
    const accel_accumulation_t four = { sizeof(four), .every = 4 },
                               bad = { sizeof(bad), .every = -1 };
    accel_dataset_t *data;
    struct number_run k;

    groups_open(&k, &data, 3, 2, true);
    refuses(accel_accumulate_rule(k.run, NULL, &k.err), &k, "the rule is NULL");
    refuses(accel_accumulate_rule(NULL, &four, &k.err), &k, "the run is NULL");
    refuses(accel_accumulate_rule(k.run, &bad, &k.err), &k, "-1 micro-batches");
    number_begin(&k);
    refuses(accel_accumulate_rule(k.run, &four, &k.err), &k, "in the middle of a step");
    groups_close(&k, data);
}

/* ---- two ranks: loss w x, lr 1, rank r gets x = r + 1, r + 3 ... ----------------- */

struct pair {
    const char *strategy;
    bool each;
};

/* What Accelerate logs: the flag, the number (from 0 there), the schedule; last a group
 * that is a third of one and counts by its batches. */
static const struct {
    int k, sync[4];
    double w[4];
    int64_t position[4];
} pairs[] = {
    { 1, { 1, 1, 1, 1 }, { -1.5, -5, -10.5, -18 }, { 2, 4, 6, 8 } },
    { 2, { 0, 1, 0, 1 }, { 0, -2.5, -2.5, -9 }, { 0, 2, 2, 4 } },
    { 3, { 0, 0, 1, 1 }, { 0, 0, -3.5, -6 }, { 0, 0, 2, 4 } },
    { 12, { 0, 0, 0, 1 }, { 0, 0, 0, -4.5 }, { 0, 0, 0, 2 } },
};

static void note(void *user, const char *name, float *gradient, int64_t first,
                 int64_t count)
{
    (void)first;
    if (count > 0 && strcmp(name, "a/w") == 0)
        *(float *)user = gradient[0];
}

/* In the middle of a group: each rank's own gradient, or an equal part of the sum. */
static int middle(const struct number_run *k, const struct pair *p, int rank)
{
    float part = NAN;
    accel_error_t err;

    if (strcmp(p->strategy, "NO_SHARD") != 0)
        return 0;
    shard_each_gradient(k->run->shard, 0, note, &part, &err);
    return fabsf(part - (p->each ? 1.5f : (float)rank + 1)) > 1e-5f;
}

static int pair_main(struct boot *b, void *arg)
{
    const struct pair *p = arg;
    int wrong = 0;

    for (size_t c = 0; c < ACCEL_ARRAY_SIZE(pairs); c++) {
        const accel_accumulation_t rule = { sizeof(rule), .sync_each_batch = p->each,
                                            .short_by_count = pairs[c].k > 4 };
        accel_dataset_t *data;
        struct number_run k;
        accel_loader_t *l;

        l = groups_open(&k, &data, 8, pairs[c].k, false);
        wrong += accel_accumulate_rule(k.run, &rule, &k.err) != ACCEL_OK;
        for (int i = 0; i < 4; i++) {
            int sync = -1;

            wrong += !groups_micro(&k, l, &sync) || sync != pairs[c].sync[i];
            wrong += fabs(number_of(&k, k.a) - 2 - pairs[c].w[i]) > 1e-5;
            wrong += accel_schedule_position(k.oa) != pairs[c].position[i];
            wrong += i == 0 && pairs[c].k > 1 && middle(&k, p, b->rank);
        }
        if (wrong)
            fprintf(stderr, "# rank %d, every %d: %d wrong %s\n", b->rank, pairs[c].k,
                    wrong, k.err.text);
        groups_close(&k, data);
    }
    return wrong != 0;
}

static void test_pairs(void)
{
    static const struct {
        const char *strategy;
        int nodes;
    } all[] = { { "FULL_SHARD", 1 }, { "NO_SHARD", 1 }, { "HYBRID_SHARD", 2 } };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(all); i++)
        for (int each = 0; each < 2; each++) {
            struct pair p = { all[i].strategy, each };

            number_config(config, 2, all[i].nodes, p.strategy, false);
            tap_is_int(open_world(2, all[i].nodes, pair_main, &p, HANG_S), 0,
                       "two ranks are Accelerate's: %s%s", p.strategy,
                       each ? ", reduced in every micro-batch" : "");
        }
}

int main(void)
{
    run_folder_new(root);
    snprintf(config, sizeof(config), "%s/run.yaml", root);
    snprintf(out_dir, sizeof(out_dir), "%s/out", root);
    number_config(config, 1, 1, "FULL_SHARD", false);
    accumulate_rows(like_row);
    test_rule(&(accel_accumulation_t){ sizeof(accel_accumulation_t), .every = 2 },
              "011011", 2 - 2 * (1.5 + 1.5), "a short group counts by every");
    test_rule(&(accel_accumulation_t){ sizeof(accel_accumulation_t), .every = 2,
                                       .short_by_count = 1 },
              "011011", 2 - 2 * (1.5 + 3), "a short group counts by its batches");
    test_rule(&(accel_accumulation_t){ sizeof(accel_accumulation_t), .every = 2,
                                       .across_epochs = 1 },
              "010101", 2 - 6, "groups go on over the end of an epoch");
    test_rule(&(accel_accumulation_t){ sizeof(accel_accumulation_t),
                                       .short_by_count = 1, .sync_each_batch = 1 },
              "111111", 2 - 12, "every stays as it is");
    test_rule(&(accel_accumulation_t){ sizeof(accel_accumulation_t), .every = 3,
                                       .short_by_count = 1, .sync_each_batch = 1 },
              "001001", 2 - 4, "full groups, reduced each time");
    test_changes();
    test_refused();
    test_pairs();
    run_folder_remove(root);
    return tap_done();
}
