/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on the GPU, forward and backward, on the heads of GPT-2 and Llama-8B: the
 * path that the backend takes, cuDNN where it fits, beside the forms of the own kernels
 * (ACCEL_CUDA_ATTENTION).
 *     bench_cuda_attention [device]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/device.h"
#include "backend/cuda_load.h"
#include "common/common.h"
#include "tests/bench/median.h"

/* A round is several calls in a row: the host launches one while another one runs, and
 * waits once. */
enum { ROUNDS = 11, CALLS = 10 };

/* Both widths of heads that wgmma has, with short and long sequences. cuDNN's backward
 * needs memory that grows with the batch: what it takes in a small one it may refuse in
 * the batch of a training. */
static const struct shape {
    const char *name;
    int batch, time, heads, kv_heads, width;
} shapes[] = {
    { "GPT-2 124M", 8, 1024, 12, 12, 64 }, { "GPT-2 124M", 32, 1024, 12, 12, 64 },
    { "GPT-2 124M", 1, 8192, 12, 12, 64 }, { "GPT-2 1558M", 8, 1024, 25, 25, 64 },
    { "Llama-8B", 8, 1024, 32, 8, 128 },   { "Llama-8B", 1, 2048, 32, 8, 128 },
    { "Llama-8B", 1, 8192, 32, 8, 128 },   { "Llama-8B decode", 1, 8192, 32, 8, 128 },
};

struct place {
    void *qkv, *dqkv, *out, *dout, *scratch;
    float *lse;
};

static void *room(const struct backend *be, size_t bytes)
{
    accel_error_t err = { 0 };
    void *p = NULL;

    if (be->alloc(be, MEMORY_BUFFERS, bytes, &p, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return p;
}

/* Values of about one; the kernels' time does not depend on them. */
static void fill(const struct backend *be, void *to, int64_t n)
{
    float *x = malloc((size_t)n * sizeof(*x)), *wide = room(be, (size_t)n * sizeof(*x));

    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(i * 7919 % 1009) / 504.5f - 1.0f;
    be->from_host(be, wide, x, (size_t)n * sizeof(*x));
    be->narrow(be, to, ACCEL_BF16, wide, n);
    be->sync(be, NULL);
    be->free(be, wide);
    free(x);
}

static struct heads part(const struct place *m, int64_t time, int64_t row,
                         int64_t first, int64_t width)
{
    return (struct heads){ (char *)m->qkv + 2 * first, time * row, row, width };
}

static struct heads_out part_out(const struct place *m, struct heads h)
{
    return (struct heads_out){ (char *)m->dqkv +
                                   ((const char *)h.data - (const char *)m->qkv),
                               h.sample, h.row, h.head, false };
}

static struct place open_place(const struct backend *be, const struct shape *c)
{
    int64_t all = (int64_t)c->batch * c->time, cols = c->heads * c->width;
    int64_t row = (c->heads + 2 * c->kv_heads) * c->width;
    struct place m;

    m.qkv = room(be, (size_t)(all * row) * 2);
    m.dqkv = room(be, (size_t)(all * row) * 2);
    m.out = room(be, (size_t)(all * cols) * 2);
    m.dout = room(be, (size_t)(all * cols) * 2);
    m.lse = room(be, (size_t)(all * c->heads) * sizeof(float));
    fill(be, m.qkv, all * row);
    fill(be, m.dout, all * cols);
    return m;
}

static void close_place(const struct backend *be, struct place *m)
{
    be->free(be, m->qkv);
    be->free(be, m->dqkv);
    be->free(be, m->out);
    be->free(be, m->dout);
    be->free(be, m->lse);
}

static struct attention describe(const struct place *m, const struct shape *c,
                                 bool decode)
{
    int64_t d = c->width, row = (c->heads + 2 * c->kv_heads) * d;

    return (struct attention){
        .type = ACCEL_BF16,
        .batch = c->batch,
        .queries = decode ? 1 : c->time,
        .keys = c->time,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_width = d,
        .q = part(m, c->time, row, 0, d),
        .k = part(m, c->time, row, c->heads * d, d),
        .v = part(m, c->time, row, (c->heads + c->kv_heads) * d, d),
        .causal = true,
        .offset = decode ? c->time - 1 : 0,
        .scale = 1.0f / sqrtf((float)d),
    };
}

/* Milliseconds of one call, the median of rounds; the first one makes plans. */
static double median_ms(const struct backend *be, const struct attention *p,
                        const struct place *m, const struct attention_grads *g)
{
    double ms[ROUNDS];

    for (int i = -2; i < ROUNDS; i++) {
        int64_t start = clock_ns();

        for (int call = 0; call < CALLS; call++)
            if (g)
                be->attention_grad(be, p, g, m->scratch);
            else
                be->attention(be, p, m->out, m->lse, m->scratch);
        be->sync(be, NULL);
        if (i >= 0)
            ms[i] = (double)(clock_ns() - start) / 1e6 / CALLS;
    }
    return median(ms, ROUNDS);
}

/* A causal product of scores is half a square; the backward makes five for the two. */
static void report(const char *name, const char *what, const struct attention *p,
                   double forward, double backward)
{
    double keys = p->queries == 1 ? (double)p->keys : (double)p->keys / 2;
    double flops =
        4.0 * (double)(p->batch * p->heads * p->queries) * keys * (double)p->head_width;

    printf("%-15s %2lldx%-4lld D %-3lld %-9s forward %8.3f ms %6.1f TFLOP/s", name,
           (long long)p->batch, (long long)p->keys, (long long)p->head_width, what,
           forward, flops / forward / 1e9);
    if (backward > 0)
        printf("  backward %8.3f ms %6.1f TFLOP/s", backward,
               2.5 * flops / backward / 1e9);
    printf("\n");
}

static void measure(const struct backend *be, const struct shape *c, const char *form)
{
    const bool decode = c == &shapes[ACCEL_ARRAY_SIZE(shapes) - 1];
    struct place m = open_place(be, c);
    struct attention p = describe(&m, c, decode);
    struct attention_grads g = { .out = m.out,
                                 .dout = m.dout,
                                 .lse = m.lse,
                                 .dq = part_out(&m, p.q),
                                 .dk = part_out(&m, p.k),
                                 .dv = part_out(&m, p.v) };
    double forward, backward = 0;

    m.scratch = room(be, be->attention_scratch(be, &p, !decode));
    forward = median_ms(be, &p, &m, NULL);
    if (!decode)
        backward = median_ms(be, &p, &m, &g);
    report(c->name, form, &p, forward, backward);
    be->free(be, m.scratch);
    close_place(be, &m);
}

/* All shapes in one form, on a device opened for it. False: it does not open. */
static bool measure_form(int device, const char *form)
{
    accel_error_t err = { 0 };
    struct backend *be;

    setenv("ACCEL_CUDA_ATTENTION", form, 1);
    if (backend_cuda_open(&be, device, &err)) {
        fprintf(stderr, "%s\n%s\n", err.text, err.hint);
        return false;
    }
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shapes); i++)
        measure(be, &shapes[i], form);
    printf("%s: %s\n", be->name, be->isa);
    backend_close(be);
    return true;
}

int main(int argc, char **argv)
{
    /* any: as the backend chooses. A form differs from the one before it in one thing:
     * cuDNN, wgmma, five products of seven. */
    static const char *const forms[] = { "any", "own", "mma", "five", "seven" };

    /* a run that is stopped has printed what it measured */
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(forms); i++)
        if (!measure_form(argc > 1 ? atoi(argv[1]) : 0, forms[i]))
            return 1;
    return 0;
}
