/* SPDX-License-Identifier: Apache-2.0
 *
 * Stand-in toolkit: the device's mathematical functions that the C library has not.
 */
#ifndef FAKECUDA_MATHS_H
#define FAKECUDA_MATHS_H

/* Names that the C library's header declares as well, or will. */
#define rsqrtf(x)    fakecuda_rsqrtf(x)
#define __expf(x)    expf(x)
#define __logf(x)    logf(x)
#define __log2f(x)   log2f(x)
#define __sinf(x)    sinf(x)
#define __cosf(x)    cosf(x)
#define __powf(x, y) powf(x, y)

#define FAKECUDA_FUNCTION(type, name, args, result)                                    \
    static inline type name args                                                       \
    {                                                                                  \
        return result;                                                                 \
    }

FAKECUDA_FUNCTION(float, fakecuda_rsqrtf, (float x), 1.0f / sqrtf(x))
FAKECUDA_FUNCTION(float, __frsqrt_rn, (float x), (float)(1.0 / sqrt((double)x)))
FAKECUDA_FUNCTION(float, __fsqrt_rn, (float x), sqrtf(x))
FAKECUDA_FUNCTION(float, __frcp_rn, (float x), 1.0f / x)
FAKECUDA_FUNCTION(float, __fmaf_rn, (float a, float b, float c), fmaf(a, b, c))
FAKECUDA_FUNCTION(float, __fadd_rn, (float a, float b), a + b)
FAKECUDA_FUNCTION(float, __fsub_rn, (float a, float b), a - b)
FAKECUDA_FUNCTION(float, __fmul_rn, (float a, float b), a *b)
FAKECUDA_FUNCTION(float, __fdiv_rn, (float a, float b), a / b)
FAKECUDA_FUNCTION(float, __fdividef, (float a, float b), a / b)
FAKECUDA_FUNCTION(double, __dadd_rn, (double a, double b), a + b)
FAKECUDA_FUNCTION(double, __dmul_rn, (double a, double b), a *b)
FAKECUDA_FUNCTION(float, __saturatef, (float x), x > 1 ? 1 : x > 0 ? x : 0)

FAKECUDA_FUNCTION(int, __popc, (unsigned x), __builtin_popcount(x))
FAKECUDA_FUNCTION(int, __popcll, (unsigned long long x), __builtin_popcountll(x))
FAKECUDA_FUNCTION(int, __ffs, (int x), __builtin_ffs(x))
FAKECUDA_FUNCTION(int, __clz, (int x), x ? __builtin_clz((unsigned)x) : 32)
FAKECUDA_FUNCTION(int, __clzll, (long long x),
                  x ? __builtin_clzll((unsigned long long)x) : 64)
FAKECUDA_FUNCTION(unsigned, __umulhi, (unsigned a, unsigned b),
                  (unsigned)((uint64_t)a *b >> 32))
FAKECUDA_FUNCTION(unsigned long long, __umul64hi,
                  (unsigned long long a, unsigned long long b),
                  (unsigned long long)((unsigned __int128)a *b >> 64))

template <class To, class From> static inline To fakecuda_bits(From value)
{
    To to;

    static_assert(sizeof(To) == sizeof(From), "the same bits");
    memcpy(&to, &value, sizeof(to));
    return to;
}

FAKECUDA_FUNCTION(unsigned, __float_as_uint, (float x), fakecuda_bits<unsigned>(x))
FAKECUDA_FUNCTION(int, __float_as_int, (float x), fakecuda_bits<int>(x))
FAKECUDA_FUNCTION(float, __uint_as_float, (unsigned x), fakecuda_bits<float>(x))
FAKECUDA_FUNCTION(float, __int_as_float, (int x), fakecuda_bits<float>(x))
FAKECUDA_FUNCTION(long long, __double_as_longlong, (double x),
                  fakecuda_bits<long long>(x))
FAKECUDA_FUNCTION(double, __longlong_as_double, (long long x), fakecuda_bits<double>(x))
FAKECUDA_FUNCTION(void, __trap, (void), fakecuda_trap())

template <class T> static inline T min(T a, T b)
{
    return b < a ? b : a;
}

template <class T> static inline T max(T a, T b)
{
    return a < b ? b : a;
}

#endif
