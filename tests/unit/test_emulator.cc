/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in CUDA toolkit: kernels whose threads wait for each other, and what becomes of
 * those that go wrong.
 */
#include "tests/unit/emulator.h"

/* ---- kernels ------------------------------------------------------------------------------ */

/* Sum by warps, then by the first warp. */
static __global__ void sum(float *out, const float *x, int n)
{
    __shared__ float part[32];
    float s = 0;

    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        s += x[i];
    for (int by = 16; by > 0; by /= 2)
        s += __shfl_xor_sync(~0u, s, by);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x >= 32)
        return;
    s = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
    for (int by = 16; by > 0; by /= 2)
        s += __shfl_down_sync(~0u, s, (unsigned)by);
    if (threadIdx.x == 0)
        *out = s;
}

/* Each thread takes its neighbour's value out of dynamic shared memory. */
static __global__ void rotate(float *x, bool wait)
{
    float *shared = (float *)fakecuda_shared();
    unsigned n = blockDim.x, t = threadIdx.x;

    shared[t] = x[t];
    if (wait)
        __syncthreads();
    x[t] = shared[(t + 1) % n];
}

static __global__ void unwritten(float *x)
{
    x[threadIdx.x] = ((float *)fakecuda_shared())[threadIdx.x];
}

static __global__ void votes(unsigned *out)
{
    unsigned t = threadIdx.x;

    out[t] = __ballot_sync(~0u, t % 3 == 0);
    out[32 + t] = (unsigned)__any_sync(~0u, t == 7);
    out[64 + t] = (unsigned)__shfl_sync(~0u, (int)t, 3, 8);
    out[96 + t] = (unsigned)__shfl_up_sync(~0u, (int)t, 2);
    out[128 + t] = t < 16 ? __ballot_sync(0xffffu, 1) : __ballot_sync(0xffff0000u, 1);
    atomicAdd(&out[160], t);
    atomicMax(&out[161], t);
}

static void test_kernels(void)
{
    static unsigned got[162];
    unsigned *votes_out;
    bool fine = true;

    begin();
    RUN(iota, 3, THREADS, 0, one, a, N);
    RUN(sum, 1, THREADS, 0, one, b, a, N);
    tap_is_close(fetch(b), N * (N - 1) / 2.0, 0, "sum of a block by warps");
    tap_is_close(fetch(a + N - 1), N - 1, 0, "grid-stride loop");
    for (int launch = 0; launch < 2; launch++)
        RUN(rotate, 1, 100, 100 * sizeof(float), one, a, true);
    tap_is_close(fetch(a), 2, 0, "dynamic shared memory and a barrier");
    tap_is_close(fetch(a + 99), 1, 0, "... by all threads");
    RUN(unwritten, 1, 32, 32 * sizeof(float), one, a);
    tap_ok(isnan(fetch(a)), "shared memory that nobody wrote is NaN");
    cudaMalloc(&votes_out, sizeof(got));
    cudaMemsetAsync(votes_out, 0, sizeof(got), one);
    RUN(votes, 1, 32, 0, one, votes_out);
    cudaMemcpyAsync(got, votes_out, sizeof(got), cudaMemcpyDeviceToHost, one);
    tap_is_int(got[5], 0x49249249, "ballot");
    for (unsigned t = 0; t < 32; t++)
        fine = fine && got[32 + t] == 1 && got[64 + t] == (t & ~7u) + 3 &&
               got[96 + t] == (t < 2 ? t : t - 2) &&
               got[128 + t] == (t < 16 ? 0xffffu : 0xffff0000u);
    tap_ok(fine, "votes and shuffles of a warp, of groups and of halves");
    tap_ok(got[160] == 496 && got[161] == 31, "atomics");
    tap_is_int(cudaGetLastError(), cudaSuccess, "no error so far");
}

/* Whether rotate gives the right answer without its barrier, in any of some launches. */
static void test_forgotten_barrier(void)
{
    int wrong = 0;

    begin();
    for (int launch = 0; launch < 2; launch++) {
        RUN(iota, 1, 64, 0, one, a, 64);
        RUN(rotate, 1, 64, 64 * sizeof(float), one, a, false);
        wrong += fetch(a) != 1 || fetch(a + 62) != 63 || fetch(a + 63) != 0;
    }
    tap_is_int(wrong, 2, "a forgotten barrier gives wrong results");
}

static __global__ void divergent(int kind)
{
    unsigned t = threadIdx.x;

    if (kind == 0 && t < 5)
        __syncthreads();
    if (kind == 0 && t >= 5)
        __shfl_sync(~0u, 1, 0);
    if (kind == 1 && t < 5)
        __syncthreads();
    else if (kind == 1)
        __syncthreads();
    if (kind == 2)
        __trap();
    if (kind == 3 && t > 40)
        return;
    if (kind == 3)
        __syncthreads();
}

static __global__ void write_at(char *p, int64_t at)
{
    p[at] = 1;
}

static __global__ void write_shared(int at)
{
    ((char *)fakecuda_shared())[at] = 1;
}

static void test_faults(void)
{
    static const int want[] = { cudaErrorLaunchFailure, cudaErrorLaunchFailure,
                                cudaErrorLaunchFailure, cudaSuccess };

    for (int kind = 0; kind < 4; kind++) {
        begin();
        RUN(divergent, 1, 64, 0, one, kind);
        tap_is_int(cudaGetLastError(), cudaSuccess, "kind %d: not yet", kind);
        tap_is_int(cudaStreamSynchronize(one), want[kind], "kind %d: at the wait",
                   kind);
        tap_is_int(cudaStreamSynchronize(two), want[kind], "kind %d: sticks", kind);
    }
    begin();
    RUN(write_shared, 1, 1, 64, one, 64);
    tap_is_int(cudaStreamSynchronize(one), cudaErrorLaunchFailure,
               "behind the shared memory");
    begin();
    RUN(write_at, 1, 1, 0, one, (char *)a, (int64_t)sizeof(host));
    tap_is_int(cudaStreamSynchronize(one), cudaErrorIllegalAddress,
               "behind an allocation");
    begin();
    tap_is_int(RUN(iota, 1, 2048, 0, one, a, N), cudaErrorInvalidConfiguration,
               "too many threads");
    tap_is_int(RUN(iota, dim3(1, 70000), 32, 0, one, a, N),
               cudaErrorInvalidConfiguration, "a grid too high");
    tap_is_int(RUN(unwritten, 1, 32, 60000, one, a), cudaErrorInvalidValue,
               "more shared memory than allowed");
    cudaFuncSetAttribute(unwritten, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000);
    tap_is_int(RUN(unwritten, 1, 32, 60000, one, a), cudaSuccess, "... now allowed");
    tap_is_int(cudaGetLastError(), cudaErrorInvalidValue, "the last error is kept");
    tap_is_int(cudaGetLastError(), cudaSuccess, "... until it was told");
}

int main(void)
{
    test_kernels();
    test_forgotten_barrier();
    test_faults();
    fakecuda_reset();
    return tap_done();
}
