/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters and buffers by name: what one rank reads of 1 to 4 ranks is what was
 * written, under every strategy; the pieces of all other parameters stay; misuse is the
 * same error on all ranks, with the names in it.
 */
#include <stdio.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/world/fork_world.h"
#include "tests/world/model_run.h"
#include "tests/world/run_folder.h"

/* Two ranks of four have a part of it, with copies of shards not in their order. */
#define NAME  "h.0.mlp.c_fc.weight"
#define OTHER "h.0.mlp.c_fc.bias"

enum { MOST = 1 << 16 };

struct shape_case {
    int ranks, nodes;
    enum sharding_strategy strategy;
    accel_dtype_t compute;
};

static float was[MOST], now[MOST], beside[MOST], still[MOST];

static int64_t elems_of(const accel_t *run, const char *name)
{
    return accel_param_find(run->job.model, name)->elems;
}

/* Bits that differ everywhere, and on no rank. */
static float mark(int64_t i)
{
    return i % 7 == 3 ? -0.0f : (float)(i * 37 % 1009) - 500.25f;
}

/* Problems of one write and its reads; forward too: values that were gathered are
 * stale. */
static int wrong_values(accel_t *run, accel_error_t *err)
{
    static float before[MODEL_RUN_LOGITS], after[MODEL_RUN_LOGITS];
    const int last = run->boot.size - 1;
    int64_t n = elems_of(run, NAME), m = elems_of(run, OTHER), count;
    int bad = 0;

    if (model_run_logits(run, "gpt2", before, &count, err) ||
        accel_param_read(run, OTHER, ACCEL_ALL_RANKS, beside, m, err) ||
        accel_param_read(run, NAME, ACCEL_ALL_RANKS, was, n, err))
        return -1;
    for (int64_t i = 0; i < n; i++)
        was[i] = mark(i);
    if (accel_param_write(run, NAME, was, n, err) ||
        accel_param_read(run, NAME, last, run->boot.rank == last ? now : NULL, n,
                         err) ||
        accel_param_read(run, OTHER, ACCEL_ALL_RANKS, still, m, err) ||
        model_run_logits(run, "gpt2", after, &count, err))
        return -1;
    bad += run->boot.rank == last && memcmp(was, now, (size_t)n * sizeof(*now)) != 0;
    bad += memcmp(beside, still, (size_t)m * sizeof(*still)) != 0;
    bad += memcmp(before, after, sizeof(after)) == 0;
    return bad;
}

/* Every misuse gives ACCEL_EINVAL everywhere, the text on the rank that knows, and the
 * run goes on. */
static int wrong_refusals(accel_t *run)
{
    const int rank = run->boot.rank, size = run->boot.size;
    int64_t n = elems_of(run, NAME);
    accel_error_t err = { 0 };
    char sizes[80];
    int bad = 0;

    snprintf(sizes, sizeof(sizes), "has %lld elements, but the array has %lld",
             (long long)n, (long long)n - 1);
    bad +=
        accel_param_read(run, "h.0.mlp.c_fk.weight", 0, now, n, &err) != ACCEL_EINVAL;
    bad += rank == 0 && !strstr(err.hint, NAME);
    /* more or less in front of it */
    bad += accel_param_read(run, "transformer." NAME, 0, now, n, &err) != ACCEL_EINVAL;
    bad += rank == 0 && strcmp(err.hint, "did you mean " NAME "?");
    bad += accel_param_read(run, "mlp.c_fc.weight", 0, now, n, &err) != ACCEL_EINVAL;
    bad += rank == 0 && strcmp(err.hint, "did you mean " NAME "?");
    bad += accel_param_read(run, "fc.weight", 0, now, n, &err) != ACCEL_EINVAL;
    bad += rank == 0 && strstr(err.hint, NAME);
    bad += accel_param_read(run, NAME, 0, now, n - 1, &err) != ACCEL_EINVAL;
    bad += rank == 0 && !strstr(err.text, sizes);
    bad += accel_param_read(run, NAME, size, now, n, &err) != ACCEL_EINVAL;
    bad += accel_param_read(run, NAME, -2, now, n, &err) != ACCEL_EINVAL;
    bad += accel_param_read(run, NULL, 0, now, n, &err) != ACCEL_EINVAL;
    /* one rank alone is wrong */
    bad += accel_param_write(run, NAME, rank == size - 1 ? NULL : was, n, &err) !=
           ACCEL_EINVAL;
    bad += rank == size - 1 && !strstr(err.text, "is NULL");
    if (size > 1) {
        bad +=
            accel_param_read(run, rank ? NAME : OTHER, 0, now,
                             elems_of(run, rank ? NAME : OTHER), &err) != ACCEL_EINVAL;
        bad += accel_param_read(run, NAME, rank ? 1 : 0, now, n, &err) != ACCEL_EINVAL;
    }
    run->loop.in_micro = true;
    bad += accel_param_write(run, NAME, was, n, &err) != ACCEL_EINVAL;
    run->loop.in_micro = false;
    bad += run->status != ACCEL_OK;
    return bad;
}

static int rank_main(struct boot *b, void *arg)
{
    const struct shape_case *c = arg;
    struct model_request r = { .dir = "",
                               .strategy = c->strategy,
                               .compute = c->compute };
    accel_error_t err = { 0 };
    accel_t run = { 0 };
    int values = -1, refusals = -1;

    if (!backend_cpu_open(&r.backend, 1, &err) && !model_run_open(&run, b, &r, &err)) {
        values = wrong_values(&run, &err);
        refusals = wrong_refusals(&run);
    }
    if (values || refusals)
        fprintf(stderr, "# rank %d: %d wrong values, %d refusals: %s\n", b->rank,
                values, refusals, err.text);
    model_run_close(&run);
    return values || refusals;
}

static void test_shape(struct shape_case c)
{
    tap_is_int(fork_world_nodes(c.ranks, c.nodes, rank_main, &c, HANG_S, NULL), 0,
               "%d ranks on %d nodes, strategy %d in %s: written, read, refused",
               c.ranks, c.nodes, (int)c.strategy, accel_dtype_name(c.compute));
}

/* ---- one rank, with all of a run ------------------------------------------------- */

static char dir[] = "/tmp/accel-params.XXXXXX";
static accel_tensor_t *weight;

/* (w x - x0)^2 */
static accel_tensor_t *line_loss(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)m;
    (void)n;
    return accel_mse(accel_linear(in[0], weight, NULL, 0), accel_slice(in[0], 1, 0, 1));
}

static int one_sample(void *user, int64_t index, void *const *dst)
{
    (void)user;
    ((float *)dst[0])[0] = ((float *)dst[0])[1] = (float)(index + 1) / 8;
    return 0;
}

/* Reads back what is written to buffer `name`. */
static void test_buffer(accel_t *run, const char *name, const float value[3],
                        const float want[3])
{
    accel_error_t err = { 0 };
    float got[3] = { 0 };

    tap_ok(!accel_param_write(run, name, value, 3, &err) &&
               !accel_param_read(run, name, 0, got, 3, &err) &&
               memcmp(got, want, sizeof(got)) == 0,
           "buffer %s", name);
}

static void test_run(const char *config)
{
    static const accel_class_t held = { .bytes = sizeof(held),
                                        .name = "Held",
                                        .forward = line_loss };
    static const float value[3] = { 2, -3, 1.00390625f }, whole[3] = { 7, -8, 9 },
                       rounded[3] = { 2, -3, 1 };
    const accel_field_t field = { ACCEL_F32, 1, { 2 } };
    const int64_t three[] = { 3 }, row[] = { 1, 2 };
    const accel_init_t ones = { ACCEL_INIT_ONES, 0 };
    accel_options_t o = { sizeof(o), .config_file = config, .threads = 1 };
    accel_job_t j = { sizeof(j), .steps = 2, .batch = 1, .out_dir = dir };
    accel_error_t err = { 0 };
    accel_tensor_t *batch[1];
    accel_t *run = NULL;
    float got[2] = { 0 }, set[2] = { 3, -1 };

    tap_ok(!accel_open(&run, &o, &err) &&
               !accel_dataset_new(&j.data, 8, &field, 1, one_sample, NULL, 0, &err),
           "open %s", err.text);
    j.model = accel_module_new(run, &held, NULL, "");
    weight = accel_param(j.model, "w", 2, row, ones);
    accel_buffer(j.model, "f", ACCEL_F32, 1, three, ones);
    accel_buffer(j.model, "b", ACCEL_BF16, 1, three, ones);
    accel_buffer(j.model, "i", ACCEL_I32, 1, three, ones);
    tap_ok(accel_param_read(run, "w", 0, got, 2, &err) == ACCEL_EINVAL,
           "not before accel_prepare: %s", err.text);
    tap_ok(!accel_prepare(run, &j, &err), "prepared %s", err.text);
    test_buffer(run, "f", value, value);
    test_buffer(run, "b", value, rounded);
    test_buffer(run, "i", whole, whole);
    tap_ok(accel_param_write(run, "i", value, 3, &err) == ACCEL_EINVAL &&
               strstr(err.text, "element 2 for i, an int32 buffer, is 1.00391"),
           "%s", err.text);
    tap_ok(!accel_param_write(run, "w", set, 2, &err) &&
               !accel_next(run, batch, 1, &err) &&
               accel_param_write(run, "w", set, 2, &err) == ACCEL_EINVAL &&
               strstr(err.text, "in the middle of a micro-batch"),
           "between micro-batches only: %s", err.text);
    tap_ok(!accel_backward(run, accel_call(j.model, batch, 1), &err) &&
               !accel_step(run, &err) && !accel_param_read(run, "w", 0, got, 2, &err) &&
               got[0] != set[0] && got[0] > 2.5f && got[0] < 3.5f,
           "a step goes on from what was written: %g %s", (double)got[0], err.text);
    accel_close(run, NULL);
    accel_dataset_close(j.data);
}

int main(void)
{
    static const enum sharding_strategy all[] = { SHARD_FULL, SHARD_GRAD_OP,
                                                  SHARD_NONE };
    char config[64];

    run_folder_make(dir, "distributed_type: 'NO'\nuse_cpu: true\n", config,
                    sizeof(config));
    for (int ranks = 1; ranks <= 4; ranks++)
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(all); i++)
            test_shape((struct shape_case){ ranks, 1, all[i], ACCEL_F32 });
    /* weights that compute are copies, of all masters or of what was gathered */
    for (int ranks = 1; ranks <= 2; ranks++)
        test_shape((struct shape_case){ ranks, 1, SHARD_FULL, ACCEL_BF16 });
    /* copies of shards */
    for (int nodes = 2; nodes <= 4; nodes += 2)
        test_shape((struct shape_case){ 4, nodes, SHARD_HYBRID, ACCEL_F32 });
    test_run(config);
    run_folder_remove(dir);
    return tap_done();
}
