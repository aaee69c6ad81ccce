/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of whole copies that travel in bfloat16 or in blocks with a scale: against
 * the same in plain C, bit for bit, and the same on all ranks; what is not finite stays
 * so on every rank.
 */
#include <math.h>
#include <string.h>

#include "backend/device.h"
#include "numbers/wire.h"
#include "plan/plan.h"
#include "tests/tap.h"
#include "tests/world/shard_world.h"

enum { WORLD = 4, ACCUMULATE = 2, ROUNDS = 2 };

struct wires {
    int world;
    accel_dtype_t type;
    /* rank 1 has an infinity */
    bool infinite;
    /* [WORLD][TOTAL] mean gradients as each rank has them, shared */
    float (*mean)[TOTAL];
    double *sumsq;
};

/* Over many orders of magnitude, of both signs. */
static float gradient(int rank, int u, int64_t i, bool infinite)
{
    if (infinite && rank == 1 && u == 2 && i == 5)
        return INFINITY;
    return ldexpf((float)((i * 7 + rank * 5 + u) % 23 - 11) / 7.0f, (int)(i % 25) - 15);
}

/* One backward of what the scale takes for two. */
static int add_gradients(struct boot *b, struct shard *s, const struct model *m,
                         const struct wires *w)
{
    struct residency r = shard_residency(s);

    CHECK(shard_backward_begin(s, ACCUMULATE, err));
    for (int u = 0; u < UNITS; u++) {
        float *g = NULL;

        CHECK(r.grad(r.user, u, &g, err));
        for (int64_t i = 0; i < m->unit[u].elems; i++)
            g[i] += gradient(b->rank, u, i, w->infinite);
    }
    CHECK(shard_backward_end(s, err));
    return 0;
}

static int rank_main(struct boot *b, void *arg)
{
    const struct wires *w = arg;
    struct shard_options o = { .strategy = SHARD_NONE,
                               .precision = { ACCEL_F32, ACCEL_F32, w->type, true,
                                              false },
                               PLAIN_ADAMW };
    struct backend *be;
    struct model m;
    struct shard *s;
    struct comm *c;

    model_build(&m);
    CHECK(comm_open(&c, b, NULL, err));
    CHECK(backend_cpu_open(&be, 1, err));
    o.backend = be;
    CHECK(shard_open(&s, c, &o, &m.units, err));
    shard_init(s, 1);
    /* the second round begins with zeros again */
    for (int round = 0; round < ROUNDS; round++) {
        shard_zero(s, 0);
        if (add_gradients(b, s, &m, w))
            return 1;
        CHECK(shard_reduce(s, 0, err));
    }
    CHECK(shard_world_gradients(s, &m, 1, w->mean[b->rank], err));
    CHECK(shard_grad_sumsq(s, 0, &w->sumsq[b->rank], err));
    shard_close(s);
    comm_close(c);
    backend_close(be);
    return 0;
}

/* ---- the same in plain C --------------------------------------------------------- */

static float to_bf16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    if (isfinite(x))
        bits += 0x7fff + ((bits >> 16) & 1);
    bits &= 0xffff0000u;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* What arrives of x[n]. */
static void send(float *x, size_t n, accel_dtype_t type)
{
    static uint8_t blocks[TOTAL * 5];

    if (type == ACCEL_BF16) {
        for (size_t i = 0; i < n; i++)
            x[i] = to_bf16(x[i]);
        return;
    }
    wire_narrow(blocks, x, n, type);
    wire_widen(x, blocks, n, type);
}

/* Elements [at, at + n) of unit u, of `elems`. */
static void mean_of_part(const struct wires *w, int u, int64_t at, int64_t n,
                         int64_t elems, float *out)
{
    float one[TOTAL];

    for (int64_t i = 0; i < n; i++)
        out[i] = 0;
    for (int r = 0; r < w->world; r++) {
        for (int64_t i = 0; i < n; i++)
            one[i] = at + i < elems ? gradient(r, u, at + i, w->infinite) : 0;
        send(one, (size_t)n, w->type);
        for (int64_t i = 0; i < n; i++)
            out[i] += one[i];
    }
    for (int64_t i = 0; i < n; i++)
        out[i] *= 1.0f / (float)(w->world * ACCUMULATE);
    send(out, (size_t)n, w->type);
}

static void expect(const struct wires *w, const struct model *m, float *want)
{
    for (int u = 0; u < UNITS; u++) {
        const int64_t elems = m->unit[u].elems;
        const int64_t own = plan_padded_elems(elems, w->world) / w->world;

        for (int r = 0; r < w->world; r++) {
            float part[TOTAL];

            mean_of_part(w, u, r * own, own, elems, part);
            for (int64_t i = 0; i < own && r * own + i < elems; i++)
                want[m->base[u] + r * own + i] = part[i];
        }
    }
}

/* Elements of parameters that differ; gaps between them belong to nobody. */
static int differences(const struct model *m, const float *a, const float *b)
{
    int n = 0;

    for (int u = 0; u < UNITS; u++)
        for (int j = 0; j < m->unit[u].param_count; j++) {
            const accel_tensor_t *p = &m->tensor[u][j];
            const int64_t at = m->base[u] + p->param->unit_offset;

            for (int64_t i = 0; i < p->elems; i++)
                n += memcmp(&a[at + i], &b[at + i], sizeof(*a)) != 0;
        }
    return n;
}

static void test_wire(const struct model *m, struct wires w, const char *name)
{
    static float want[TOTAL];
    int wrong = 0;

    memset(w.mean, 0, WORLD * sizeof(*w.mean));
    tap_is_int(fork_world(w.world, rank_main, &w, HANG_S), 0, "%d ranks, %s", w.world,
               name);
    expect(&w, m, want);
    for (int r = 0; r < w.world; r++)
        wrong += differences(m, w.mean[r], want);
    tap_is_int(wrong, 0, "%d ranks, %s: the bits of plain C on all ranks", w.world,
               name);
}

int main(void)
{
    static const struct {
        accel_dtype_t type;
        const char *name;
    } types[] = { { ACCEL_BF16, "bf16" },
                  { ACCEL_F16, "fp16" },
                  { ACCEL_F8E5M2, "e5m2" } };
    struct model m;
    struct wires w = { 0 };
    double sum = 0;

    model_build(&m);
    w.mean = fork_shared(WORLD * sizeof(*w.mean));
    w.sumsq = fork_shared(WORLD * sizeof(*w.sumsq));
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(types); i++)
        for (w.world = 2; w.world <= WORLD; w.world++) {
            w.type = types[i].type;
            test_wire(&m, w, types[i].name);
        }
    w.world = 2;
    w.type = ACCEL_F16;
    w.infinite = true;
    test_wire(&m, w, "fp16 with an infinity");
    for (int r = 0; r < w.world; r++)
        sum += w.sumsq[r];
    tap_ok(isinf(sum), "an infinity of one rank is in the norm of all");
    return tap_done();
}
