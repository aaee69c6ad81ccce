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

/* A gradient within the flat array: `rows` is its first dimension, `cols` the product
 * of the others. */
struct powersgd_shape {
    int64_t rows, cols;
    /* elements after it that belong to none, and are left alone */
    int64_t gap;
};

struct powersgd;

/* ACCEL_EINVAL naming what is out of range. */
accel_status_t powersgd_check(const accel_powersgd_t *rule, accel_error_t *err);
/* The rule with its defaults filled in. */
accel_powersgd_t powersgd_rule(const accel_powersgd_t *rule);
/* Shapes lie one after the other in the flat gradient. `be` must outlive it and holds
 * all memory but two small copies on the host; NULL: no memory, for powersgd_sizes
 * only. `seed` is the same on all ranks. Errors: ACCEL_EINVAL (rule, shapes). */
accel_status_t powersgd_open(struct powersgd **powersgd_out, const struct backend *be,
                             const accel_powersgd_t *rule, uint64_t seed,
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

/* Is the sum of this step left to the caller, as it is? `step` counts from 0. */
bool powersgd_exact(const struct powersgd *s, int64_t step);
/* The gradient of this rank becomes nearly the mean over the ranks. Collective through
 * `peers`, whose errors it passes on; after one the gradient and the state are
 * undefined. Where the sums over the ranks are not finite the gradient becomes NaN on
 * all ranks, and what is missing stays as it was: the step can be left out. */
accel_status_t powersgd_reduce(struct powersgd *s, float *gradient, int64_t step,
                               const struct powersgd_peers *peers, accel_error_t *err);

/* Elements of float32. */
struct powersgd_sizes {
    /* of the gradients, without gaps */
    int64_t total;
    /* what a step sends through all_reduce */
    int64_t sent;
    /* what a checkpoint keeps, and all memory of the backend */
    int64_t state, memory;
};
struct powersgd_sizes powersgd_sizes(const struct powersgd *s);

/* What a checkpoint keeps: arrays of the backend's memory, zero at first, which may be
 * written between two steps. */
struct powersgd_state {
    /* What is missing so far, each rank's own; NULL without feedback. A checkpoint has
     * the mean of all, which keeps the sum of what the next step sees. */
    float *error;
    int64_t errors;
    /* the right factors, the same on all ranks; NULL without a warm start */
    float *right;
    int64_t rights;
};
struct powersgd_state powersgd_state_of(struct powersgd *s);

/* The part of that state that belongs to one matrix. */
struct powersgd_part {
    /* number of the gradient; batched, where there is one part for all: 0 */
    int shape;
    /* of the matrix; columns of its factors */
    int64_t rows, cols, rank;
    /* [rows][cols] and [cols][rank], or NULL */
    float *error, *right;
};
/* Part i = 0, 1, ...; false: there is none. */
bool powersgd_part(const struct powersgd *s, int i, struct powersgd_part *part_out);

#endif
