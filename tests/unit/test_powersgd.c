/* SPDX-License-Identifier: Apache-2.0
 *
 * PowerSGD against its formulas in double, on 1 to 3 ranks: layer by layer and as one
 * square, with what is missing fed back, exact before its first step and at full rank,
 * resumed to the bit.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "numbers/rng.h"
#include "powersgd/powersgd_impl.h"
#include "powersgd/powersgd.h"
#include "tests/tap.h"
#include "tests/world/fork_world.h"
#include "tests/world/op_rig.h"

enum { MOST_RANKS = 3, STEPS = 6, MOST = 750 };

/* The second and the last are too small to compress. */
static const struct powersgd_shape shapes[] = {
    { 20, 9, 0 }, { 1, 5, 0 }, { 12, 30, 0 }, { 3, 3, 0 }
};
enum { SHAPES = 4, TOTAL = 180 + 5 + 360 + 9 };

static struct backend *be;

/* The gradient of a rank in a step: few directions, and noise. */
static double gradient_of(int rank, int step, int i)
{
    uint32_t w[4];

    rng_block(11, (uint64_t)(100 * step + rank), (uint64_t)i, w);
    return sin(0.37 * i) * (rank + 1) + cos(0.11 * i + step) +
           0.3 * (2 * rng_unit(w[0]) - 1);
}

static void fill_gradient(float *g, int rank, int step)
{
    for (int i = 0; i < TOTAL; i++)
        g[i] = (float)gradient_of(rank, step, i);
}

/* Right factors to begin with, as a checkpoint would give them. */
static float first_right(int64_t k)
{
    return rig_sequence(7, (uint32_t)k);
}

static void begin_with_first_right(struct powersgd *s)
{
    struct powersgd_state state = powersgd_state_of(s);

    for (int64_t k = 0; k < state.rights; k++)
        state.right[k] = first_right(k);
}

/* ---- the formulas, all ranks at once, in double ---------------------------------- */

struct formula {
    double error[MOST_RANKS][MOST], right[MOST];
};

static void columns_in_double(double *m, int rows, int cols)
{
    for (int c = 0; c < cols; c++)
        for (int b = 0; b <= c; b++) {
            double dot = 0;

            for (int i = 0; i < rows; i++)
                dot += m[i * cols + c] * m[i * cols + b];
            for (int i = 0; i < rows; i++)
                m[i * cols + c] = b < c ? m[i * cols + c] - dot * m[i * cols + b]
                                        : m[i * cols + c] / sqrt(dot);
        }
}

/* One matrix m[rank][rows * cols] of a step; q, e: its factors and errors. All m become
 * the result. */
static void formula_matrix(double m[][MOST], int ranks, int rows, int cols, int r,
                           double *q, double e[][MOST], int e_at)
{
    static double p[MOST], next[MOST];

    memset(p, 0, sizeof(p));
    memset(next, 0, sizeof(next));
    columns_in_double(q, cols, r);
    for (int w = 0; w < ranks; w++)
        for (int i = 0; i < rows * cols; i++) {
            m[w][i] += e[w][e_at + i];
            for (int k = 0; k < r; k++)
                p[i / cols * r + k] += m[w][i] * q[i % cols * r + k];
        }
    columns_in_double(p, rows, r);
    for (int w = 0; w < ranks; w++)
        for (int i = 0; i < rows * cols; i++)
            for (int k = 0; k < r; k++)
                next[i % cols * r + k] += m[w][i] * p[i / cols * r + k] / ranks;
    memcpy(q, next, sizeof(*q) * (size_t)(cols * r));
    for (int w = 0; w < ranks; w++)
        for (int i = 0; i < rows * cols; i++) {
            double product = 0;

            for (int k = 0; k < r; k++)
                product += p[i / cols * r + k] * q[i % cols * r + k];
            e[w][e_at + i] = m[w][i] - product;
            m[w][i] = product;
        }
}

/* The result of a step for the whole gradient. */
static void formula_step(struct formula *f, double *out, int ranks, int step, int r,
                         bool batched)
{
    static double m[MOST_RANKS][MOST];
    int at = 0, e_at = 0, q_at = 0;

    for (int i = 0; i < (batched ? 1 : SHAPES); i++) {
        const int side = (int)ceil(sqrt(TOTAL));
        const int rows = batched ? side : (int)shapes[i].rows;
        const int cols = batched ? side : (int)shapes[i].cols;
        const bool whole = batched || i % 2 == 0;
        const int used = batched ? TOTAL : rows * cols;

        for (int w = 0; w < ranks; w++)
            for (int k = 0; k < rows * cols; k++)
                m[w][k] = k < used ? (float)gradient_of(w, step, at + k) : 0;
        if (whole)
            formula_matrix(m, ranks, rows, cols, r, f->right + q_at, f->error, e_at);
        for (int k = 0; k < used; k++) {
            double mean = 0;

            for (int w = 0; w < ranks; w++)
                mean += m[w][k] / ranks;
            out[at + k] = mean;
        }
        at += used;
        e_at += whole ? rows * cols : 0;
        q_at += whole ? cols * r : 0;
    }
}

/* ---- several ranks --------------------------------------------------------------- */

struct world {
    int ranks;
    accel_powersgd_t rule;
    /* results of all ranks, shared between them */
    float (*out)[STEPS][TOTAL];
};

static accel_status_t add_by_comm(void *user, float *x, int64_t n, accel_error_t *err)
{
    return comm_all_reduce(user, x, (size_t)n, ACCEL_F32, COMM_SUM, err);
}

static int rank_main(struct boot *b, void *arg)
{
    const struct world *w = arg;
    struct powersgd_peers peers = { .ranks = w->ranks, .all_reduce = add_by_comm };
    struct powersgd *s = NULL;
    accel_error_t err = { 0 };
    struct comm *c = NULL;
    int failed = comm_open(&c, b, NULL, &err) != ACCEL_OK ||
                 powersgd_open(&s, be, &w->rule, 0, shapes, SHAPES, &err) != ACCEL_OK;

    peers.user = c;
    be->threads = 1 + b->rank;
    if (!failed)
        begin_with_first_right(s);
    for (int t = 0; !failed && t < STEPS; t++) {
        fill_gradient(w->out[b->rank][t], b->rank, t);
        failed = powersgd_reduce(s, w->out[b->rank][t], t, &peers, &err) != ACCEL_OK;
    }
    if (failed)
        fprintf(stderr, "# %s\n", err.text);
    powersgd_close(s);
    comm_close(c);
    return failed;
}

/* Largest difference to the formulas, as a share of the largest element. */
static double against_formulas(const struct world *w)
{
    static struct formula f;
    static double want[TOTAL];
    double worst = 0, largest = 0;

    memset(&f, 0, sizeof(f));
    for (int k = 0; k < MOST; k++)
        f.right[k] = first_right(k);
    for (int t = 0; t < STEPS; t++) {
        formula_step(&f, want, w->ranks, t, w->rule.rank, w->rule.batched);
        for (int i = 0; i < TOTAL; i++) {
            worst = fmax(worst, fabs(w->out[0][t][i] - want[i]));
            largest = fmax(largest, fabs(want[i]));
        }
    }
    return worst / largest;
}

static void test_formulas(int ranks, int rank, bool batched)
{
    const size_t bytes = sizeof(float[STEPS][TOTAL]);
    struct world w = { .ranks = ranks,
                       .rule = { .rank = rank, .start = -1, .batched = batched } };
    bool same = true;
    double off;
    int status;

    w.out = fork_shared(bytes * (size_t)ranks);
    status = fork_world(ranks, rank_main, &w, HANG_S);
    off = against_formulas(&w);
    for (int r = 1; r < ranks; r++)
        same = same && memcmp(w.out[0], w.out[r], bytes) == 0;
    tap_ok(status == 0 && off < 2e-5,
           "%d ranks, rank %d%s: %d steps follow the formulas, %.2g", ranks, rank,
           batched ? ", one square" : "", STEPS, off);
    if (ranks > 1)
        tap_ok(same, "with the same bits on all ranks");
}

/* ---- torch (tests/data/optim/powersgd.txt) --------------------------------------- */

static accel_status_t add_nothing(void *user, float *x, int64_t n, accel_error_t *err)
{
    (void)user, (void)x, (void)n, (void)err;
    return ACCEL_OK;
}

static void test_torch(FILE *f, bool batched)
{
    enum { ALL = 4 + 12 * 9 };
    static const struct powersgd_shape two[] = { { 4, 1, 0 }, { 12, 9, 0 } };
    const accel_powersgd_t rule = { .rank = 2, .start = -1, .batched = batched };
    const struct powersgd_peers alone = { 1, add_nothing, NULL };
    struct powersgd *s = NULL;
    float g[ALL], want;
    double worst = 0;

    powersgd_open(&s, be, &rule, 0, two, 2, NULL);
    begin_with_first_right(s);
    for (uint32_t t = 0; t < 5; t++) {
        for (uint32_t i = 0; i < ALL; i++)
            g[i] = rig_sequence(200 + t, i);
        powersgd_reduce(s, g, t, &alone, NULL);
        for (int i = 0; i < ALL; i++)
            worst = f && fscanf(f, "%f", &want) == 1
                        ? fmax(worst, fabs((double)want - g[i]))
                        : INFINITY;
    }
    tap_ok(worst < 1e-5, "5 steps are torch's%s to %.2g", batched ? ", one square" : "",
           worst);
    powersgd_close(s);
}

/* ---- one process ----------------------------------------------------------------- */

/* Two ranks with the same gradient. */
static accel_status_t add_twice(void *user, float *x, int64_t n, accel_error_t *err)
{
    (void)err;
    *(int64_t *)user += n;
    for (int64_t i = 0; i < n; i++)
        x[i] *= 2;
    return ACCEL_OK;
}

static int64_t sent;
static const struct powersgd_peers twice = { 2, add_twice, &sent };

static struct powersgd *opened(accel_powersgd_t rule)
{
    struct powersgd *s = NULL;

    powersgd_open(&s, be, &rule, 5, shapes, SHAPES, NULL);
    return s;
}

static double distance(const float *a, const float *b)
{
    double worst = 0;

    for (int i = 0; i < TOTAL; i++)
        worst = fmax(worst, fabs((double)a[i] - b[i]));
    return worst;
}

static void test_exact(void)
{
    static float g[TOTAL], want[TOTAL];
    struct powersgd *s = opened((accel_powersgd_t){ .start = 2, .rank = 2 });

    for (int t = 0; t < 4; t++)
        tap_is_int(powersgd_exact(s, t), t < 2, "is step %d exact", t);
    fill_gradient(g, 0, 2);
    fill_gradient(want, 0, 2);
    sent = 0;
    powersgd_reduce(s, g, 2, &twice, NULL);
    tap_ok(distance(g, want) > 0.01 && sent == powersgd_sizes(s).sent &&
               sent == 2 * (20 + 9 + 12 + 30) + 5 + 9,
           "the third one is compressed to %lld of %lld", (long long)sent,
           (long long)powersgd_sizes(s).total);
    powersgd_close(s);
    s = opened((accel_powersgd_t){ .start = -1, .rank = 100, .least = 1e-9 });
    fill_gradient(g, 0, 0);
    fill_gradient(want, 0, 0);
    powersgd_reduce(s, g, 0, &twice, NULL);
    tap_ok(distance(g, want) < 1e-5, "full rank leaves nothing out: %.2g",
           distance(g, want));
    powersgd_close(s);
}

/* What the steps have given and what is missing add up to what they got. */
static void test_feedback(bool batched)
{
    static double got[TOTAL], gave[TOTAL];
    static float g[TOTAL];
    struct powersgd *s = opened((accel_powersgd_t){ .start = -1, .batched = batched });
    struct powersgd_state state = powersgd_state_of(s);
    double worst = 0;
    int at = 0;

    memset(got, 0, sizeof(got));
    memset(gave, 0, sizeof(gave));
    for (int t = 0; t < 20; t++) {
        fill_gradient(g, 1, t);
        for (int i = 0; i < TOTAL; i++)
            got[i] += g[i];
        powersgd_reduce(s, g, t, &twice, NULL);
        for (int i = 0; i < TOTAL; i++)
            gave[i] += g[i];
    }
    for (int i = 0; i < TOTAL; i++) {
        const bool plain = !batched && ((i >= 180 && i < 185) || i >= 545);

        worst = fmax(worst, fabs(got[i] - gave[i] - (plain ? 0 : state.error[at])));
        at += !plain;
    }
    tap_ok(worst < 1e-4 && state.errors == (batched ? 24 * 24 : 540),
           "nothing is lost in 20 steps%s: %.2g", batched ? " of one square" : "",
           worst);
    powersgd_close(s);
    s = opened((accel_powersgd_t){ .no_feedback = true, .cold = true });
    state = powersgd_state_of(s);
    tap_ok(!state.error && !state.right && state.errors + state.rights == 0,
           "without feedback and warm start there is no state");
    powersgd_close(s);
}

static void test_resumed(bool cold)
{
    static float a[TOTAL], b[TOTAL];
    const accel_powersgd_t rule = { .start = -1, .rank = 2, .cold = cold };
    struct powersgd *s = opened(rule), *other = opened(rule);
    struct powersgd_state from, to;
    bool same = true;

    for (int t = 0; t < 3; t++) {
        fill_gradient(a, 0, t);
        powersgd_reduce(s, a, t, &twice, NULL);
    }
    from = powersgd_state_of(s);
    to = powersgd_state_of(other);
    memcpy(to.error, from.error, sizeof(float) * (size_t)from.errors);
    if (!cold)
        memcpy(to.right, from.right, sizeof(float) * (size_t)from.rights);
    for (int t = 3; t < 6; t++) {
        fill_gradient(a, 0, t);
        fill_gradient(b, 0, t);
        powersgd_reduce(s, a, t, &twice, NULL);
        powersgd_reduce(other, b, t, &twice, NULL);
        same = same && memcmp(a, b, sizeof(a)) == 0;
    }
    tap_ok(same, "resumed, it goes on to the bit%s", cold ? ", cold" : "");
    powersgd_close(s);
    powersgd_close(other);
}

/* A gradient of zeros must not leave factors of zeros behind. */
static void test_dead_columns(void)
{
    static float g[TOTAL], want[TOTAL];
    struct powersgd *s =
        opened((accel_powersgd_t){ .start = -1, .rank = 2, .no_feedback = true });

    for (int t = 0; t < 3; t++) {
        for (int i = 0; i < TOTAL; i++)
            want[i] = g[i] = t == 1 ? 0 : (float)((1 + i % 9) * (1 + i / 9));
        for (int i = 180; i < TOTAL; i++)
            want[i] = g[i] = 0;
        powersgd_reduce(s, g, t, &twice, NULL);
        tap_ok(distance(g, want) < 1e-4, "one direction of two, step %d", t);
    }
    powersgd_close(s);
}

/* What lies in a gap stays as it is, and changes nothing. */
static void test_gap(bool batched)
{
    enum { GAP = 7 };
    const struct powersgd_shape apart[] = { { 12, 9, GAP }, { 5, 1, 0 } };
    const struct powersgd_shape close[] = { { 12, 9, 0 }, { 5, 1, 0 } };
    const accel_powersgd_t rule = { .start = -1, .batched = batched };
    float g[12 * 9 + GAP + 5], want[12 * 9 + 5];
    struct powersgd *s = NULL, *other = NULL;
    bool same = true;

    powersgd_open(&s, be, &rule, 5, apart, 2, NULL);
    powersgd_open(&other, be, &rule, 5, close, 2, NULL);
    for (uint32_t t = 0; t < 3; t++) {
        for (uint32_t i = 0; i < 12 * 9 + 5; i++)
            g[i + (i < 12 * 9 ? 0 : GAP)] = want[i] = rig_sequence(t, i);
        for (int i = 0; i < GAP; i++)
            g[12 * 9 + i] = 1000;
        powersgd_reduce(s, g, t, &twice, NULL);
        powersgd_reduce(other, want, t, &twice, NULL);
        for (int i = 0; i < GAP; i++)
            same = same && g[12 * 9 + i] == 1000;
        same = same && !memcmp(g, want, sizeof(float[12 * 9])) &&
               !memcmp(g + 12 * 9 + GAP, want + 12 * 9, sizeof(float[5]));
    }
    tap_ok(same && powersgd_sizes(s).sent == powersgd_sizes(other).sent,
           "a gap is left alone%s", batched ? ", one square" : "");
    powersgd_close(s);
    powersgd_close(other);
}

/* A gradient that is not finite, here or on another rank, leaves no trace. */
static void test_infinite(bool batched, int at)
{
    static float g[TOTAL], want[TOTAL], error[24 * 24];
    struct powersgd *s = opened((accel_powersgd_t){ .start = -1, .batched = batched });
    struct powersgd_state state = powersgd_state_of(s);
    bool nan = true, good = true;

    fill_gradient(g, 0, 0);
    powersgd_reduce(s, g, 0, &twice, NULL);
    memcpy(error, state.error, sizeof(float) * (size_t)state.errors);
    fill_gradient(g, 0, 1);
    g[at] = INFINITY;
    powersgd_reduce(s, g, 1, &twice, NULL);
    for (int i = 0; i < TOTAL; i++)
        nan = nan && isnan(g[i]);
    tap_ok(nan && !memcmp(error, state.error, sizeof(float) * (size_t)state.errors),
           "an infinity at %d makes all NaN, and is not kept%s", at,
           batched ? ", one square" : "");
    fill_gradient(g, 0, 2);
    powersgd_reduce(s, g, 2, &twice, NULL);
    fill_gradient(want, 0, 2);
    for (int i = 0; i < TOTAL; i++)
        good = good && isfinite(g[i]);
    tap_ok(good && distance(g, want) < 10, "the next step is one like others");
    powersgd_close(s);
}

static accel_status_t break_off(void *user, float *x, int64_t n, accel_error_t *err)
{
    (void)x;
    (void)n;
    if (--*(int *)user > 0)
        return ACCEL_OK;
    return accel_error_set(err, ACCEL_EPEER, "gone", NULL);
}

static void test_errors(void)
{
    static const accel_powersgd_t bad[] = {
        { .rank = -1 }, { .least = -1 }, { .least = NAN }, { .least = INFINITY }
    };
    const struct powersgd_shape empty = { 4, 0, 0 };
    struct powersgd *s = NULL;
    accel_error_t err = { 0 };
    static float g[TOTAL];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(bad); i++)
        tap_ok(powersgd_open(&s, be, &bad[i], 0, shapes, SHAPES, &err) ==
                       ACCEL_EINVAL &&
                   !s,
               "%s", err.text);
    tap_ok(powersgd_open(&s, be, &(accel_powersgd_t){ 0 }, 0, &empty, 1, &err) ==
                   ACCEL_EINVAL &&
               !s,
           "%s", err.text);
    s = opened((accel_powersgd_t){ .start = -1 });
    for (int when = 1; when <= 3; when++) {
        int left = when;
        const struct powersgd_peers gone = { 2, break_off, &left };

        tap_is_int(powersgd_reduce(s, g, 0, &gone, &err),
                   when <= 2 ? ACCEL_EPEER : ACCEL_OK, "a peer is gone at sum %d",
                   when);
    }
    powersgd_close(s);
    powersgd_close(NULL);
    tap_ok(!powersgd_open(&s, be, &(accel_powersgd_t){ .batched = true, .start = -1 },
                          0, NULL, 0, NULL) &&
               !powersgd_reduce(s, g, 0, &twice, NULL),
           "no gradients at all");
    powersgd_close(s);
}

static size_t taken;

static accel_status_t counted_alloc(const struct backend *b, enum backend_memory kind,
                                    size_t bytes, void **memory_out, accel_error_t *err)
{
    taken += bytes;
    return be->alloc(b, kind, bytes, memory_out, err);
}

/* What the plan is told against what a step takes, sends and keeps; the same without
 * memory. */
static void test_sizes(void)
{
    static const struct powersgd_shape lists[][3] = {
        { { 20, 9, 0 }, { 1, 5, 0 }, { 12, 30, 7 } }, /* two of three are compressed */
        { { 9, 20, 0 },
          { 30, 12, 0 },
          { 17, 11, 0 } }, /* all are compressed, some transposed */
        { { 1, 5, 0 }, { 1, 1, 0 }, { 3, 1, 0 } }, /* none */
    };
    static float g[MOST];
    struct backend counted = *be;

    counted.alloc = counted_alloc;
    for (int k = 0; k < 3 * 16; k++) {
        const accel_powersgd_t rule = { .start = -1,
                                        .rank = 1 + k / 3 % 2,
                                        .batched = k / 6 % 2,
                                        .cold = k / 12 % 2,
                                        .no_feedback = k / 24 };
        const struct powersgd_shape *list = lists[k % 3];
        struct powersgd *s = NULL, *planned = NULL;
        struct powersgd_sizes z, same;
        struct powersgd_state state;
        int64_t total = 0;

        taken = 0;
        sent = 0;
        powersgd_open(&planned, NULL, &rule, 5, list, 3, NULL);
        powersgd_open(&s, &counted, &rule, 5, list, 3, NULL);
        z = powersgd_sizes(s);
        same = powersgd_sizes(planned);
        state = powersgd_state_of(s);
        for (int i = 0; i < 3; i++)
            total += list[i].rows * list[i].cols;
        for (int i = 0; i < MOST; i++)
            g[i] = rig_sequence(9, (uint32_t)i);
        powersgd_reduce(s, g, 0, &twice, NULL);
        tap_ok(
            z.total == total && z.sent == sent &&
                z.state == state.errors + state.rights &&
                z.memory * (int64_t)sizeof(float) == (int64_t)taken &&
                !memcmp(&z, &same, sizeof(z)),
            "list %d, rank %d%s%s%s: %lld elements, %lld sent, %lld kept, %lld taken",
            k % 3, rule.rank, rule.batched ? ", one square" : "",
            rule.cold ? ", cold" : "", rule.no_feedback ? ", no feedback" : "",
            (long long)z.total, (long long)z.sent, (long long)z.state,
            (long long)z.memory);
        powersgd_close(s);
        powersgd_close(planned);
    }
}

/* Factors of every matrix, step and seed are other draws: what equal gradients become
 * tells them apart. */
static void test_draws(void)
{
    enum { EACH = 12 * 9, MATRICES = 3, DRAWS = 4 * 3 * MATRICES };
    static const struct powersgd_shape alike[MATRICES] = { { 12, 9, 0 },
                                                           { 12, 9, 0 },
                                                           { 12, 9, 0 } };
    static const int64_t steps[] = { 0, 1, 2, 1 << 20 };
    static const uint64_t seeds[] = { 0, 1, (uint64_t)1 << 32 };
    static float g[DRAWS][EACH];
    int n = 0, equal = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(steps); i++)
        for (size_t k = 0; k < ACCEL_ARRAY_SIZE(seeds); k++, n += MATRICES) {
            const accel_powersgd_t rule = { .start = -1, .cold = true };
            struct powersgd *s = NULL;

            for (int e = 0; e < MATRICES * EACH; e++)
                g[n + e / EACH][e % EACH] = rig_sequence(4, (uint32_t)(e % EACH));
            powersgd_open(&s, be, &rule, seeds[k], alike, MATRICES, NULL);
            powersgd_reduce(s, g[n], steps[i], &twice, NULL);
            powersgd_close(s);
        }
    for (int a = 0; a < DRAWS; a++)
        for (int b = 0; b < a; b++)
            equal += !memcmp(g[a], g[b], sizeof(g[a]));
    tap_is_int(equal, 0, "every matrix, step and seed draws by itself");
}

/* ---- columns --------------------------------------------------------------------- */

static void test_columns(void)
{
    enum { ROWS = 40, COLS = 5 };
    float m[ROWS * COLS], twin[ROWS * COLS];
    double worst = 0;

    for (int i = 0; i < ROWS * COLS; i++)
        m[i] = rig_sequence(3, (uint32_t)i) + (i % COLS ? 0 : 100.0f);
    for (int i = 0; i < ROWS; i++)
        m[i * COLS + 3] = m[i * COLS] - 2 * m[i * COLS + 1];
    tap_is_int(orthogonalize(m, ROWS, COLS), 1,
               "a column that depends on others is zero");
    for (int a = 0; a < COLS; a++)
        for (int b = 0; b < COLS; b++) {
            double dot = 0;

            for (int i = 0; i < ROWS; i++)
                dot += (double)m[i * COLS + a] * m[i * COLS + b];
            worst = fmax(worst, fabs(dot - (a == b && a != 3)));
        }
    tap_ok(worst < 1e-6, "the others are orthonormal to %.2g", worst);
    memcpy(twin, m, sizeof(m));
    draw_columns(m, ROWS, COLS, 1, 2);
    for (int i = 0; i < ROWS * COLS; i++)
        worst = fmax(worst, i % COLS == 3 ? 0 : fabs((double)m[i] - twin[i]));
    tap_ok(worst < 1e-6 && m[3] != 0 && orthogonalize(m, ROWS, COLS) == 0,
           "a draw fills the one that was zero");
    m[7 * COLS + 1] = NAN;
    m[9 * COLS + 2] = INFINITY;
    tap_ok(orthogonalize(m, ROWS, COLS) >= 2 && m[1] == 0 && m[2] == 0,
           "what is no number is no direction");
}

int main(void)
{
    const char *src = getenv("ACCEL_SRC");
    char path[512];
    FILE *f;

    if (backend_cpu_open(&be, 1, NULL))
        return 1;
    snprintf(path, sizeof(path), "%s/tests/data/optim/powersgd.txt", src ? src : ".");
    f = fopen(path, "r");
    test_columns();
    for (int i = 0; i < 2; i++) {
        test_torch(f, i);
        test_feedback(i);
        test_resumed(i);
        test_gap(i);
    }
    if (f)
        fclose(f);
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        test_formulas(ranks, 1, false);
        test_formulas(ranks, 3, false);
        test_formulas(ranks, 2, true);
    }
    test_exact();
    test_dead_columns();
    test_infinite(false, 30);
    test_infinite(false, 182);
    test_infinite(true, 30);
    test_errors();
    test_sizes();
    test_draws();
    backend_close(be);
    return tap_done();
}
