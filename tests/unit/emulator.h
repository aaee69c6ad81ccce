/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the stand-in CUDA toolkit share: two streams, two arrays, a launch.
 */
#ifndef ACCEL_TESTS_EMULATOR_H
#define ACCEL_TESTS_EMULATOR_H

#include <cuda_runtime.h>
#include <stdlib.h>

extern "C" {
#include "tests/tap.h"
}

#define RUN(kernel, grid, block, shared, stream, ...)                                  \
    fakecuda_launch(#kernel, kernel, grid, block, shared, stream, __VA_ARGS__)

enum { N = 1000, THREADS = 256 };

static cudaStream_t one, two;
static float *a, *b, host[N];

static void begin(void)
{
    fakecuda_reset();
    cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking);
    cudaMalloc(&a, sizeof(host));
    cudaMalloc(&b, sizeof(host));
}

/* One element; waits for the first stream. */
[[maybe_unused]] static float fetch(const float *device)
{
    float x = -1;

    cudaMemcpyAsync(&x, device, sizeof(x), cudaMemcpyDeviceToHost, one);
    return x;
}

[[maybe_unused]] static __global__ void iota(float *x, int n)
{
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n;
         i += (int)(gridDim.x * blockDim.x))
        x[i] = (float)i;
}

#endif
