/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops once more, naive and in double, as the oracle of the unit tests.
 */
#ifndef ACCEL_TESTS_REFERENCE_H
#define ACCEL_TESTS_REFERENCE_H

#include <stdint.h>

/* y [rows][c] = table[ids] (+ positions[r % time], may be NULL) */
void ref_embedding(double *y, const int32_t *ids, const double *table,
                   const double *positions, int rows, int time, int c);
void ref_layernorm(double *y, const double *x, const double *gain, const double *bias,
                   int rows, int c, double eps);
/* y [rows][o] = x [rows][i] w[o][i]^T + bias (may be NULL), then GELU (tanh form) */
void ref_linear(double *y, const double *x, const double *w, const double *bias,
                int rows, int i, int o, int gelu);
/* y [b][t][c] from qkv [b][t][3c] */
void ref_attention(double *y, const double *qkv, int b, int t, int c, int heads);
double ref_cross_entropy(const double *x, const double *w, const int32_t *targets,
                         int rows, int c, int v);

#endif
