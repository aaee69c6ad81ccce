/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of powersgd/ share: where each matrix and its factors lie.
 */
#ifndef ACCEL_POWERSGD_IMPL_H
#define ACCEL_POWERSGD_IMPL_H

#include "powersgd/powersgd.h"

/* M [rows, cols] is nearly P [rows, rank] times Q [cols, rank] transposed. */
struct low_rank {
    int64_t rows, cols, rank;
    /* number of the gradient; batched, where it is of all: 0 */
    int shape;
    /* first elements: in the flat gradient, in `error`, in `left` and in `right` */
    int64_t at, error_at, left_at, right_at;
};

/* A range of the flat gradient. */
struct flat_range {
    int64_t at, n;
};

struct powersgd {
    const struct backend *be;
    accel_powersgd_t rule;
    uint64_t seed;
    int64_t total;
    struct low_rank *matrix;
    int matrices;
    /* what is sent as it is; batched: what the square is made of */
    struct flat_range *range;
    int ranges;
    /* elements of the arrays below; the `plains` follow the `lefts` */
    int64_t errors, lefts, rights, plains;
    /* memory of the backend: what is missing; the left factors of all matrices and the
     * ranges that are sent as they are, side by side; the right factors */
    float *error, *left, *right;
    /* batched: the gradients side by side, and zeros up to a square; else NULL */
    float *square;
    /* page-locked: sum of squares of what has been added up */
    double *sumsq;
    /* host: the longer of left and right */
    float *host;
};

/* ---- orthogonal.c: small matrices in host memory --------------------------------- */

/* Makes the columns of m[rows][cols], cols <= rows, orthonormal, from the first on
 * (modified Gram-Schmidt, sums in double and in the order of rows). A column that
 * depends on those before it becomes zero. Returns how many are zero. */
int64_t orthogonalize(float *m, int64_t rows, int64_t cols);
/* Fills the columns of m that are zero with normal draws of (seed, stream). */
void draw_columns(float *m, int64_t rows, int64_t cols, uint64_t seed, uint64_t stream);

#endif
