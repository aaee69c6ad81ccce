/* SPDX-License-Identifier: Apache-2.0
 *
 * The PTX instructions that kernels use, one function each. Their text is the same in
 * both builds: nvcc assembles it, the stand-in toolkit interprets it lane by lane
 * (tests/cuda/fake_ptx.cc). Needs sm_80.
 */
#ifndef ACCEL_BACKEND_CUDA_PTX_H
#define ACCEL_BACKEND_CUDA_PTX_H

#include "backend/cuda/kernel_base.h"

#include <type_traits>

/* PTX(text, (outputs), (inputs)): r is a register of 32 bits, f one of float, l an
 * address of 64 bits, n a constant. PTX_MEMORY: of an instruction that other threads'
 * or later reads and writes of memory are ordered by, so the compiler moves none across
 * it. */
#define PTX_LIST(...) __VA_ARGS__
#ifdef __CUDACC__
#define PTX(text, out, in) asm volatile(text : PTX_LIST out : PTX_LIST in)
#define PTX_MEMORY(text, out, in)                                                      \
    asm volatile(text : PTX_LIST out : PTX_LIST in : "memory")
#define PTX_R(x)      "r"(x)
#define PTX_F(x)      "f"(x)
#define PTX_L(x)      "l"(x)
#define PTX_N(x)      "n"(x)
#define PTX_OUT_R(x)  "=r"(x)
#define PTX_OUT_F(x)  "=f"(x)
#define PTX_BOTH_F(x) "+f"(x)
/* What is done with x before stays before, and what comes after stays after. */
#define PTX_HOLD(x) asm volatile("" : "+f"(x) : : "memory")
#else
#define PTX_ORDERED(text, out, in, memory)                                             \
    do {                                                                               \
        static const struct fakecuda_ptx *const ptx_read =                             \
            fakecuda_ptx_read(text, memory);                                           \
                                                                                       \
        fakecuda_ptx_run(ptx_read, { PTX_LIST out }, { PTX_LIST in });                 \
    } while (0)
#define PTX(text, out, in)        PTX_ORDERED(text, out, in, false)
#define PTX_MEMORY(text, out, in) PTX_ORDERED(text, out, in, true)
#define PTX_R(x)                  fakecuda_in_r(x)
#define PTX_F(x)                  fakecuda_in_f(x)
#define PTX_L(x)                  fakecuda_in_l(x)
#define PTX_N(x)                  fakecuda_in_n(x)
#define PTX_OUT_R(x)              fakecuda_out_r(x)
#define PTX_OUT_F(x)              fakecuda_out_f(x)
#define PTX_BOTH_F(x)             fakecuda_both_f(x)
#define PTX_HOLD(x)               ((void)(x))
#endif

/* The instruction whose text TEXT makes of the name of a 16-bit type: T is bf16_t or
 * half_t. */
#define PTX_OF(T, TEXT, out, in)                                                       \
    do {                                                                               \
        if constexpr (std::is_same<T, half_t>::value)                                  \
            PTX(TEXT("f16"), out, in);                                                 \
        else                                                                           \
            PTX(TEXT("bf16"), out, in);                                                \
    } while (0)

static __device__ __forceinline__ uint32_t ptx_shared(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

#define PTX_PACK_TEXT(type) "cvt.rn." type "x2.f32 %0, %1, %2;"

/* Two floats rounded to T in one register, `low` in the lower half. The instruction's
 * first source goes to the upper half. */
template <typename T>
static __device__ __forceinline__ uint32_t ptx_pack(float low, float high)
{
    uint32_t both;

    PTX_OF(T, PTX_PACK_TEXT, (PTX_OUT_R(both)), (PTX_F(high), PTX_F(low)));
    return both;
}

/* 2^x, wrong by 2 units in the last place at most; 0 where it is below 2^-126. */
static __device__ __forceinline__ float ptx_exp2(float x)
{
    float y;

    PTX("ex2.approx.ftz.f32 %0, %1;", (PTX_OUT_F(y)), (PTX_F(x)));
    return y;
}

#define PTX_MMA_TEXT(type)                                                             \
    "mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                     \
    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"

/* c += a b: a 16 x 16, b 16 x 8, both of T. All lanes of the warp must call. With g =
 * lane / 4 and t = 2 (lane % 4), lane holds
 * a: rows g, g + 8 at columns t, t + 1, then the same rows at columns t + 8, t + 9;
 * b: column g at rows t, t + 1, then at rows t + 8, t + 9;
 * c: row g at columns t, t + 1, then row g + 8. */
template <typename T>
static __device__ __forceinline__ void ptx_mma(float c[4], const uint32_t a[4],
                                               uint32_t b0, uint32_t b1)
{
    PTX_OF(T, PTX_MMA_TEXT,
           (PTX_BOTH_F(c[0]), PTX_BOTH_F(c[1]), PTX_BOTH_F(c[2]), PTX_BOTH_F(c[3])),
           (PTX_R(a[0]), PTX_R(a[1]), PTX_R(a[2]), PTX_R(a[3]), PTX_R(b0), PTX_R(b1)));
}

/* Loads four 8 x 8 matrices of 16-bit elements from shared memory. Lane l says where
 * row l % 8 of matrix l / 8 begins, a multiple of 16 bytes; r[i] gets row l / 4,
 * columns 2 (l % 4) and the next of matrix i. All lanes of the warp must call. */
static __device__ __forceinline__ void ptx_load(uint32_t r[4], const void *row)
{
    PTX("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];",
        (PTX_OUT_R(r[0]), PTX_OUT_R(r[1]), PTX_OUT_R(r[2]), PTX_OUT_R(r[3])),
        (PTX_R(ptx_shared(row))));
}

/* The same, each matrix transposed: column l / 4, rows 2 (l % 4) and the next. */
static __device__ __forceinline__ void ptx_load_transposed(uint32_t r[4],
                                                           const void *row)
{
    PTX("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];",
        (PTX_OUT_R(r[0]), PTX_OUT_R(r[1]), PTX_OUT_R(r[2]), PTX_OUT_R(r[3])),
        (PTX_R(ptx_shared(row))));
}

/* Starts to copy 16 bytes to shared memory; zeros instead, and `from` is not read,
 * where there is nothing. Both addresses are multiples of 16. */
static __device__ __forceinline__ void ptx_copy(void *to, const void *from, bool there)
{
    PTX_MEMORY("cp.async.cg.shared.global [%0], [%1], 16, %2;", (),
               (PTX_R(ptx_shared(to)), PTX_L(from), PTX_R(there ? 16u : 0u)));
}

/* The thread's copies since the last call are one group. */
static __device__ __forceinline__ void ptx_copy_commit(void)
{
    PTX_MEMORY("cp.async.commit_group;", (), ());
}

/* Waits until at most LEFT of the thread's latest groups are under way. What other
 * threads copied is there after a barrier that follows their wait. */
template <int LEFT> static __device__ __forceinline__ void ptx_copy_wait(void)
{
    PTX_MEMORY("cp.async.wait_group %0;", (), (PTX_N(LEFT)));
}

#endif
