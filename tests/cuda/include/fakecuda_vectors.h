/* SPDX-License-Identifier: Apache-2.0
 *
 * Stand-in toolkit: short vectors with the toolkit's names and alignment, and dim3.
 */
#ifndef FAKECUDA_VECTORS_H
#define FAKECUDA_VECTORS_H

#define FAKECUDA_VECTORS(type, base)                                                   \
    struct base##1                                                                     \
    {                                                                                  \
        type x;                                                                        \
    };                                                                                 \
    struct alignas(2 * sizeof(type)) base##2                                           \
    {                                                                                  \
        type x, y;                                                                     \
    };                                                                                 \
    struct base##3                                                                     \
    {                                                                                  \
        type x, y, z;                                                                  \
    };                                                                                 \
    struct alignas(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) base##4              \
    {                                                                                  \
        type x, y, z, w;                                                               \
    };                                                                                 \
    static inline base##1 make_##base##1(type x)                                       \
    {                                                                                  \
        return base##1 { x };                                                          \
    }                                                                                  \
    static inline base##2 make_##base##2(type x, type y)                               \
    {                                                                                  \
        return base##2 { x, y };                                                       \
    }                                                                                  \
    static inline base##3 make_##base##3(type x, type y, type z)                       \
    {                                                                                  \
        return base##3 { x, y, z };                                                    \
    }                                                                                  \
    static inline base##4 make_##base##4(type x, type y, type z, type w)               \
    {                                                                                  \
        return base##4 { x, y, z, w };                                                 \
    }

FAKECUDA_VECTORS(signed char, char)
FAKECUDA_VECTORS(unsigned char, uchar)
FAKECUDA_VECTORS(short, short)
FAKECUDA_VECTORS(unsigned short, ushort)
FAKECUDA_VECTORS(int, int)
FAKECUDA_VECTORS(unsigned, uint)
FAKECUDA_VECTORS(long long, longlong)
FAKECUDA_VECTORS(unsigned long long, ulonglong)
FAKECUDA_VECTORS(float, float)
FAKECUDA_VECTORS(double, double)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
    dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
    {
    }
};

#endif
