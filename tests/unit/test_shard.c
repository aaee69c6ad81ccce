/* SPDX-License-Identifier: Apache-2.0
 *
 * Sharding on worlds of 1 to 4 ranks: every strategy and world size trains to the same
 * parameters, repeats to the bit, tiles its tensors and reloads the state of another
 * world.
 */
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/tap.h"
#include "tests/world/shard_world.h"

#define STEPS 5

/* Every EACH-th world and type, others for each strategy. */
enum { EACH = TAP_SANITIZED ? 4 : 1 };

static bool same_bits(const struct result *a, const struct result *b)
{
    return memcmp(a->full, b->full, sizeof(a->full)) == 0;
}

static double worst(const struct result *a, const struct result *b)
{
    double d = 0;

    for (int i = 0; i < TOTAL; i++)
        d = fmax(d, fabs((double)a->full[0][i] - b->full[0][i]));
    return d;
}

static double mean(const struct result *a, const struct result *b,
                   const struct model *m)
{
    int64_t n = m->base[UNITS - 1] + m->unit[UNITS - 1].elems;
    double d = 0;

    for (int64_t i = 0; i < n; i++)
        d += fabs((double)a->full[0][i] - b->full[0][i]);
    return d / (double)n;
}

static bool tiles(const struct result *r, const struct model *m)
{
    for (int u = 0; u < UNITS; u++) {
        for (int j = 0; j < m->unit[u].param_count; j++) {
            const accel_tensor_t *p = m->unit[u].param[j];

            for (int64_t i = 0; i < 3 * p->elems; i++) {
                if (r->hits[i / p->elems]
                           [m->base[u] + p->param->unit_offset + i % p->elems] != 1)
                    return false;
            }
        }
    }
    return true;
}

/* World and nodes for a strategy, number k; false: no more. One node is enough for
 * those that do not ask about nodes. */
static bool shape(enum sharding_strategy s, int k, struct job *job)
{
    static const int grouped[][2] = { { 1, 1 }, { 3, 1 }, { 2, 2 }, { 4, 2 } };
    bool hybrid = s == SHARD_HYBRID || s == SHARD_HYBRID_ZERO2;

    job->strategy = s;
    job->world = hybrid ? grouped[k % 4][0] : k + 1;
    job->nodes = hybrid ? grouped[k % 4][1] : 1;
    return k < 4;
}

static const char *words(const struct job *job)
{
    static char text[80];

    snprintf(text, sizeof(text), "world %d on %d node%s, %s", job->world, job->nodes,
             job->nodes == 1 ? "" : "s", config_strategy_name(job->strategy));
    return text;
}

static void test_init(struct result *drawn, const struct model *m)
{
    double mean = 0, square = 0;
    const accel_tensor_t *wte = m->unit[0].param[0];
    int n = (int)wte->elems, outside = 0;

    for (int i = 0; i < n; i++) {
        mean += drawn->full[0][i] / n;
        square += (double)drawn->full[0][i] * drawn->full[0][i] / n;
    }
    for (int64_t i = 0; i < m->unit[0].param[1]->elems; i++)
        outside +=
            fabsf(drawn->full[0][m->unit[0].param[1]->param->unit_offset + i]) > 0.5f;
    tap_ok(fabs(mean) < 0.08 && fabs(sqrt(square) - 0.5) < 0.05,
           "normal values: mean %.3f, deviation %.3f", mean, sqrt(square));
    tap_is_int(outside, 0, "uniform values stay inside");
    tap_ok(memcmp(drawn->full[0] + m->base[1], drawn->full[0] + m->base[2],
                  23 * 17 * sizeof(float)) != 0,
           "two tensors of one shape differ");
    for (int s = SHARD_FULL; s <= SHARD_HYBRID_ZERO2; s++) {
        struct job job = { 0 };

        for (int k = s % EACH; shape(s, k, &job); k += EACH) {
            struct result *r = run(job);

            tap_ok(same_bits(r, drawn) && tiles(r, m),
                   "initial bits, %s; boxes tile every tensor", words(&job));
            munmap(r, sizeof(*r));
        }
    }
}

static void test_training(const struct result *one, const struct model *m)
{
    for (int s = SHARD_FULL; s <= SHARD_HYBRID_ZERO2; s++) {
        struct job job = { .steps = STEPS };

        for (int k = s % EACH; shape(s, k, &job); k += EACH) {
            struct result *r = run(job), *again = run(job);
            double sum = 0;

            for (int i = 0; i < job.world; i++)
                sum += r->sumsq[i];
            tap_ok(worst(r, one) < 1e-6 && tiles(r, m), "%s trains as one rank: %.2g",
                   words(&job), worst(r, one));
            tap_is_close(sum, one->sumsq[0], 1e-5, "and has its gradient norm");
            tap_ok(same_bits(r, again), "and repeats to the bit");
            munmap(r, sizeof(*r));
            munmap(again, sizeof(*again));
        }
    }
}

/* Where the shards live changes no bit. One rank alone scales its gradients once a step
 * when they are here, and once a micro-batch on their way home: rounded differently. */
static void test_offload(const struct model *m)
{
    for (int k = EACH - 1; k < 15; k += EACH) {
        struct job job = { .world = k < 8 ? k / 2 + 1 : 4,
                           .nodes = k == 10 || k == 11 ? 2 : 1,
                           .steps = STEPS,
                           .strategy = k < 8    ? SHARD_FULL
                                       : k < 10 ? SHARD_GRAD_OP
                                       : k < 12 ? SHARD_HYBRID
                                                : SHARD_FULL,
                           .prefetch = PREFETCH_PRE,
                           .compute = k & 1 ? ACCEL_BF16 : ACCEL_F32,
                           .reduce = k < 12 ? ACCEL_F32
                                            : (accel_dtype_t)(ACCEL_F16 + k - 12) };
        struct result *here = run(job), *home;
        bool same;

        job.offload = true;
        home = run(job);
        same = job.world > 1 ? same_bits(home, here) : mean(home, here, m) < 1e-4;
        tap_ok(same && tiles(home, m) && home->full[0][0] != 0, "%s, %s: offloaded, %s",
               words(&job), accel_dtype_name(job.compute),
               job.world > 1 ? "the same bits" : "the same values");
        munmap(here, sizeof(*here));
        munmap(home, sizeof(*home));
    }
}

/* Units in float32 beside units in bfloat16: it does not matter which of them have the
 * run's types, when units are gathered, and where the shards live. */
static void test_mixed(const struct model *m)
{
    for (int k = EACH - 1; k < 16; k += EACH) {
        static const enum sharding_strategy strategies[] = { SHARD_FULL, SHARD_GRAD_OP,
                                                             SHARD_NONE, SHARD_HYBRID };
        struct job job = { .world = k / 4 == 3 ? 4 : k % 4 + 1,
                           .nodes = k / 4 == 3 ? 2 : 1,
                           .steps = STEPS,
                           .strategy = strategies[k / 4],
                           .prefetch = k & 1 ? PREFETCH_PRE : PREFETCH_NONE,
                           .compute = ACCEL_BF16,
                           .reduce = k & 2 ? ACCEL_BF16 : ACCEL_F32,
                           .mixed = 1 };
        struct result *narrow = run(job), *wide, *home, *plain;

        job.mixed = 2;
        job.prefetch = k & 2 ? PREFETCH_POST : PREFETCH_PRE;
        job.compute = ACCEL_F32;
        job.reduce = MIXED(job.reduce);
        wide = run(job);
        tap_ok(same_bits(narrow, wide) && tiles(wide, m), "%s: the same bits",
               words(&job));
        job.offload = job.strategy != SHARD_NONE;
        home = run(job);
        tap_ok(job.world > 1 ? same_bits(home, wide) : mean(home, wide, m) < 1e-4,
               "and offloaded");
        job.offload = false;
        job.mixed = 0;
        plain = run(job);
        tap_ok(!same_bits(plain, wide), "not those of a run in one type");
        munmap(narrow, sizeof(*narrow));
        munmap(wide, sizeof(*wide));
        munmap(home, sizeof(*home));
        munmap(plain, sizeof(*plain));
    }
}

/* Rounding moves parameters (`rounds`: not at all), but not far, on average less than
 * `most`; the same job has the same bits again. A gradient near zero may change its sign
 * by rounding, and Adam then goes lr = 0.01 the other way: bounded for one element, rare
 * among all. */
static void check_near(const struct job *job, const struct result *one,
                       const struct model *m, bool rounds, double most)
{
    struct result *r = run(*job), *again = run(*job);

    tap_ok((worst(r, one) > 0) == rounds && worst(r, one) <= 2 * 0.01 * STEPS &&
               mean(r, one, m) < most && same_bits(r, again),
           "compute %s, gradients %s, %s: near (%.2g, mean %.2g), repeats",
           accel_dtype_name(job->compute), accel_dtype_name(job->reduce), words(job),
           worst(r, one), mean(r, one, m));
    munmap(r, sizeof(*r));
    munmap(again, sizeof(*again));
}

/* Compute and wire of gradients, each wide or narrow, but not both wide. */
static void test_bf16(const struct result *one, const struct model *m)
{
    for (int k = EACH - 1; k < 12; k += EACH) {
        const struct job job = { .world = k % 4 + 1,
                                 .nodes = 1,
                                 .steps = STEPS,
                                 .strategy = SHARD_FULL,
                                 .compute = k < 8 ? ACCEL_BF16 : ACCEL_F32,
                                 .reduce = k < 4 ? ACCEL_F32 : ACCEL_BF16 };

        check_near(&job, one, m, k < 8 || job.world > 1, 5e-4);
    }
    for (int w = EACH; w <= 4; w++) {
        const struct job job = { .world = w,
                                 .nodes = 1,
                                 .steps = STEPS,
                                 .strategy = SHARD_NONE,
                                 .compute = ACCEL_BF16,
                                 .reduce = ACCEL_BF16 };

        check_near(&job, one, m, true, 5e-4);
    }
}

/* Gradients that travel with few bits and a scale for each block: one rank sends
 * none. */
static void test_scaled(const struct result *one, const struct model *m)
{
    static const double most[] = { 5e-5, 5e-3,
                                   1e-2 }; /* mean distance of a parameter */

    for (int k = EACH - 1; k < 12; k += EACH) {
        const struct job job = { .world = k % 4 + 1,
                                 .nodes = 1,
                                 .steps = STEPS,
                                 .strategy = k % 2 ? SHARD_FULL : SHARD_GRAD_OP,
                                 .compute = ACCEL_F32,
                                 .reduce = (accel_dtype_t)(ACCEL_F16 + k / 4) };

        check_near(&job, one, m, job.world > 1, most[k / 4]);
    }
}

static void test_prefetch(void)
{
    for (int t = ACCEL_F32; t <= ACCEL_BF16; t++) {
        struct job job = { .world = 3,
                           .steps = 3,
                           .strategy = SHARD_FULL,
                           .prefetch = PREFETCH_NONE,
                           .compute = t,
                           .reduce = t };
        struct result *none = run(job), *pre, *post;

        job.prefetch = PREFETCH_PRE;
        pre = run(job);
        job.prefetch = PREFETCH_POST;
        post = run(job);
        tap_ok(same_bits(none, pre) && same_bits(none, post),
               "BACKWARD_PRE, BACKWARD_POST and none give the same bits (%s)",
               accel_dtype_name(t));
        /* Backward of root, h.3 .. h.0, root; root and h.3 lie in the ring at its
         * start. */
        tap_is_str(none->trace, "drdgrdgrdgrdgrdr", "none: gathered when wanted");
        tap_is_str(pre->trace, "dgrdgrdgrdgrdrdr",
                   "PRE: the next unit comes before this one's gradients");
        tap_is_str(post->trace, "drgdrgdrgdrgdrdr",
                   "POST: after the last one's are handed in");
        munmap(none, sizeof(*none));
        munmap(pre, sizeof(*pre));
        munmap(post, sizeof(*post));
    }
}

/* Weights of two and more dimensions decay; gains, biases and all moments stay. */
static void test_decay(const struct result *drawn, const struct model *m)
{
    struct job job = {
        .world = 3, .steps = 1, .strategy = SHARD_FULL, .decay_only = true
    };
    struct result *r = run(job);
    int wrong = 0;

    for (int u = 0; u < UNITS; u++) {
        for (int j = 0; j < m->unit[u].param_count; j++) {
            const accel_tensor_t *p = m->unit[u].param[j];
            float factor = p->ndim >= 2 ? (float)(1 - 0.01f * 0.1f) : 1.0f;

            for (int64_t i = 0; i < p->elems; i++) {
                int64_t at = m->base[u] + p->param->unit_offset + i;

                wrong += fabsf(r->full[0][at] - drawn->full[0][at] * factor) > 1e-7f;
                wrong += r->full[1][at] != 0 || r->full[2][at] != 0;
            }
        }
    }
    tap_is_int(wrong, 0, "only weights of two or more dimensions decay");
    munmap(r, sizeof(*r));
}

static void test_reload(void)
{
    struct job save = { .world = 4, .steps = 2, .strategy = SHARD_FULL };
    struct result *saved = run(save);

    for (int s = SHARD_FULL; s <= SHARD_HYBRID_ZERO2; s++) {
        struct job load = { .load = saved };

        for (int k = s % EACH; shape(s, k, &load); k += EACH) {
            struct result *r = run(load);

            tap_ok(same_bits(r, saved), "4 ranks' state, %s: equal bits", words(&load));
            munmap(r, sizeof(*r));
        }
    }
    munmap(saved, sizeof(*saved));
}

int main(void)
{
    static struct model m;
    struct job init = { .world = 1, .strategy = SHARD_NONE };
    struct job base = { .world = 1, .steps = STEPS, .strategy = SHARD_NONE };
    struct result *drawn, *one;

    model_build(&m);
    drawn = run(init);
    test_init(drawn, &m);
    one = run(base);
    tap_ok(worst(one, drawn) > 0.01, "training moves the parameters");
    test_training(one, &m);
    test_offload(&m);
    test_mixed(&m);
    test_bf16(one, &m);
    test_scaled(one, &m);
    test_prefetch();
    test_decay(drawn, &m);
    test_reload();
    return tap_done();
}
