/* SPDX-License-Identifier: Apache-2.0
 *
 * Time of the attention kernel, forward and backward, on fused q, k, v of GPT-2's
 * heads. Reads lines "B T" and answers each with two times in milliseconds, so that
 * attention_torch.py can run it in turns with torch.
 *     bench_attention [threads]
 */
#include <stdio.h>
#include <stdlib.h>

#include "backend/device.h"
#include "common/common.h"

#define HEADS 12
#define WIDTH 64

/* qkv is filled once; the kernel's time does not depend on the values. */
static void measure(const struct backend *be, int64_t batch, int64_t time, double ms[2])
{
    int64_t cols = HEADS * WIDTH, row = 3 * cols, n = batch * time * row;
    float *qkv = calloc((size_t)n, sizeof(*qkv)), *dqkv = calloc((size_t)n, 4);
    float *out = calloc((size_t)n / 3, 4), *dout = calloc((size_t)n / 3, 4);
    float *lse = calloc((size_t)(batch * HEADS * time), 4);
    struct attention p = { .batch = batch,
                           .queries = time,
                           .keys = time,
                           .heads = HEADS,
                           .kv_heads = HEADS,
                           .head_width = WIDTH,
                           .q = { qkv, time * row, row, WIDTH },
                           .k = { qkv + cols, time * row, row, WIDTH },
                           .v = { qkv + 2 * cols, time * row, row, WIDTH },
                           .causal = true,
                           .scale = 0.125f };
    struct attention_grads g = { .out = out,
                                 .dout = dout,
                                 .lse = lse,
                                 .dq = { dqkv, time * row, row, WIDTH, false },
                                 .dk = { dqkv + cols, time * row, row, WIDTH, false },
                                 .dv = { dqkv + 2 * cols, time * row, row, WIDTH,
                                         false } };
    void *scratch = malloc(be->attention_scratch(be, &p, true));

    for (int64_t i = 0; i < n; i++)
        qkv[i] = (float)(i * 7919 % 1009) / 1009.0f - 0.5f;
    for (int64_t i = 0; i < n / 3; i++)
        dout[i] = (float)(i * 104729 % 997) / 997.0f - 0.5f;
    for (int i = 0; i < 2; i++) { /* the first round touches the memory */
        int64_t start = clock_ns(), middle;

        be->attention(be, &p, out, lse, scratch);
        middle = clock_ns();
        be->attention_grad(be, &p, &g, scratch);
        ms[0] = (double)(middle - start) / 1e6;
        ms[1] = (double)(clock_ns() - middle) / 1e6;
    }
    free(scratch);
    free(lse);
    free(dout);
    free(out);
    free(dqkv);
    free(qkv);
}

int main(int argc, char **argv)
{
    struct backend *be;
    long batch, time;
    double ms[2];

    if (backend_cpu_open(&be, argc > 1 ? atoi(argv[1]) : 0, NULL))
        return 1;
    printf("%s, %d threads\n", be->isa, be->threads);
    fflush(stdout);
    while (scanf("%ld %ld", &batch, &time) == 2 && batch > 0 && time > 0) {
        measure(be, batch, time, ms);
        printf("%.4f %.4f\n", ms[0], ms[1]);
        fflush(stdout);
    }
    backend_close(be);
    return 0;
}
