/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of the benchmark of the CUDA kernels: products by cuBLASLt alone.
 */
#ifndef ACCEL_BENCH_GPU_H
#define ACCEL_BENCH_GPU_H

#include <cuda_runtime_api.h>

#include "backend/operands.h"

/* ---- bare.c: one product, its own descriptors, the first algorithm of the heuristic
 * ---- */
struct bare;
/* The same operands and result without epilogue; NULL: cuBLASLt has none. */
struct bare *bare_new(const struct gemm *p);
bool bare_run(struct bare *b, const struct gemm *p, cudaStream_t stream);
void bare_free(struct bare *b);

#endif
