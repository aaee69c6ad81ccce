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
    /* first elements: in the flat gradient, in `error`, in `left` and in `right` */
    int64_t at, error_at, left_at, right_at;
};

/* A range of the flat gradient that is sent as it is. */
struct plain_range {
    int64_t at, n;
};

struct powersgd {
    const struct backend *be;
    struct powersgd_rule rule;
    int64_t total;
    struct low_rank *matrix;
    int matrices;
    struct plain_range *plain;
    int plains;
    /* elements of the arrays below */
    int64_t errors, lefts, rights, sent_plain;
    /* memory of the backend: the inputs before, and what is missing of them after;
     * the factors of all matrices; the plain ranges side by side */
    float *error, *left, *right, *sent;
    /* batched: the flat gradient and zeros up to a square; else NULL */
    float *square;
    /* host: the longer of left and right */
    float *host;
    /* `right` holds factors of an earlier step */
    bool warm;
};

#endif
