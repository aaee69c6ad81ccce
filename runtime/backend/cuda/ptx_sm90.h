/* SPDX-License-Identifier: Apache-2.0
 *
 * PTX instructions of sm_90a for the attention, one function each (ptx.h): barriers in
 * shared memory, tensor copies that complete them, and products of a warpgroup, which
 * is four warps side by side, the first one a multiple of four. A kernel that calls
 * them is for sm_90a alone.
 */
#ifndef ACCEL_BACKEND_CUDA_PTX_SM90_H
#define ACCEL_BACKEND_CUDA_PTX_SM90_H

#include <cuda.h>

#include "backend/cuda/ptx.h"

/* Sums of a row of `n` tiles of 16 x 8 (ptx_mma's c), in order. */
#define PTX_TILE(c)                                                                    \
    PTX_BOTH_F(c[0]), PTX_BOTH_F(c[1]), PTX_BOTH_F(c[2]), PTX_BOTH_F(c[3])
#define PTX_4(c, n)                                                                    \
    PTX_TILE(c[n]), PTX_TILE(c[n + 1]), PTX_TILE(c[n + 2]), PTX_TILE(c[n + 3])
#define PTX_8_TILES(c)  PTX_4(c, 0), PTX_4(c, 4)
#define PTX_16_TILES(c) PTX_8_TILES(c), PTX_4(c, 8), PTX_4(c, 12)

/* ---- barriers -------------------------------------------------------------------- */

/* `count` arrivals end a phase; phases are counted from 0. Before others use it: the
 * fence, then a barrier of the block. */
static __device__ __forceinline__ void ptx_barrier_init(uint64_t *b, unsigned count)
{
    PTX_MEMORY("mbarrier.init.shared::cta.b64 [%0], %1;", (),
               (PTX_R(ptx_shared(b)), PTX_R(count)));
}

/* What this thread wrote to shared memory is seen by copies and products that begin
 * after the next barrier. */
static __device__ __forceinline__ void ptx_fence_async(void)
{
    PTX_MEMORY("fence.proxy.async.shared::cta;", (), ());
}

static __device__ __forceinline__ void ptx_barrier_arrive(uint64_t *b)
{
    PTX_MEMORY("mbarrier.arrive.shared::cta.b64 _, [%0];", (), (PTX_R(ptx_shared(b))));
}

/* Arrives, and the phase also waits for that many bytes of copies. */
static __device__ __forceinline__ void ptx_barrier_expect(uint64_t *b, unsigned bytes)
{
    PTX_MEMORY("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;", (),
               (PTX_R(ptx_shared(b)), PTX_R(bytes)));
}

/* Waits until the phase of this parity is over; the one before the first phase is. */
static __device__ __forceinline__ void ptx_barrier_wait(uint64_t *b, unsigned parity)
{
    uint32_t over = 0;

    while (!over)
        PTX_MEMORY(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
            "selp.b32 %0, 1, 0, p; }",
            (PTX_OUT_R(over)), (PTX_R(ptx_shared(b)), PTX_R(parity)));
}

/* Starts to copy a box of the map's tensor, whose first element is at `column` and at
 * these places of the other dimensions. What lies outside of the tensor is zero. Its
 * bytes complete the barrier's phase. */
static __device__ __forceinline__ void ptx_copy_box(void *to, const CUtensorMap *map,
                                                    int column, int second, int third,
                                                    int fourth, uint64_t *b)
{
    PTX_MEMORY(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6];",
        (),
        (PTX_R(ptx_shared(to)), PTX_L(map), PTX_R((uint32_t)column),
         PTX_R((uint32_t)second), PTX_R((uint32_t)third), PTX_R((uint32_t)fourth),
         PTX_R(ptx_shared(b))));
}

/* ---- registers ------------------------------------------------------------------- */

/* The warpgroup's threads have that many registers each from now on: more, as soon as
 * others have given them back, or fewer. In a kernel with a limit of threads only, on
 * the way into a branch that the warpgroup does not leave. */
template <int COUNT> static __device__ __forceinline__ void ptx_more_registers(void)
{
    PTX("setmaxnreg.inc.sync.aligned.u32 %0;", (), (PTX_N(COUNT)));
}

template <int COUNT> static __device__ __forceinline__ void ptx_fewer_registers(void)
{
    PTX("setmaxnreg.dec.sync.aligned.u32 %0;", (), (PTX_N(COUNT)));
}

/* ---- products -------------------------------------------------------------------- */

/* Describes a tile of 16-bit elements in shared memory, of rows of 64 elements with the
 * swizzle of 128 bytes, 8 rows per 1024 bytes; its start is a multiple of 1024, or 32,
 * 64 or 96 bytes past one. leading: bytes from 64 columns to the next 64, for
 * ptx_products_add; 0 where there is one block of 64. */
static __device__ __forceinline__ uint64_t ptx_tile(const void *at, unsigned leading)
{
    const uint64_t start = (ptx_shared(at) & 0x3ffff) >> 4, stride = 1024 >> 4;

    return start | (uint64_t)(leading >> 4) << 16 | stride << 32 | (uint64_t)1 << 62;
}

/* The compiler does not know that products write their sums later: sums[N][4] are to
 * be what they are now. */
template <int N> static __device__ __forceinline__ void ptx_hold(float sums[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
        for (int i = 0; i < 4; i++)
            PTX_HOLD(sums[n][i]);
}

/* Before the first product that adds to sums which were written. */
template <int N>
static __device__ __forceinline__ void ptx_products_begin(float sums[N][4])
{
    ptx_hold<N>(sums);
    PTX_MEMORY("wgmma.fence.sync.aligned;", (), ());
}

/* The warpgroup's products since the last call are one group. */
static __device__ __forceinline__ void ptx_products_commit(void)
{
    PTX_MEMORY("wgmma.commit_group.sync.aligned;", (), ());
}

/* Waits until at most LEFT of the warpgroup's latest groups are under way, which `sums`
 * is of none of. Until then its registers and tiles must stay as they are. */
template <int LEFT, int N>
static __device__ __forceinline__ void ptx_products_wait(float sums[N][4])
{
    PTX_MEMORY("wgmma.wait_group.sync.aligned %0;", (), (PTX_N(LEFT)));
    ptx_hold<N>(sums);
}

/* Ends a group and waits for all. */
template <int N>
static __device__ __forceinline__ void ptx_products_end(float sums[N][4])
{
    ptx_products_commit();
    ptx_products_wait<0, N>(sums);
}

/* wgmma of 64 rows and n columns. pred: the operand that says whether sums are added
 * to; majors: which operands in shared memory are transposed. */
#define PTX_WGMMA(type, n, sums, pred, a, b, majors)                                   \
    "{ .reg .pred p; setp.ne.b32 p, " pred ", 0; "                                     \
    "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" sums "}, " a   \
    ", " b ", p, 1, 1, " majors "; }"
#define PTX_32_SUMS                                                                    \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
    "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PTX_64_SUMS                                                                    \
    PTX_32_SUMS                                                                        \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "    \
    "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, " \
    "%63"
/* Both operands in shared memory, as they are; a in registers, and b transposed. */
#define PTX_128_TEXT(type)                                                             \
    PTX_WGMMA(type, "128", PTX_64_SUMS, "%66", "%64", "%65", "0, 0")
#define PTX_64_TEXT(type)                                                              \
    PTX_WGMMA(type, "64", PTX_32_SUMS, "%34", "%32", "%33", "0, 0")
#define PTX_ADD_128_TEXT(type)                                                         \
    PTX_WGMMA(type, "128", PTX_64_SUMS, "%69", "{%64, %65, %66, %67}", "%68", "1")
#define PTX_ADD_64_TEXT(type)                                                          \
    PTX_WGMMA(type, "64", PTX_32_SUMS, "%37", "{%32, %33, %34, %35}", "%36", "1")

/* c (+)= a b^T: 64 rows and 16 columns of a, 128 rows of b, both tiles (ptx_tile) of T.
 * A warp holds 16 rows of c in its order, as 16 results of ptx_mma. add 0: c is
 * replaced. */
template <typename T>
static __device__ __forceinline__ void ptx_products(float c[16][4], uint64_t a,
                                                    uint64_t b, unsigned add)
{
    PTX_OF(T, PTX_128_TEXT, (PTX_16_TILES(c)), (PTX_L(a), PTX_L(b), PTX_R(add)));
}

/* The same for 64 rows of b. */
template <typename T>
static __device__ __forceinline__ void ptx_products_64(float c[8][4], uint64_t a,
                                                       uint64_t b, unsigned add)
{
    PTX_OF(T, PTX_64_TEXT, (PTX_8_TILES(c)), (PTX_L(a), PTX_L(b), PTX_R(add)));
}

/* c += a b for 16 rows of b, a tile of 128 or 64 columns. a as in ptx_mma, of each warp
 * its own 16 rows. */
template <typename T>
static __device__ __forceinline__ void ptx_products_add(float c[16][4],
                                                        const uint32_t a[4], uint64_t b)
{
    PTX_OF(T, PTX_ADD_128_TEXT, (PTX_16_TILES(c)),
           (PTX_R(a[0]), PTX_R(a[1]), PTX_R(a[2]), PTX_R(a[3]), PTX_L(b), PTX_R(1u)));
}

template <typename T>
static __device__ __forceinline__ void ptx_products_add_64(float c[8][4],
                                                           const uint32_t a[4],
                                                           uint64_t b)
{
    PTX_OF(T, PTX_ADD_64_TEXT, (PTX_8_TILES(c)),
           (PTX_R(a[0]), PTX_R(a[1]), PTX_R(a[2]), PTX_R(a[3]), PTX_L(b), PTX_R(1u)));
}

#endif
