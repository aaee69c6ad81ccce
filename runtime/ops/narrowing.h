/* SPDX-License-Identifier: Apache-2.0
 *
 * One matrix of a linear in fp8. In: numbers, made already or still waiting to be
 * made, and the linear's scales. Out: the copies that there is room for, and the
 * largest magnitude where the step is to see it. Who holds the copies: linear_fp8.c.
 */
#ifndef ACCEL_OPS_NARROWING_H
#define ACCEL_OPS_NARROWING_H

#include "ops/linear_fp8.h"

/* A matrix of the linear of weight w, as one of its products takes it. */
struct narrowing {
    const accel_tensor_t *w;
    enum fp8_tensor tensor;
    enum fp8_product product;
    int64_t rows, cols;
    /* the copy is [cols, narrow_ld(rows)] */
    bool transposed;
    enum backend_fp8 has;
    void *copy; /* NULL: none is made */
};

/* Numbers that are narrowed. */
struct wide_matrix {
    const void *data;
    accel_dtype_t type;
    /* what makes them is not queued yet, and can narrow on the way (g->result) */
    bool waits;
    /* whose numbers they are, where that is an input; else NULL */
    accel_tensor_t *input;
};

struct narrowing narrowing_of(const struct backend *be, const accel_tensor_t *w,
                              enum fp8_tensor t, enum fp8_product product,
                              int64_t rows);
/* Of the two copies that there may be of a matrix, the number of this one. The second
 * is for sums over rows, where these cannot take the first: transposed, or in blocks
 * that are not square. */
int narrowing_place(const struct narrowing *m);
/* Bytes of a copy, with the scales that are its own. */
int64_t narrowing_bytes(const struct narrowing *m);
/* The copy as the operand of a product. */
struct factor narrowing_factor(const struct narrowing *m);
/* Makes the copies of a matrix that there is room for. Without any, it is only looked
 * at. m: [2], by narrowing_place. */
void narrowing_make(struct graph *g, const struct narrowing *m, struct wide_matrix src);

#endif
