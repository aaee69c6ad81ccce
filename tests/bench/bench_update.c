/* SPDX-License-Identifier: Apache-2.0
 *
 * Speed of what every step does to the shards: AdamW, gradient norm, narrowing to bf16;
 * and of drawing a sample. Beside each the bytes it moves, against memcpy in the same
 * run. Prints a table; best of several passes. No pass or fail.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "optim/optim.h"

#define N      ((size_t)16 << 20) /* elements: 64 MiB an array, beyond every cache */
#define PASSES 7

static float *p, *m, *v, *g;
static struct backend *be;

static void do_copy(void)
{
    memcpy(p, g, N * sizeof(float));
}

static void do_adamw(void)
{
    const accel_optimizer_t o = optim_defaults((accel_optimizer_t){ 0 });
    const struct optim_param own = { 1, 0.1f, false, -1 };
    const struct optim_step k = optim_step_of(&o, &own, 1e-4f, 3, 1.0f);

    be->update(be, &(struct update_span){ p, m, v, g, N, 0 }, 1, &k);
}

static void do_sumsq(void)
{
    static double sum;

    be->sumsq(be, &sum, &(struct span){ g, N }, 1);
}

static void do_narrow(void)
{
    be->narrow(be, m, g, N);
}

static void do_order(void)
{
    volatile int64_t x = 0;

    for (int64_t c = 0; c < 100000; c++)
        x = x + data_global_index(1, 12345677, c);
}

static double best_ms(void (*fn)(void))
{
    double best = 1e9;

    fn();
    for (int i = 0; i < PASSES; i++) {
        int64_t from = clock_ns();
        double ms;

        fn();
        ms = (double)(clock_ns() - from) * 1e-6;
        best = ms < best ? ms : best;
    }
    return best;
}

int main(void)
{
    static const struct {
        const char *name;
        void (*fn)(void);
        int bytes; /* read and written per element */
    } row[] = { { "memcpy, one thread", do_copy, 8 },
                { "AdamW, zeroing gradients", do_adamw, 32 },
                { "sum of squares", do_sumsq, 4 },
                { "narrow to bf16", do_narrow, 6 } };

    if (backend_cpu_open(&be, 0, NULL))
        return 1;
    p = calloc(N, sizeof(float));
    m = calloc(N, sizeof(float));
    v = calloc(N, sizeof(float));
    g = malloc(N * sizeof(float));
    if (!p || !m || !v || !g)
        return 1;
    for (size_t i = 0; i < N; i++)
        g[i] = (float)(i % 1000) * 1e-4f - 0.05f;
    printf("%-28s %10s %8s\n", "16 Mi elements", "ms", "GB/s");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(row); i++) {
        double ms = best_ms(row[i].fn);

        printf("%-28s %10.2f %8.1f\n", row[i].name, ms,
               (double)N * row[i].bytes / ms * 1e-6);
    }
    printf("%-28s %10.0f ns each\n", "place in the sample order",
           best_ms(do_order) * 1e6 / 100000);
    free(p);
    free(m);
    free(v);
    free(g);
    backend_close(be);
    return 0;
}
