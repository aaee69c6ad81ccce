/* SPDX-License-Identifier: Apache-2.0
 *
 * Product of small float32 matrices on the calling thread. Every element of the result
 * is one chain of fused multiply-adds in the order of k, so the bits are the same with
 * every instruction set and however the product is cut.
 */
#ifndef ACCEL_BACKEND_CPU_TILE_H
#define ACCEL_BACKEND_CPU_TILE_H

#include <stdbool.h>
#include <stdint.h>

#define TILE_LANES 16

/* c[r][j] (+)= sum over i < k of a[r * a_row + i * a_col] * b[i * ldb + j], r < m, j <
 * n. n is a multiple of TILE_LANES; one of a_row and a_col is 1. */
struct tile {
    int64_t m, n, k;
    const float *a;
    int64_t a_row, a_col;
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
    bool add;
};

enum tile_isa { TILE_GENERIC, TILE_AVX2, TILE_AVX512 };

/* The widest instruction set of this CPU. */
enum tile_isa tile_isa(void);
/* `isa` must be one that this CPU has. */
void tile_product(enum tile_isa isa, const struct tile *t);

#endif
