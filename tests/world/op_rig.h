/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of single ops share: random values that the dtype holds exactly,
 * tensors made from them, a weighted sum as the loss, distances.
 */
#ifndef ACCEL_TESTS_OP_RIG_H
#define ACCEL_TESTS_OP_RIG_H

#include <stdio.h>

#include "tensor/tape.h"

void rig_seed(uint64_t seed);
/* n values in [-size / 2, size / 2), rounded to `type`; the caller frees. */
double *rig_random(int64_t n, accel_dtype_t type, double size);
/* The sequence of tests/data/optim/make.py and make_powersgd.py, in [-1, 1). */
float rig_sequence(uint32_t stream, uint32_t i);
/* An activation [a, b, c] that needs a gradient. */
accel_tensor_t *rig_tensor(struct graph *g, const double *values, int64_t a, int64_t b,
                           int64_t c);
/* loss = sum of weight * y, for graph_backward. */
accel_tensor_t *rig_weigh(struct graph *g, accel_tensor_t *y, const double *weight);
/* Largest |got - want| over the largest |want| (at least `floor`); infinite for NaN. */
double rig_distance(const double *got, const double *want, int64_t n, double floor);
/* A TAP line: are y's values within `tolerance` of want? */
void rig_check(const accel_tensor_t *y, const double *want, double tolerance,
               const char *what);

/* tests/data/ops/NAME of the source tree; NULL and a failed TAP line when it is not
 * there. */
FILE *rig_golden(const char *name);
/* Reads the next line, "WORD number ...", into v[most]; how many numbers, -1: another
 * word or the end. */
int rig_line(FILE *f, const char *word, double *v, int most);
/* A TAP line: is every (elems / 40 + 1)th value of y as the line WORD says? */
void rig_check_line(FILE *f, const char *word, const accel_tensor_t *y,
                    double tolerance, const char *what);

#endif
