/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor-core instructions of PTX, as references: fragments are put together from all
 * lanes' registers by the layouts of the ISA, and the results spread the same way.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "numbers/minifloat.h"
#include "fake_layout.h"
#include "fake_ptx.h"

enum { LANES = 32 };

float fake_wide(uint16_t bits, bool f16)
{
    const uint32_t as_float = (uint32_t)bits << 16;
    float f;

    if (f16)
        return f16_to_f32(bits);
    memcpy(&f, &as_float, sizeof(f));
    return f;
}

/* To nearest, ties to even; every NaN becomes 0x7fff. */
static uint32_t to_bf16(uint64_t reg)
{
    uint32_t bits = (uint32_t)reg, tail = bits & 0xffff, kept = bits >> 16;

    if ((bits & 0x7fffffff) > 0x7f800000)
        return 0x7fff;
    return kept + (tail > 0x8000 || (tail == 0x8000 && kept % 2 == 1));
}

/* d, a, b: a to the upper half of d, b to the lower. */
void fake_cvt_bf16x2(uint64_t *v)
{
    v[0] = to_bf16(v[1]) << 16 | to_bf16(v[2]);
}

/* y, x: what is not normal is 0 before and after. */
void fake_ex2(uint64_t *v)
{
    const uint32_t bits = (uint32_t)v[1];
    float x, y;

    memcpy(&x, &bits, sizeof(x));
    y = exp2f(fabsf(x) < FLT_MIN ? 0.0f : x);
    y = y < FLT_MIN ? 0.0f : y;
    memcpy(&v[0], &y, sizeof(y));
}

/* To nearest; what is too large is infinite, and every NaN becomes 0x7fff. */
static uint32_t to_f16(uint64_t reg)
{
    const uint32_t bits = (uint32_t)reg;
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f != f ? 0x7fff : f32_to_f16(f);
}

void fake_cvt_f16x2(uint64_t *v)
{
    v[0] = to_f16(v[1]) << 16 | to_f16(v[2]);
}

/* A matrix [rows][cols] of a 16-bit type whose elements are in the lanes' registers from
 * v[first] on. */
static void take_halves(float *to, const struct layout *l, uint64_t *const lanes[],
                        int first, bool f16)
{
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < l->elements; i++) {
            struct place p = layout_place(l, lane, i);

            to[p.row * l->cols + p.col] =
                fake_wide((uint16_t)(lanes[lane][first + i / 2] >> 16 * (i % 2)), f16);
        }
}

/* d, a, b, c: d = a b + c in float32. The ISA leaves the order of the sum open; here it
 * is that of the lanes that hold the elements. */
template <bool f16> void fake_mma_m16n8k16(uint64_t *const lanes[])
{
    enum { D = 0, A = 4, B = 8, C = 10 };
    float a[16][16], b[16][8], sum[16][8];

    take_halves(&a[0][0], &layout_a, lanes, A, f16);
    take_halves(&b[0][0], &layout_b, lanes, B, f16);
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < layout_c.elements; i++) {
            struct place p = layout_place(&layout_c, lane, i);

            memcpy(&sum[p.row][p.col], &lanes[lane][C + i], sizeof(float));
        }
    for (int m = 0; m < 16; m++)
        for (int step = 0; step < 16; step++) {
            int k = step / 4 * 2 + step / 2 % 2 * 8 + step % 2;

            for (int n = 0; n < 8; n++)
                sum[m][n] += a[m][k] * b[k][n];
        }
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < layout_c.elements; i++) {
            struct place p = layout_place(&layout_c, lane, i);

            memcpy(&lanes[lane][D + i], &sum[p.row][p.col], sizeof(float));
        }
}

template void fake_mma_m16n8k16<false>(uint64_t *const[]);
template void fake_mma_m16n8k16<true>(uint64_t *const[]);

/* Lane l names row l % 8 of matrix l / 8. */
template <bool trans> void fake_ldmatrix_x4(uint64_t *const lanes[])
{
    enum { D = 0, ADDRESS = 4, MATRICES = 4 };
    uint16_t m[MATRICES][8][8];

    for (int lane = 0; lane < LANES; lane++)
        memcpy(m[lane / 8][lane % 8], fake_shared_at(lanes[lane][ADDRESS], 16), 16);
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < MATRICES; i++) {
            struct place low = layout_place(&layout_8x8, lane, 0);
            struct place high = layout_place(&layout_8x8, lane, 1);

            lanes[lane][D + i] =
                trans
                    ? m[i][low.col][low.row] | (uint32_t)m[i][high.col][high.row] << 16
                    : m[i][low.row][low.col] | (uint32_t)m[i][high.row][high.col] << 16;
        }
}

template void fake_ldmatrix_x4<false>(uint64_t *const[]);
template void fake_ldmatrix_x4<true>(uint64_t *const[]);
