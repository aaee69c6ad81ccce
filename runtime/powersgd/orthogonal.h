/* SPDX-License-Identifier: Apache-2.0
 *
 * Orthonormal columns of small matrices in host memory, and the draws they begin with.
 */
#ifndef ACCEL_POWERSGD_ORTHOGONAL_H
#define ACCEL_POWERSGD_ORTHOGONAL_H

#include <stdint.h>

/* Makes the columns of m[rows][cols], cols <= rows, orthonormal, from the first on
 * (modified Gram-Schmidt, sums in double and in the order of rows). A column that
 * depends on those before it becomes zero. Returns how many are zero. */
int64_t orthogonalize(float *m, int64_t rows, int64_t cols);
/* Fills the columns of m that are zero with normal draws of (seed, stream). */
void draw_columns(float *m, int64_t rows, int64_t cols, uint64_t seed, uint64_t stream);

#endif
