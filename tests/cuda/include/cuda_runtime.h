/* SPDX-License-Identifier: Apache-2.0
 *
 * Stand-in toolkit for kernels: with -I of this folder, g++ -std=c++17 -x c++
 * -Wno-unknown-pragmas compiles a .cu file as it is, but for the two things that are not C++:
 *
 *   nvcc:  kernel<<<grid, block, shared, stream>>>(...);  (void)cudaGetLastError();
 *   here:  fakecuda_launch(#kernel, kernel, grid, block, shared, stream, ...);
 *
 *   nvcc:  extern __shared__ float4 fakecuda_all[]; type *name = (type *)fakecuda_all;
 *   here:  type *name = (type *)fakecuda_shared();
 *
 * A block's threads run one after the other, in another order each time, each until it waits
 * for others; what they forgot to wait for, and dynamic shared memory that nobody wrote
 * (NaN), shows in the results.
 */
#ifndef FAKECUDA_RUNTIME_H
#define FAKECUDA_RUNTIME_H

#include <functional>
#include <tuple>
#include <typeinfo>
#include <utility>

#include "cuda_runtime_api.h"
#include "fakecuda_vectors.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__      static
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n)    alignas(n)
#define __launch_bounds__(...)
#define __grid_constant__

#include "fakecuda_device.h"

#pragma GCC visibility push(default)

/* Puts a kernel on a stream; its arguments are held by the closure. As a launch by nvcc, a
 * failure is also left for cudaGetLastError. `type` tells the kernels of a template apart. */
cudaError_t fakecuda_launch_closure(const char *name, const std::type_info &type,
                                    const void *kernel, dim3 grid, dim3 block,
                                    size_t shared, cudaStream_t stream,
                                    std::function<void()> thread);

#pragma GCC visibility pop

template <class... P, class... A>
static inline cudaError_t fakecuda_launch(const char *name, void (*kernel)(P...),
                                          dim3 grid, dim3 block, size_t shared,
                                          cudaStream_t stream, A &&...args)
{
    std::tuple<P...> values(static_cast<P>(std::forward<A>(args))...);

    return fakecuda_launch_closure(name, typeid(kernel), (const void *)kernel, grid,
                                   block, shared, stream,
                                   [kernel, values] { std::apply(kernel, values); });
}

/* The forms that the toolkit has for C++: any pointer, and kernels without a cast. */
template <class T> static inline cudaError_t cudaMalloc(T **p, size_t bytes)
{
    return cudaMalloc((void **)p, bytes);
}

template <class T>
static inline cudaError_t cudaMallocAsync(T **p, size_t bytes, cudaStream_t stream)
{
    return cudaMallocAsync((void **)p, bytes, stream);
}

template <class T> static inline cudaError_t cudaMallocHost(T **p, size_t bytes)
{
    return cudaMallocHost((void **)p, bytes);
}

template <class T>
static inline cudaError_t cudaHostAlloc(T **p, size_t bytes, unsigned flags)
{
    return cudaHostAlloc((void **)p, bytes, flags);
}

template <class... P>
static inline cudaError_t cudaFuncSetAttribute(void (*kernel)(P...),
                                               enum cudaFuncAttribute attr, int value)
{
    return cudaFuncSetAttribute((const void *)kernel, attr, value);
}

#endif
