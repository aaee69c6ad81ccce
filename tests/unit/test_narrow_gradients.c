/* SPDX-License-Identifier: Apache-2.0
 *
 * Float16 masters that are gathered where they are whole; gradients that rest in 8
 * bits: the sum of many micro-batches, none of which may get lost; norms, limits,
 * scales and hooks on what rests; one that is not finite; and the memory that there is,
 * which is what the plan says.
 */
#include <math.h>
#include <string.h>

#include "backend/device.h"
#include "plan/plan.h"
#include "tests/tap.h"
#include "tests/world/shard_world.h"

enum { WORLD = 2, MANY = 64 };

/* What all ranks found, shared. */
struct found {
    /* means of 1 micro-batch and of MANY; after a limit, a factor and a hook */
    float once[TOTAL], many[TOTAL], limited[TOTAL], scaled[TOTAL], doubled[TOTAL];
    double sumsq[WORLD], bad_sumsq[WORLD];
    struct shard_memory memory;
    /* elements that a step has left, and those of whole masters that were gathered
     * otherwise than sharded ones */
    int left[WORLD], other[WORLD];
};

struct gradients {
    int world;
    struct found *found;
};

/* From 1 to 2 of its own scale, of both signs. */
static float gradient(int u, int64_t i)
{
    const float size = 1 + (float)((i * 37 + u * 11) % 101) / 101;

    return ldexpf(i % 3 ? size : -size, (int)(i / SCALED_BLOCK % 9) - 4);
}

static int add_gradients(struct boot *b, struct shard *s, const struct model *m,
                         int times, bool infinite)
{
    struct residency r = shard_residency(s);

    for (int k = 0; k < times; k++) {
        CHECK(shard_backward_begin(s, times, err));
        for (int u = 0; u < UNITS; u++) {
            float *g = NULL;

            CHECK(r.grad(r.user, u, &g, err));
            for (int j = 0; j < m->unit[u].param_count; j++)
                for (int64_t i = 0; i < m->tensor[u][j].elems; i++) {
                    const int64_t at = m->tensor[u][j].param->unit_offset + i;

                    g[at] += infinite && i == 0 ? INFINITY : gradient(u, at);
                }
        }
        CHECK(shard_backward_end(s, err));
    }
    CHECK(shard_reduce(s, 0, err));
    return 0;
}

/* Whole float16 masters go through the ring, too: with the values of sharded ones. */
static int gather_whole(struct boot *b, struct comm *c, const struct model *m,
                        const struct backend *be, int *other_out)
{
    const enum sharding_strategy strategies[] = { SHARD_FULL, SHARD_NONE };
    struct shard *s[2];

    for (int k = 0; k < 2; k++) {
        const struct shard_options o = { .strategy = strategies[k],
                                         .precision = { .compute = ACCEL_BF16,
                                                        .parameters = ACCEL_BF16,
                                                        .reduce = ACCEL_F32,
                                                        .masters = ACCEL_F16 },
                                         .backend = be,
                                         PLAIN_ADAMW };

        CHECK(shard_open(&s[k], c, &o, &m->units, err));
        shard_init(s[k], 1);
    }
    for (int u = 0; u < UNITS; u++) {
        void *x[2];

        for (int k = 0; k < 2; k++) {
            struct residency r = shard_residency(s[k]);

            CHECK(r.want(r.user, u, &x[k], err));
        }
        *other_out += memcmp(x[0], x[1], (size_t)m->unit[u].elems * 2) != 0;
        for (int k = 0; k < 2; k++) {
            struct residency r = shard_residency(s[k]);

            r.done(r.user, u);
        }
    }
    shard_close(s[1]);
    shard_close(s[0]);
    return 0;
}

/* Everything that may be asked of them, on one shard. */
static int ask(struct boot *b, struct shard *s, const struct model *m, struct found *f)
{
    double left = 1;

    if (add_gradients(b, s, m, 1, false))
        return 1;
    CHECK(shard_world_gradients(s, m, 1, f->once, err));
    CHECK(shard_grad_sumsq(s, 0, &f->sumsq[b->rank], err));
    shard_clamp(s, 0, 0.75f);
    CHECK(shard_world_gradients(s, m, 1, f->limited, err));
    shard_scale(s, 0, 0.5f);
    CHECK(shard_world_gradients(s, m, 2, f->scaled, err));
    CHECK(shard_world_gradients(s, m, 1, f->doubled, err));
    shard_zero(s, 0);
    if (add_gradients(b, s, m, MANY, false))
        return 1;
    CHECK(shard_world_gradients(s, m, 1, f->many, err));
    shard_zero(s, 0);
    if (add_gradients(b, s, m, 1, true))
        return 1;
    CHECK(shard_grad_sumsq(s, 0, &f->bad_sumsq[b->rank], err));
    shard_zero(s, 0);
    if (add_gradients(b, s, m, 1, false))
        return 1;
    CHECK(shard_update(s, 0, 0.01f, 1, 1, err));
    CHECK(shard_grad_sumsq(s, 0, &left, err));
    f->left[b->rank] = left != 0;
    return 0;
}

static int rank_main(struct boot *b, void *arg)
{
    const struct gradients *w = arg;
    struct shard_options o = { .strategy = SHARD_FULL,
                               .precision = { .compute = ACCEL_F32,
                                              .parameters = ACCEL_F32,
                                              .reduce = ACCEL_F32,
                                              .gradients = ACCEL_F8E4M3 },
                               PLAIN_ADAMW };
    struct backend *be;
    struct model m;
    struct shard *s;
    struct comm *c;
    int bad;

    model_build(&m);
    CHECK(comm_open(&c, b, NULL, err));
    CHECK(backend_cpu_open(&be, 2, err));
    o.backend = be;
    CHECK(shard_open(&s, c, &o, &m.units, err));
    shard_init(s, 1);
    bad = ask(b, s, &m, w->found);
    if (b->rank == 0)
        shard_memory(s, &w->found->memory);
    shard_close(s);
    bad = bad || gather_whole(b, c, &m, be, &w->found->other[b->rank]);
    comm_close(c);
    backend_close(be);
    return bad;
}

/* Elements of all units whose value is further than `part` from the wanted one. */
static int far_from(const struct model *m, const float *got, float part, float by)
{
    int bad = 0;

    for (int u = 0; u < UNITS; u++)
        for (int j = 0; j < m->unit[u].param_count; j++)
            for (int64_t i = 0; i < m->tensor[u][j].elems; i++) {
                const int64_t at = m->tensor[u][j].param->unit_offset + i;
                const float want = gradient(u, at) * by;

                bad += !(fabsf(got[m->base[u] + at] - want) <= part * fabsf(want));
            }
    return bad;
}

/* The mean ratio to what is wanted: stochastic rounding has none of its own. */
static double ratio(const struct model *m, const float *got)
{
    double sum = 0, n = 0;

    for (int u = 0; u < UNITS; u++)
        for (int j = 0; j < m->unit[u].param_count; j++)
            for (int64_t i = 0; i < m->tensor[u][j].elems; i++, n++) {
                const int64_t at = m->tensor[u][j].param->unit_offset + i;

                sum += (double)(got[m->base[u] + at] / gradient(u, at));
            }
    return sum / n;
}

static void test_values(const struct model *m, const struct found *f, int world)
{
    double sumsq = 0, squares = 0;
    int bad = 0;

    tap_is_int(far_from(m, f->once, 0x1p-4f, 1), 0, "within half a step of e4m3");
    tap_ok(far_from(m, f->many, 2, 1) == 0 && fabs(ratio(m, f->many) - 1) < 0.01,
           "%d micro-batches add up: %g of their sum", MANY, ratio(m, f->many));
    for (int u = 0; u < UNITS; u++)
        for (int j = 0; j < m->unit[u].param_count; j++)
            for (int64_t i = 0; i < m->tensor[u][j].elems; i++) {
                const int64_t at = m->base[u] + m->tensor[u][j].param->unit_offset + i;
                const float x = f->once[at];
                const float limit = x > 0.75f ? 0.75f : x < -0.75f ? -0.75f : x;

                squares += (double)x * (double)x;
                bad += f->limited[at] != limit || f->scaled[at] != limit ||
                       f->doubled[at] != limit;
            }
    tap_is_int(bad, 0, "a limit, a factor and a hook change what rests");
    for (int r = 0; r < world; r++)
        sumsq += f->sumsq[r];
    tap_ok(fabs(sumsq / squares - 1) < 1e-12, "squares are those of what rests");
    sumsq = 0;
    for (int r = 0; r < world; r++)
        sumsq += f->bad_sumsq[r];
    tap_ok(!isfinite(sumsq), "infinity is found");
    tap_is_int(f->left[0] + f->left[1], 0, "a step leaves none");
    tap_is_int(f->other[0] + f->other[1], 0,
               "whole masters are gathered as sharded ones");
}

static void test_world(int world)
{
    struct found *f = fork_shared(sizeof(*f));
    struct gradients w = { world, f };
    struct model m;
    int64_t largest = 0, all = 0;

    model_build(&m);
    tap_is_int(fork_world(world, rank_main, &w, HANG_S), 0, "on %d ranks", world);
    test_values(&m, f, world);
    for (int u = 0; u < UNITS; u++) {
        const int64_t n = plan_padded_elems(m.unit[u].elems, world);

        largest = n > largest ? n : largest;
        all += n / world;
    }
    tap_is_int((int64_t)f->memory.gradient_shard, all + all / 32,
               "33 bytes for each 32 gradients");
    tap_is_int((int64_t)f->memory.reduce_buffer, (largest + largest / world) * 4,
               "and float32 of the largest unit, and of a rank's part of it");
}

int main(void)
{
    test_world(1);
    test_world(WORLD);
    return tap_done();
}
