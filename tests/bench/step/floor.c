/* SPDX-License-Identifier: Apache-2.0
 *
 * See floor.h.
 */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/blas.h"
#include "tests/bench/step/floor.h"

enum { TRIES = 8 };

double floor_product_ns(const struct gemm *p, int threads)
{
    size_t a = (size_t)(p->m * p->k), b = (size_t)(p->k * p->n);
    size_t c = (size_t)(p->m * p->n);
    float *mem = malloc((a + b + c) * sizeof(*mem));
    struct gemm plain = *p;
    double best = 1e18;

    if (!mem)
        return best;
    for (size_t i = 0; i < a + b + c; i++)
        mem[i] = (float)(i % 13) * 0.125f - 0.75f;
    plain.a = mem;
    plain.b = mem + a;
    plain.c = mem + a + b;
    plain.lda = p->trans_a ? p->m : p->k;
    plain.ldb = p->trans_b ? p->k : p->n;
    plain.ldc = p->n;
    omp_set_num_threads(threads);
    for (int i = 0; i <= TRIES; i++) {
        int64_t from = clock_ns();
        double took;

        if (!blas_product(&plain, threads))
            break;
        took = (double)(clock_ns() - from);
        if (i > 0 && took < best)
            best = took;
    }
    free(mem);
    return best;
}

double floor_copy_rate(int threads)
{
    const size_t part = (size_t)128 << 20;
    char *mem = malloc(2 * part);
    static double best; /* the machine's: measured once */

    if (best > 0 || !mem) {
        free(mem);
        return best > 0 ? best : 1;
    }
    memset(mem, 1, 2 * part);
    for (int i = 0; i <= TRIES; i++) {
        int64_t from = clock_ns();
        double rate;

#pragma omp parallel for num_threads(threads) schedule(static)
        for (int t = 0; t < threads; t++)
            memcpy(mem + part + (size_t)t * (part / (size_t)threads),
                   mem + (size_t)t * (part / (size_t)threads), part / (size_t)threads);
        rate = 2.0 * (double)part / (double)(clock_ns() - from);
        best = rate > best ? rate : best;
    }
    free(mem);
    return best;
}
