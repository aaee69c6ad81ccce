/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenBLAS, to compare with: one product of float32 with its own threads, as many as the
 * products beside it have (a worker of it that spins would be counted as their time). It
 * is loaded by name, since only benches want it.
 */
#ifndef ACCEL_BENCH_BLAS_H
#define ACCEL_BENCH_BLAS_H

#include <dlfcn.h>
#include <string.h>

#include "backend/operands.h"

typedef void blas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k,
                        float alpha, const float *a, int lda, const float *b, int ldb,
                        float beta, float *c, int ldc);

typedef void blas_set_threads(int threads);

/* False: there is no OpenBLAS. */
static inline bool blas_product(const struct gemm *p, int threads)
{
    enum { ROWS = 101, PLAIN = 111, TRANS = 112 }; /* of cblas.h */
    static blas_sgemm *sgemm;
    static blas_set_threads *set_threads;
    void *lib, *found, *setter;

    if (!sgemm) {
        lib = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
        found = lib ? dlsym(lib, "cblas_sgemm") : NULL;
        setter = lib ? dlsym(lib, "openblas_set_num_threads") : NULL;
        if (!found || !setter)
            return false;
        /* ISO C has no conversion from data to functions */
        memcpy(&sgemm, &found, sizeof(sgemm));
        memcpy(&set_threads, &setter, sizeof(set_threads));
    }
    set_threads(threads);
    sgemm(ROWS, p->trans_a ? TRANS : PLAIN, p->trans_b ? TRANS : PLAIN, (int)p->m,
          (int)p->n, (int)p->k, 1.0f, p->a, (int)p->lda, p->b, (int)p->ldb,
          p->add ? 1.0f : 0.0f, p->c, (int)p->ldc);
    return true;
}

#endif
