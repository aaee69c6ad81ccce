/* SPDX-License-Identifier: Apache-2.0
 *
 * Every matrix product of GPT-2 124M, alone: as the CPU backend cuts it into tiles,
 * float32 and bfloat16, against one plain OpenBLAS call.  bench_gemm [threads]
 * [repeats] [rows]
 */
#include <cblas.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), by_value);
    return v[n / 2];
}

static void plain_blas(const struct gemm *p)
{
    cblas_sgemm(CblasRowMajor, p->trans_a ? CblasTrans : CblasNoTrans,
                p->trans_b ? CblasTrans : CblasNoTrans, (int)p->m, (int)p->n, (int)p->k,
                1.0f, p->a, (int)p->lda, p->b, (int)p->ldb, p->add ? 1.0f : 0.0f, p->c,
                (int)p->ldc);
}

static double gemm_rate(const struct backend *be, const struct gemm *p, bool plain,
                        int repeats)
{
    double *ms = calloc((size_t)repeats, sizeof(*ms)), rate;

    for (int i = 0; i < repeats; i++) {
        int64_t start = clock_ns();

        if (plain)
            plain_blas(p);
        else
            be->gemm(be, p);
        ms[i] = (double)(clock_ns() - start);
    }
    rate = 2.0 * (double)(p->m * p->n * p->k) / median(ms, repeats);
    free(ms);
    return rate;
}

/* One product with operands of `type` (plain BLAS always in float32), result
 * float32. */
static void bench_gemm(const struct backend *be, const char *name, struct gemm p,
                       int repeats)
{
    size_t a = (size_t)(p.m * p.k), b = (size_t)(p.k * p.n), c = (size_t)(p.m * p.n);
    float *mem = calloc(a + b + c, sizeof(*mem));
    double blas, tiles, half;

    if (!mem)
        exit(1);
    for (size_t i = 0; i < a + b; i++)
        mem[i] = (float)(i % 13) * 0.125f - 0.75f;
    p.a = mem;
    p.b = mem + a;
    p.c = mem + a + b;
    p.a_type = p.b_type = p.c_type = ACCEL_F32;
    p.lda = p.trans_a ? p.m : p.k;
    p.ldb = p.trans_b ? p.k : p.n;
    p.ldc = p.n;
    blas = gemm_rate(be, &p, true, repeats);
    tiles = gemm_rate(be, &p, false, repeats);
    memset(mem, 0, (a + b) * sizeof(*mem)); /* valid bfloat16 too */
    p.a_type = p.b_type = ACCEL_BF16;
    half = gemm_rate(be, &p, false, repeats);
    printf("%-10s %5d %6d %6d  %7.1f  %7.1f  %5.2f  %7.1f\n", name, (int)p.m, (int)p.n,
           (int)p.k, blas, tiles, tiles / blas, half);
    free(mem);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 0, repeats = argc > 2 ? atoi(argv[2]) : 7;
    static const int shape[][2] = {
        { 2304, 768 }, { 768, 768 }, { 3072, 768 }, { 768, 3072 }, { 50304, 768 }
    };
    struct backend *be;
    int rows = argc > 3 ? atoi(argv[3]) : 256;

    if (threads > 0)
        omp_set_num_threads(threads);
    if (repeats < 1 || rows < 1 || backend_cpu_open(&be, threads, NULL))
        return 1;
    printf("isa %s, %d threads, medians of %d\n", be->isa, be->threads, repeats);
    printf("product        m      n      k  BLAS GF/s  tiles  ratio  from bf16\n");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shape); i++) {
        int o = shape[i][0], in = shape[i][1];

        bench_gemm(be, "forward",
                   (struct gemm){ .trans_b = true, .m = rows, .n = o, .k = in },
                   repeats);
        bench_gemm(be, "dx", (struct gemm){ .m = rows, .n = in, .k = o }, repeats);
        bench_gemm(
            be, "dweight",
            (struct gemm){ .trans_a = true, .m = o, .n = in, .k = rows, .add = true },
            repeats);
    }
    backend_close(be);
    return 0;
}
