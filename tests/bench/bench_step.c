/* SPDX-License-Identifier: Apache-2.0
 *
 * Time of the compute core alone: forward and backward of GPT-2 124M at B4 T64 in float32
 * and bfloat16, and every matrix product of it against one plain OpenBLAS call.
 *     bench_step [threads] [repeats]
 */
#include <cblas.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "nn/models/gpt2.h"
#include "tests/unit/resident.h"

#define BATCH 4
#define TIME  64

static const accel_gpt2_t gpt2_124m = {
    .layers = 12, .heads = 12, .width = 768, .context = 1024, .vocab = 50304
};

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

static int64_t one_step(struct graph *g, accel_module_t *model, int64_t *forward_ns)
{
    int64_t dims[2] = { BATCH, TIME }, start, middle;
    accel_tensor_t *in[2], *loss;
    accel_error_t err = { 0 };

    graph_reset(g);
    for (int k = 0; k < 2; k++) {
        in[k] = graph_tensor(g, ACCEL_I32, 2, dims);
        for (int i = 0; in[k] && i < BATCH * TIME; i++)
            ((int32_t *)in[k]->data)[i] = (i + k) * 7919 % gpt2_124m.vocab;
    }
    start = clock_ns();
    loss = accel_call(model, in, 2);
    middle = clock_ns();
    if (graph_backward(g, loss, 1.0f, &err)) {
        fprintf(stderr, "%s: %s\n", err.where, err.text);
        exit(1);
    }
    *forward_ns = middle - start;
    return clock_ns() - start;
}

static void bench_model(struct backend *be, accel_dtype_t compute, int repeats)
{
    double *step = calloc((size_t)repeats, sizeof(*step));
    double *forward = calloc((size_t)repeats, sizeof(*forward)), params = 0, s;
    struct units units;
    struct resident r;
    accel_module_t *model;
    struct graph g;
    int64_t ns;
    char mem[32];

    if (graph_open(&g, be, compute, false, NULL))
        exit(1);
    model = gpt2_new(&g, &gpt2_124m, NULL);
    if (!model || nn_units_build(model, true, "", &units, NULL) ||
        resident_open(&r, &units, compute, 1))
        exit(1);
    g.residency = resident_residency(&r);
    one_step(&g, model, &ns); /* touches memory, loads caches */
    for (int i = 0; i < repeats; i++) {
        step[i] = (double)one_step(&g, model, &ns) / 1e6;
        forward[i] = (double)ns / 1e6;
    }
    for (int u = 0; u < units.count; u++)
        params += (double)units.unit[u].elems;
    params -=
        (double)gpt2_124m.context * gpt2_124m.width; /* looked up, not multiplied */
    s = median(step, repeats);
    printf("%-9s forward %7.0f ms  step %7.0f ms (best %.0f)  %6.0f tok/s  %5.1f GF/s  "
           "activations %s\n",
           accel_dtype_name(compute), median(forward, repeats), s, step[0],
           BATCH * TIME * 1e3 / s, 6.0 * params * BATCH * TIME / s / 1e6,
           format_bytes((double)arena_peak_bytes(g.arena), mem, sizeof(mem)));
    resident_close(&r);
    units_free(&units);
    nn_module_free(model);
    graph_close(&g);
    free(step);
    free(forward);
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

/* One product with operands of `type` (plain BLAS always in float32), result float32. */
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
    int rows = BATCH * TIME;

    if (threads > 0)
        omp_set_num_threads(threads);
    if (repeats < 1 || backend_cpu_open(&be, threads, NULL))
        return 1;
    printf("isa %s, %d threads, medians of %d\n", be->isa, be->threads, repeats);
    printf("GPT-2 124M, batch %d, sequence %d, forward and backward\n", BATCH, TIME);
    bench_model(be, ACCEL_F32, repeats);
    bench_model(be, ACCEL_BF16, repeats);
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
