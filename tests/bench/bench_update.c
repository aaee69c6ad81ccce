/* SPDX-License-Identifier: Apache-2.0
 *
 * Speed of what every step does to the shards: AdamW and Lion with moments
 * of both types, gradient norm, narrowing to bf16;
 * and of drawing a sample. Beside each the bytes it moves, against memcpy in the same
 * run. Prints a table of medians and of the best of several passes. No pass or fail.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "numbers/scaled.h"
#include "optim/optim.h"
#include "tests/bench/median.h"

#define N      ((size_t)16 << 20) /* elements: 64 MiB an array, beyond every cache */
#define PASSES 31

static float *p, *m, *v, *g;
/* the same in fp8, with their scales behind them */
static struct moments m8, v8;
static struct backend *be;

static void do_copy(void)
{
    memcpy(p, g, N * sizeof(float));
}

static void step(accel_optimizer_kind_t kind, struct moments first,
                 struct moments second)
{
    const accel_optimizer_t o = optim_defaults((accel_optimizer_t){ .kind = kind });
    const struct optim_param own = { 1, 0.1f, false, -1 };
    const struct optim_step k = optim_step_of(&o, &own, 1e-4f, 3, 1.0f);

    be->update(be,
               &(struct update_span){ .p = p, .m = first, .v = second, .g = g, .n = N },
               1, &k);
}

static void do_adamw(void)
{
    step(ACCEL_ADAMW, (struct moments){ .data = m }, (struct moments){ .data = v });
}

static void do_adamw_8bit(void)
{
    step(ACCEL_ADAMW, m8, v8);
}

static void do_lion(void)
{
    step(ACCEL_LION, (struct moments){ .data = m }, (struct moments){ 0 });
}

static void do_lion_8bit(void)
{
    step(ACCEL_LION, m8, (struct moments){ 0 });
}

/* Masters and state that rest with scales. */
static void do_adamw_scaled(void)
{
    const accel_optimizer_t o =
        optim_defaults((accel_optimizer_t){ .kind = ACCEL_ADAMW });
    const struct optim_param own = { 1, 0.1f, false, -1 };
    const struct optim_step k = optim_step_of(&o, &own, 1e-4f, 3, 1.0f);
    const struct scaled_arrays scaled = {
        .master = scaled_in(p, N, ACCEL_F16),
        .m = scaled_in(m8.data, N, ACCEL_F8E4M3),
        .v = scaled_in(v, N, ACCEL_F16),
    };

    be->update(be, &(struct update_span){ .scaled = &scaled, .g = g, .n = N }, 1, &k);
}

static void do_gradients(void)
{
    be->scaled_narrow_sum(be, scaled_in(m, N, ACCEL_F8E4M3), g, N, 0, 2);
}

static void do_wire(void)
{
    wire_narrow(m, g, N, ACCEL_F8E4M3);
    wire_widen(v, m, N, ACCEL_F8E4M3);
}

static void do_sumsq(void)
{
    static double sum;

    be->sumsq(be, &sum, &(struct span){ g, N }, 1);
}

static void do_narrow(void)
{
    be->narrow(be, m, ACCEL_BF16, g, N);
}

static void do_order(void)
{
    volatile int64_t x = 0;

    for (int64_t c = 0; c < 100000; c++)
        x = x + data_permute(1, c / 12345677, 12345677, c % 12345677);
}

static double once_ms(void (*fn)(void))
{
    const int64_t from = clock_ns();

    fn();
    return (double)(clock_ns() - from) * 1e-6;
}

static struct moments moments_new(void)
{
    char *data = calloc(N + moment_scales(N) * sizeof(uint16_t), 1);

    return (struct moments){ data, (uint16_t *)(void *)(data + N) };
}

int main(void)
{
    static const struct {
        const char *name;
        void (*fn)(void);
        int bytes; /* read and written per element */
    } row[] = { { "memcpy, one thread", do_copy, 8 },
                { "AdamW, zeroing gradients", do_adamw, 32 },
                { "AdamW, 8-bit moments", do_adamw_8bit, 20 },
                { "Lion", do_lion, 24 },
                { "Lion, 8-bit moments", do_lion_8bit, 18 },
                { "AdamW, all with scales", do_adamw_scaled, 18 },
                { "gradients to e4m3", do_gradients, 5 },
                { "e4m3 on the wire and back", do_wire, 10 },
                { "sum of squares", do_sumsq, 4 },
                { "narrow to bf16", do_narrow, 6 } };

    double ms[ACCEL_ARRAY_SIZE(row)][PASSES], order = 0;

    if (backend_cpu_open(&be, 0, NULL))
        return 1;
    p = calloc(N, sizeof(float));
    m = calloc(N, sizeof(float));
    v = calloc(N, sizeof(float));
    g = malloc(N * sizeof(float));
    m8 = moments_new();
    v8 = moments_new();
    if (!p || !m || !v || !g || !m8.data || !v8.data)
        return 1;
    for (size_t i = 0; i < N; i++)
        g[i] = (float)(i % 1000) * 1e-4f - 0.05f;
    printf("%-28s %10s %10s %8s\n", "16 Mi elements", "median, ms", "best, ms", "GB/s");
    /* in turns, so that all rows see the same machine; the first turn is a warm-up */
    for (int turn = -1; turn < PASSES; turn++)
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(row); i++)
            ms[i][turn < 0 ? 0 : turn] = once_ms(row[i].fn);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(row); i++) {
        median_sort(ms[i], PASSES);
        printf("%-28s %10.2f %10.2f %8.1f\n", row[i].name, ms[i][PASSES / 2], ms[i][0],
               (double)N * row[i].bytes / ms[i][PASSES / 2] * 1e-6);
    }
    for (int turn = 0; turn <= PASSES; turn++) {
        const double once = once_ms(do_order);

        order = turn == 0 || once < order ? once : order;
    }
    printf("%-28s %10.0f ns each\n", "place in the sample order", order * 1e6 / 100000);
    free(p);
    free(m);
    free(v);
    free(g);
    free(m8.data);
    free(v8.data);
    backend_close(be);
    return 0;
}
