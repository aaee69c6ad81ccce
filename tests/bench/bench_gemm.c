/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix products of GPT-2 124M and of a Llama, each alone: as the CPU backend
 * multiplies float32, bfloat16, float16 and int8, against one plain OpenBLAS call of
 * float32 with its own threads, in turns. Medians, and medians of the ratios of one
 * round: OpenBLAS's time over ours, so 1 is level and more is faster.
 *     bench_gemm [-t THREADS] [-n ROUNDS] [-i avx512|avx2|generic] [-w] [ROWS ...]
 *     bench_gemm -c [-t THREADS] [-n ROUNDS]
 * -c: convolutions instead. -w: bfloat16 is widened, as where its instruction is missing. OPENBLAS_CORETYPE
 * names the kernel of OpenBLAS to compare with.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/cpu/conv.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/panels.h"
#include "numbers/floats.h"
#include "tests/bench/blas.h"
#include "tests/bench/median.h"

enum { TYPES = 4, ROUNDS_MOST = 101 };
static const accel_dtype_t types[TYPES] = { ACCEL_F32, ACCEL_BF16, ACCEL_F16,
                                            ACCEL_I8 };

static void *need(int64_t elems)
{
    void *p = aligned_alloc(64, (size_t)(elems + 15) / 16 * 64);

    if (!p)
        exit(1);
    return p;
}

/* `elems` numbers of `type`. */
static void *numbers(accel_dtype_t type, int64_t elems)
{
    float *p = need(elems);

    for (int64_t i = 0; i < elems; i++)
        p[i] = (float)(i % 13) * 0.125f - 0.75f;
    if (type != ACCEL_I8)
        floats_narrow(p, type, p, (size_t)elems);
    else
        for (int64_t i = 0; i < elems; i++)
            ((int8_t *)p)[i] = (int8_t)(i % 13 - 6);
    return p;
}

/* The product in each dtype; result float32. */
static void products_open(struct gemm p, struct gemm typed[TYPES])
{
    p.lda = p.trans_a ? p.m : p.k;
    p.ldb = p.trans_b ? p.k : p.n;
    p.ldc = p.n;
    p.c_type = ACCEL_F32;
    p.c = numbers(ACCEL_F32, p.m * p.n);
    for (int t = 0; t < TYPES; t++) {
        typed[t] = p;
        typed[t].a_type = typed[t].b_type = types[t];
        typed[t].a = numbers(types[t], p.m * p.k);
        typed[t].b = numbers(types[t], p.k * p.n);
    }
}

static void products_close(struct gemm typed[TYPES])
{
    for (int t = 0; t < TYPES; t++) {
        free((void *)(uintptr_t)typed[t].a);
        free((void *)(uintptr_t)typed[t].b);
    }
    free(typed[0].c);
}

/* By the clock; of one thread the processor's time, which other programs disturb
 * less. */
static double bench_ns(const struct backend *be)
{
    struct timespec t;

    clock_gettime(be->threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double time_of(const struct backend *be, const struct gemm *p, bool blas)
{
    double from = bench_ns(be);

    if (!blas)
        be->gemm(be, p);
    else if (!blas_product(p, be->threads))
        exit(69);
    return bench_ns(be) - from;
}

static void bench_product(const struct backend *be, const char *name, struct gemm p,
                          int rounds)
{
    double ratio[TYPES][ROUNDS_MOST], blas[ROUNDS_MOST], work;
    struct gemm typed[TYPES];

    products_open(p, typed);
    for (int t = 0; t < TYPES; t++)
        time_of(be, &typed[t], false);
    for (int i = 0; i < rounds; i++) {
        blas[i] = time_of(be, &typed[0], true);
        for (int t = 0; t < TYPES; t++)
            ratio[t][i] = blas[i] / time_of(be, &typed[t], false);
    }
    work = 2.0 * (double)(p.m * p.n * p.k);
    printf("%-8s %5d %6d %6d  %9.1f %8.2f %8.2f %8.2f %8.2f\n", name, (int)p.m,
           (int)p.n, (int)p.k, work / median(blas, rounds), median(ratio[0], rounds),
           median(ratio[1], rounds), median(ratio[2], rounds),
           median(ratio[3], rounds));
    fflush(stdout);
    products_close(typed);
}

/* The three products of every weight [out, in]. */
static void bench_rows(const struct backend *be, int rows, int rounds)
{
    static const int shape[][2] = {
        { 2304, 768 },  { 768, 768 },   { 3072, 768 },  { 768, 3072 },
        { 50304, 768 }, { 2048, 2048 }, { 5632, 2048 }, { 2048, 5632 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shape); i++) {
        int out = shape[i][0], in = shape[i][1];

        bench_product(be, "forward",
                      (struct gemm){ .trans_b = true, .m = rows, .n = out, .k = in },
                      rounds);
        bench_product(be, "dx", (struct gemm){ .m = rows, .n = in, .k = out }, rounds);
        bench_product(
            be, "dweight",
            (struct gemm){ .trans_a = true, .m = out, .n = in, .k = rows, .add = true },
            rounds);
    }
}

/* Convolutions of a batch of 8: forward, dx and dweight, medians in ms. To compare two
 * builds, run them in turns. */
static void bench_conv(const struct backend *be, const struct conv *p, int rounds)
{
    const struct conv_plan plan = conv_plan_of(p, true);
    int64_t to = p->batch * p->outputs * plan.places;
    int64_t from = p->batch * p->channels * p->height * p->width;
    float *x = numbers(ACCEL_F32, from), *weight = numbers(ACCEL_F32, plan.weights);
    float *y = numbers(ACCEL_F32, to), *dx = need(from), *dw = need(plan.weights);
    void *scratch = need((int64_t)be->conv_scratch(be, p, true) / 4);
    const struct conv_forward f = { .x = x, .weight = weight, .y = y };
    const struct conv_backward of_x = { .dy = y, .x = x, .weight = weight, .dx = dx };
    const struct conv_backward of_w = {
        .dy = y, .x = x, .weight = weight, .dweight = dw
    };
    double ms[3][ROUNDS_MOST];

    for (int i = -1; i < rounds; i++) {
        double at[4] = { bench_ns(be) };

        be->conv(be, p, &f, scratch);
        at[1] = bench_ns(be);
        be->conv_grad(be, p, &of_x, scratch);
        at[2] = bench_ns(be);
        be->conv_grad(be, p, &of_w, scratch);
        at[3] = bench_ns(be);
        /* the first round warms up */
        for (int k = 0; k < 3 && i >= 0; k++)
            ms[k][i] = (at[k + 1] - at[k]) / 1e6;
    }
    printf("%3d -> %4d, %3d x %3d, %2d x %2d by %d %9.3f %9.3f %9.3f\n",
           (int)p->channels, (int)p->outputs, (int)p->height, (int)p->width,
           (int)p->kernel_h, (int)p->kernel_w, (int)p->stride, median(ms[0], rounds),
           median(ms[1], rounds), median(ms[2], rounds));
    fflush(stdout);
    free(x);
    free(weight);
    free(y);
    free(dx);
    free(dw);
    free(scratch);
}

/* Layers of ResNet-50, the patches of a ViT, and a small network's. */
static void bench_convs(const struct backend *be, int rounds)
{
    static const int shape[][6] = {
        /* channels, outputs, side, kernel, stride, pad */
        { 3, 64, 224, 7, 2, 3 },    { 64, 64, 56, 1, 1, 0 },
        { 64, 64, 56, 3, 1, 1 },    { 64, 256, 56, 1, 1, 0 },
        { 128, 128, 28, 3, 1, 1 },  { 256, 512, 56, 1, 2, 0 },
        { 256, 256, 14, 3, 1, 1 },  { 1024, 256, 14, 1, 1, 0 },
        { 512, 512, 7, 3, 1, 1 },   { 512, 2048, 7, 1, 1, 0 },
        { 3, 768, 224, 16, 16, 0 }, { 1, 8, 28, 3, 1, 1 },
        { 8, 16, 14, 3, 1, 1 },     { 1, 32, 28, 5, 1, 2 },
        { 32, 64, 14, 5, 1, 2 },
    };

    printf("convolution                       forward        dx   dweight\n");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shape); i++) {
        const int *s = shape[i], side = (s[2] + 2 * s[5] - s[3]) / s[4] + 1;

        bench_conv(be,
                   &(struct conv){ ACCEL_F32, 8, s[0], s[2], s[2], s[1], s[3], s[3],
                                   side, side, s[4], s[5] },
                   rounds);
    }
}

/* Another instruction set than the widest; false: not of this CPU. */
static bool choose_isa(struct cpu_state *state, const char *word)
{
    static const char *const name[] = { "generic", "avx2", "avx512" };
    int isa = 0;

    while (isa < 3 && strcmp(name[isa], word) != 0)
        isa++;
    if (isa > (int)tile_isa())
        return false;
    state->kernel = panel_kernel_of((enum tile_isa)isa);
    return true;
}

int main(int argc, char **argv)
{
    const char *isa = NULL;
    int threads = 0, rounds = 7, c;
    bool widen = false, convs = false;
    struct backend *be;

    while ((c = getopt(argc, argv, "t:n:i:wc")) != -1) {
        if (c == 't')
            threads = atoi(optarg);
        else if (c == 'n')
            rounds = atoi(optarg);
        else if (c == 'i')
            isa = optarg;
        else if (c == 'w')
            widen = true;
        else if (c == 'c')
            convs = true;
        else
            return 64;
    }
    if (threads > 0)
        omp_set_num_threads(threads);
    if (rounds < 1 || rounds > ROUNDS_MOST || backend_cpu_open(&be, threads, NULL))
        return 64;
    if (widen)
        ((struct cpu_state *)be->state)->bf16_products = false;
    if (isa && !choose_isa(be->state, isa))
        return 64;
    printf("%s, products with %s, %d threads, medians of %d\n", be->isa,
           isa ? isa : "the widest", be->threads, rounds);
    if (convs) {
        bench_convs(be, rounds);
        backend_close(be);
        return 0;
    }
    printf("product      m      n      k  BLAS GF/s  float32 bfloat16  float16     "
           "int8\n");
    if (optind == argc)
        bench_rows(be, 256, rounds);
    for (; optind < argc; optind++) {
        int rows = atoi(argv[optind]);

        if (rows < 1)
            return 64;
        bench_rows(be, rows, rounds);
    }
    backend_close(be);
    return 0;
}
