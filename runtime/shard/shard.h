/* SPDX-License-Identifier: Apache-2.0
 *
 * shard/: flat units. Each unit's parameters lie in one float32 master buffer, padded to
 * world * 128 bytes; FULL_SHARD keeps elements [rank*S, (rank+1)*S) of it (and of the
 * optimizer's state and the gradient) on each rank and gathers the whole, in the dtype of
 * parameters, into a ring of two slots when the tape wants it; SHARD_GRAD_OP gathers a unit
 * once a step and keeps it; NO_SHARD keeps everything everywhere. The HYBRID strategies do
 * the first two within groups of ranks, and sum the gradient over the groups' copies at the
 * end of a step.
 * Gradients: one reduce buffer, float32, handed in when backward moves to another unit;
 * the wire carries the reduce dtype, sums are float32 in rank order.
 * What is not trained (frozen, the end of its unit) has no state; a unit of it alone no
 * gradient either.
 * Names are always the original ones: the segment table maps flat ranges to parameters.
 */
#ifndef ACCEL_SHARD_SHARD_H
#define ACCEL_SHARD_SHARD_H

#include "backend/backend.h"
#include "accel_ckpt.h"
#include "comm/comm.h"
#include "config/config.h"
#include "tensor/units.h"

struct shard;

/* What travels between host and device at a time. */
#define SHARD_STAGE_ELEMS ((int64_t)1 << 20)
#define SHARD_STAGE_BYTES ((size_t)SHARD_STAGE_ELEMS * sizeof(float))

struct shard_options {
    enum sharding_strategy strategy;
    enum backward_prefetch prefetch;
    struct precision precision;
    accel_optimizer_t optimizer;   /* with defaults; its groups are not looked at */
    const struct backend *backend; /* owns the shards' memory, and has their kernels */
    /* Sharded: the CPU, where masters, state and gradient shard live instead (page-locked)
     * and the optimizer runs; `backend` gathers, computes and reduces. NULL: not offloaded. */
    const struct backend *home;
    /* Collectives on that memory, among the ranks that the state is cut over; NULL: the one
     * of the control. `reduce` has the same ranks and is the reduce queue's own, so that it
     * waits for no gather; NULL: `data` does both. */
    struct comm *data, *reduce;
    /* HYBRID: the ranks that hold copies of this rank's part, in the memory of the gradient
     * shard. */
    struct comm *copies;
    const struct accel_log *log;
};

struct shard_memory { /* bytes of this rank */
    size_t master, moments /* of all kinds */, gradient_shard, gather_slots,
        reduce_buffer;
    size_t narrow_master; /* offloaded: bfloat16 copy of the masters to gather from */
    size_t largest_unit, second_unit; /* gathered, compute dtype */
    size_t largest_trained;           /* the same, of those that are not frozen whole */
};

/* Collective. Takes the units (not owned, must outlive it), allocates everything. */
accel_status_t shard_open(struct shard **shard_out, struct comm *c,
                          const struct shard_options *o, const struct units *units,
                          accel_error_t *err);
void shard_close(struct shard *s);
/* Once: initial values by counter, Philox(seed, hash(name), element). Any world size, same
 * bits. Arrays of the program are copied at once; what is drawn is drawn when parameters
 * are first asked for. */
void shard_init(struct shard *s, uint64_t seed);
/* All that this rank stores of p has been written through shard_boxes: no initial values. */
void shard_given(struct shard *s, const accel_tensor_t *p);
struct residency shard_residency(struct shard *s);

/* Around the backward of one micro-batch. end(): hands in the open gradient; with
 * `last` the gradient shard holds the mean over world * accumulate micro-batches. */
accel_status_t shard_backward_begin(struct shard *s, int accumulate,
                                    accel_error_t *err);
accel_status_t shard_backward_end(struct shard *s, bool last, accel_error_t *err);
/* Calls fn for the stored piece of every parameter's gradient, in a fixed order. On a device
 * fn gets a copy on the host, which is taken back. */
accel_status_t shard_each_gradient(struct shard *s, accel_gradient_f fn, void *user,
                                   accel_error_t *err);
/* Sum of squares of the gradient elements this rank answers for, so that summing over all
 * ranks gives the global value under every strategy. */
double shard_grad_sumsq(struct shard *s);
/* One step of the optimizer (t = 1, 2, ...) with gradients times grad_scale and, for each
 * parameter, the lr_scale and weight_decay it carries; zeroes the gradient and drops
 * gathered copies. */
void shard_update(struct shard *s, float lr, int64_t t, float grad_scale);

void shard_memory(const struct shard *s, struct shard_memory *memory_out);
/* All pieces this rank stores: model/NAME, and optim/NAME/STATE for what is trained, as
 * boxes pointing into the shards. NO_SHARD: each rank stores its 1/world of the flat range.
 * With for_load under NO_SHARD: everything. *boxes_out is one malloc with the names. */
accel_status_t shard_boxes(struct shard *s, bool for_load, accel_ckpt_box_t **boxes_out,
                           size_t *count_out, accel_error_t *err);
/* After a load: drops gathered copies. */
void shard_loaded(struct shard *s);

#endif
