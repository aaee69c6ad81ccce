/* SPDX-License-Identifier: Apache-2.0
 *
 * powersgd/: the mean of gradients over ranks by low-rank products (PowerSGD, Vogels,
 * Karimireddy and Jaggi 2019), where each rank holds whole gradients. In: a rank's flat
 * gradient and a function that adds arrays over the ranks. Out: nearly their mean, the
 * same bits on all ranks; what is missing is added to the next gradient. The behaviour
 * is that of torch's powerSGD_hook and batched_powerSGD_hook. Never communicates by
 * itself.
 */
#ifndef ACCEL_POWERSGD_POWERSGD_H
#define ACCEL_POWERSGD_POWERSGD_H

#include "backend/device.h"

/* Zeros are torch's defaults, but for batched. */
struct powersgd_rule {
    int rank;         /* of the products; 0: 1 */
    int64_t start;    /* steps before this one are exact; 0: 1000, negative: none */
    double least;     /* smallest ratio of compression that is worth it; 0: 2 */
    bool no_feedback; /* what is missing is lost */
    bool cold;        /* no warm start: each step begins with new draws */
    bool batched;     /* all gradients as one square matrix */
    uint64_t seed;    /* the same on all ranks */
};

/* A gradient within the flat array: `rows` is its first dimension, `cols` the product
 * of the others. */
struct powersgd_shape {
    int64_t rows, cols;
};

struct powersgd;

/* Shapes lie one behind the other in the flat gradient. `be` must outlive it and holds
 * all memory but two small copies on the host. Errors: ACCEL_EINVAL (rule, shapes). */
accel_status_t powersgd_open(struct powersgd **powersgd_out, const struct backend *be,
                             const struct powersgd_rule *rule,
                             const struct powersgd_shape *shapes, int count,
                             accel_error_t *err);
void powersgd_close(struct powersgd *s); /* NULL is fine */

/* The other ranks. */
struct powersgd_peers {
    int ranks;
    /* x[n] = the sum over all ranks, the same bits on each; x is memory of the
     * backend */
    accel_status_t (*all_reduce)(void *user, float *x, int64_t n, accel_error_t *err);
    void *user;
};

/* gradient[total] of this rank becomes nearly the mean over the ranks. `step` counts
 * from 0. Collective through `peers`, whose errors it passes on; after one the gradient
 * and the state are undefined. So they are after a gradient that is not finite: who
 * leaves such steps out and goes on has to keep a copy of the state. */
accel_status_t powersgd_reduce(struct powersgd *s, float *gradient, int64_t step,
                               const struct powersgd_peers *peers, accel_error_t *err);

/* Elements that a compressed step sends through all_reduce, and the flat gradient's. */
int64_t powersgd_sent(const struct powersgd *s);
int64_t powersgd_total(const struct powersgd *s);

/* What a checkpoint keeps: arrays of the backend's memory. */
struct powersgd_state {
    /* What is missing so far, each rank's own; NULL without feedback. For another
     * number of ranks give each of them the mean of all, which keeps the sum of what
     * the next step sees. */
    float *error;
    int64_t errors;
    /* the right factors, the same on all ranks; NULL without a warm start */
    float *right;
    int64_t rights;
};
struct powersgd_state powersgd_state_of(struct powersgd *s);
/* The arrays of powersgd_state_of hold a checkpoint's values. */
void powersgd_restored(struct powersgd *s);

#endif
