/* SPDX-License-Identifier: Apache-2.0
 *
 * shard/: flat units, and how they are spread over the ranks.
 *
 * Each unit's parameters lie in one float32 master buffer, padded to a multiple of
 * world * 128 bytes. FULL_SHARD keeps elements [rank * S, (rank + 1) * S) of it on each
 * rank, with the optimizer state and the gradient of the same range, and gathers the
 * whole unit, in the dtype of parameters, into a ring of two slots when the tape wants
 * it. SHARD_GRAD_OP gathers a unit once per step and keeps it. NO_SHARD keeps
 * everything everywhere. The HYBRID strategies do the first two within groups of ranks,
 * and sum the gradient over the copies of a group at the end of a step.
 *
 * The units of all models of a run lie side by side, and each is trained by one
 * optimizer, with state, gradient and steps of its own.
 *
 * Gradients go through one float32 reduce buffer, which is reduce-scattered when
 * backward moves to another unit. The wire carries the reduce dtype; sums are float32
 * in rank order. NO_SHARD sums them in place before the step, in float32 or by way of
 * that dtype, or (local SGD) not at all.
 *
 * Frozen parameters lie at the end of their unit and have no optimizer state; a unit of
 * nothing else has no gradient either.
 *
 * Names are always the original ones: the segment table maps flat ranges to
 * parameters.
 */
#ifndef ACCEL_SHARD_SHARD_H
#define ACCEL_SHARD_SHARD_H

#include "backend/device.h"
#include "accel_ckpt.h"
#include "comm/comm.h"
#include "config/config.h"
#include "tensor/units.h"

struct shard;

/* Arrays of state of one optimizer, at most. */
#define SHARD_MAX_STATE 4

/* Elements that travel between host and device at a time, through one
 * page-locked buffer. */
#define SHARD_STAGE_ELEMS ((int64_t)1 << 20)
#define SHARD_STAGE_BYTES ((size_t)SHARD_STAGE_ELEMS * sizeof(float))

/* One optimizer of the units whose `optim` is its number. */
struct shard_optim {
    /* with defaults; its groups are not looked at */
    accel_optimizer_t settings;
    /* the program's own update, and its state, in place of that of `settings`;
     * own.update NULL: there is none */
    accel_own_optim_t own;
    /* keeps a moving average of its parameters, for shard_average */
    bool averaged;
};

/* What shard_open is told. Everything pointed to must outlive the shards. */
struct shard_options {
    enum sharding_strategy strategy;
    enum backward_prefetch prefetch;
    struct precision precision;
    /* NO_SHARD: sums of gradients travel in precision.reduce, too; else in float32 */
    bool narrow_copies;
    /* NO_SHARD: each rank steps with its own gradients (local SGD), and shard_meet
     * brings the ranks together */
    bool local;
    /* copied by shard_open */
    const struct shard_optim *optim;
    int optims;
    /* owns the shards' memory and has their kernels */
    const struct backend *backend;
    /* Offloading: the CPU, where masters, optimizer state and gradient shard live
     * instead (page-locked) and where the optimizer runs; `backend` gathers, computes
     * and reduces. NULL: not offloaded. */
    const struct backend *home;
    /* Collectives on the backend's memory, among the ranks that the state is cut over;
     * NULL: the communicator given to shard_open. `reduce` has the same ranks and
     * serves the reduce queue alone, so that a reduction waits for no gather; NULL:
     * `data` does both. */
    struct comm *data, *reduce;
    /* HYBRID: the ranks that hold copies of this rank's part, in the memory of the
     * gradient shard. NULL: none. */
    struct comm *copies;
    const struct accel_log *log;
};

/* What is allocated on this rank, in bytes. */
struct shard_memory {
    size_t master, gradient_shard, gather_slots, reduce_buffer;
    /* of whole copies that are summed in a narrow dtype */
    size_t wire_buffer;
    /* of all kinds together, with the moving average */
    size_t moments;
    /* offloaded: bfloat16 copy of the masters to gather from */
    size_t narrow_master;
    /* gathered, in the dtype of parameters */
    size_t largest_unit, second_unit;
    /* the same, of the units that are not wholly frozen */
    size_t largest_trained;
};

/* Lays out the units and allocates everything; nothing is allocated in a step. The
 * units are not owned and must outlive the shards. Collective: when one rank is out of
 * memory, all fail. */
accel_status_t shard_open(struct shard **shard_out, struct comm *c,
                          const struct shard_options *o, const struct units *units,
                          accel_error_t *err);
/* Waits for the device, then frees everything; NULL is fine. Not collective. */
void shard_close(struct shard *s);
/* Initial values by counter, Philox(seed, hash(name), element): the same bits for any
 * world size. Called once. Arrays of the program are copied at once; random values are
 * drawn when parameters are first asked for. */
void shard_init(struct shard *s, uint64_t seed);
/* Says that all this rank stores of p has been written through shard_boxes: p is not
 * initialised any more. */
void shard_given(struct shard *s, const accel_tensor_t *p);
/* The table through which the tape asks for units. Its calls are collective. */
struct residency shard_residency(struct shard *s);

/* Around one backward; several may come before a step, and add up. end() hands in the
 * gradient that is still open, and is collective. */
accel_status_t shard_backward_begin(struct shard *s, int accumulate,
                                    accel_error_t *err);
accel_status_t shard_backward_end(struct shard *s, accel_error_t *err);
/* The factor on gradients that are completed from now on, 1 at first; a backward that
 * adds to complete ones takes it off again. */
void shard_step_scale(struct shard *s, float factor);
/* Gives up the micro-batches since the last step, wherever they are: zeroes the
 * gradients of all optimizers, and drops gathered copies. Not collective, but all ranks
 * must. */
void shard_abandon(struct shard *s);

/* What follows works on the gradients of one optimizer's units. */

/* Completes them: afterwards the gradient shard holds the sum over all backwards since
 * it was zeroed, divided by world * accumulate, times the factor of shard_step_scale.
 * Does nothing where they are complete; a backward may add to them later.
 * Collective. */
accel_status_t shard_reduce(struct shard *s, int optim, accel_error_t *err);
/* Sums them up over the ranks before they are complete: they stay parts of a sum, now
 * equal on all ranks that hold the same. Collective. */
accel_status_t shard_reduce_early(struct shard *s, int optim, accel_error_t *err);
/* Has a backward added to them since they were zeroed? The same on all ranks that use
 * the same units. */
bool shard_has_gradient(const struct shard *s, int optim);
/* Calls fn for the stored piece of every parameter's gradient, in a fixed order.
 * On a device fn gets a copy on the host; what it writes there is taken back.
 * Not collective. */
accel_status_t shard_each_gradient(struct shard *s, int optim, accel_gradient_f fn,
                                   void *user, accel_error_t *err);
/* Sum of squares of the gradient elements that this rank answers for: summed over all
 * ranks it is the global value under every strategy. Local SGD: of all that it has.
 * Waits for the device, and is the one call of a step that does: what the device has
 * not reported yet, such as ids out of range, is its error. Not collective. */
accel_status_t shard_grad_sumsq(struct shard *s, int optim, double *sum_out,
                                accel_error_t *err);
/* Multiplies them, complete ones, by `factor`. Not collective. */
void shard_scale(struct shard *s, int optim, float factor);
/* Brings each element of them, complete ones, into [-limit, limit]. Not collective. */
void shard_clamp(struct shard *s, int optim, float limit);
/* Are they complete, and has no backward added to them since? */
bool shard_is_reduced(const struct shard *s, int optim);
/* Zeroes them without a step. Not collective. */
void shard_zero(struct shard *s, int optim);
/* One step of the optimizer (t = 1, 2, ...) on the gradients times grad_scale, with the
 * lr_scale and weight_decay of each parameter. Zeroes the gradient and drops gathered
 * copies of its units. Not collective. An optimizer of the program may lack host memory
 * for copies of what is on a device; no other fails. */
accel_status_t shard_update(struct shard *s, int optim, float lr, int64_t t,
                            float grad_scale, accel_error_t *err);

/* Local SGD: parameters, or what is kept beside them (optimizer state and averages),
 * become their mean over the ranks. Drops gathered copies. Collective. */
accel_status_t shard_meet(struct shard *s, accel_error_t *err);
accel_status_t shard_meet_state(struct shard *s, accel_error_t *err);
/* average = keep average + take parameters, of an optimizer that is `averaged`. Not
 * collective. */
void shard_average(struct shard *s, int optim, float keep, float take);
/* Exchanges parameters and average; twice leaves the same bits. Only where the
 * gradients are zero: their memory is used. Drops gathered copies. Not collective, but
 * all ranks must. */
void shard_swap_average(struct shard *s, int optim);

/* What shard_open has allocated. */
void shard_memory(const struct shard *s, struct shard_memory *memory_out);
/* All pieces that this rank stores, as boxes that point into the shards: model/NAME,
 * and optim/NAME/STATE for what is trained, the average (ema) included. NO_SHARD: each
 * rank stores its 1/world of the flat range, and with for_load all of it. The caller
 * frees *boxes_out, one malloc that holds the names too. Not collective. */
accel_status_t shard_boxes(struct shard *s, bool for_load, accel_ckpt_box_t **boxes_out,
                           size_t *count_out, accel_error_t *err);
/* To be called before boxes are written in the middle of a run: waits for what still
 * reads the old values. */
void shard_settle(struct shard *s);
/* To be called when the boxes have been written: drops gathered copies, which
 * are stale. */
void shard_loaded(struct shard *s);

#endif
