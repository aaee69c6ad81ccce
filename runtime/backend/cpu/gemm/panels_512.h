/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors of 16 floats, in the terms of panels_block.h, for the kernels of AVX-512:
 * 14 x 32 results. The file that includes it has defined INLINE.
 */
#define ROWS  14
#define WIDTH 16

typedef __m512 vector;

INLINE vector load_vector(const float *p)
{
    return _mm512_loadu_ps(p);
}

INLINE void store_vector(float *p, vector v)
{
    _mm512_storeu_ps(p, v);
}

INLINE vector zero_vector(void)
{
    return _mm512_setzero_ps();
}

INLINE vector add_vectors(vector a, vector b)
{
    return _mm512_add_ps(a, b);
}

INLINE vector all_lanes(const float *p)
{
    return _mm512_set1_ps(*p);
}
