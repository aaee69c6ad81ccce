/* SPDX-License-Identifier: Apache-2.0
 *
 * shard/: flat units, and how they are sharded over the ranks.
 *
 * Each unit's parameters lie in one buffer of master weights, float32, bfloat16 or
 * float16, padded to a multiple of world * 32 elements. FULL_SHARD keeps its elements
 * [rank * S, (rank + 1) * S) on each rank, S = padded / world, with the optimizer state
 * and the gradient of the same range. It gathers the whole unit, in the dtype of
 * parameters, into a ring of two slots when the tape wants it. SHARD_GRAD_OP gathers a
 * unit once per step and keeps it. NO_SHARD keeps everything on every rank. The HYBRID
 * strategies do the first two within groups of ranks, and sum the gradients of the same
 * shard over the groups at the end of a step.
 *
 * The units of all models of a run lie side by side. Each is trained by one optimizer,
 * which has its own state, gradients and steps.
 *
 * Gradients go through one float32 reduce buffer for each ring, which is
 * reduce-scattered when backward moves to another unit of that ring. The wire carries
 * the reduce dtype; sums are float32 in rank order. NO_SHARD sums gradients in place
 * before the step: in float32, through the reduce dtype, or compressed (PowerSGD). With
 * local SGD it does not sum them at all.
 *
 * Frozen parameters lie at the end of their unit and have no optimizer state. A unit
 * that is entirely frozen has no gradient either.
 *
 * Names are always those of the original parameters: the segment table maps flat ranges
 * to parameters.
 */
#ifndef ACCEL_SHARD_SHARD_H
#define ACCEL_SHARD_SHARD_H

#include "backend/device.h"
#include "accel_ckpt.h"
#include "accel_objects.h"
#include "comm/comm.h"
#include "config/config.h"
#include "plan/shard_layout.h"
#include "powersgd/powersgd.h"
#include "precision/policy.h"
#include "tensor/units.h"

struct shard;

/* The most arrays of state that one optimizer may have. */
#define SHARD_MAX_STATE 4

/* Elements copied between host and device at a time, through one page-locked buffer. */
#define SHARD_STAGE_ELEMS ((int64_t)1 << 20)
#define SHARD_STAGE_BYTES ((size_t)SHARD_STAGE_ELEMS * sizeof(float))

/* One optimizer: that of the units whose `optim` is its number. */
struct shard_optim {
    /* distinguishes PowerSGD's state of several optimizers; "": the only one */
    const char *name;
    /* with defaults; its groups are ignored */
    accel_optimizer_t settings;
    /* the program's own update and state, instead of those of `settings`; own.update
     * NULL: there is none */
    accel_own_optim_t own;
    /* keeps a moving average of its parameters (shard_average) */
    bool averaged;
};

/* The options of shard_open. Everything pointed to must outlive the shards. */
struct shard_options {
    enum sharding_strategy strategy;
    enum backward_prefetch prefetch;
    struct precision precision;
    /* NO_SHARD: each rank steps with its own gradients (local SGD), and shard_meet
     * averages over the ranks */
    bool local;
    /* NO_SHARD: the reduction of gradients is compressed, with random numbers from
     * `seed`; NULL: it is not */
    const accel_powersgd_t *powersgd;
    uint64_t seed;
    /* copied by shard_open */
    const struct shard_optim *optim;
    int optims;
    /* owns the shards' memory and has their kernels */
    const struct backend *backend;
    /* Offloading: the CPU, where masters, optimizer state and gradient shard live
     * instead (page-locked) and where the optimizer runs; `backend` gathers, computes
     * and reduces. NULL: not offloaded; NO_SHARD never is. */
    const struct backend *home;
    /* Collectives on the backend's memory, among the ranks that the state is cut over;
     * NULL: the communicator given to shard_open. `reduce` has the same ranks and
     * serves only the reduce queue, so that reductions never wait for gathers; NULL:
     * `data` does both. */
    struct comm *data, *reduce;
    /* HYBRID: the ranks that hold copies of this rank's part; works in the memory of
     * the gradient shard. NULL: none. */
    struct comm *copies;
    const struct accel_log *log;
};

/* Lays out the units and allocates everything; nothing is allocated in a step. The
 * units are not owned and must outlive the shards. Collective: if one rank is out of
 * memory, all fail. */
accel_status_t shard_open(struct shard **shard_out, struct comm *c,
                          const struct shard_options *o, const struct units *units,
                          accel_error_t *err);
/* Waits for the device, then frees everything; NULL is fine. Not collective. */
void shard_close(struct shard *s);
/* Sets initial values with a counter-based generator, Philox(seed, hash(name),
 * element): the same bits for any world size. Called once. Arrays of the program are
 * copied at once; random values are drawn when parameters are first needed. */
void shard_init(struct shard *s, uint64_t seed);
/* Says that everything this rank stores of p has been written through shard_boxes, so p
 * will not be initialised. */
void shard_given(struct shard *s, const accel_tensor_t *p);
/* The table through which the tape requests units. Its calls are collective. */
struct residency shard_residency(struct shard *s);

/* Call these before and after one backward; several may precede a step, and add up.
 * shard_backward_end reduces the gradient still open, and is collective. */
accel_status_t shard_backward_begin(struct shard *s, int accumulate,
                                    accel_error_t *err);
accel_status_t shard_backward_end(struct shard *s, accel_error_t *err);
/* Sets the factor on gradients that are completed from now on, initially 1. A backward
 * that adds to complete gradients removes it from them first. */
void shard_step_scale(struct shard *s, float factor);
/* Sets the factor on the losses of backwards from now on, initially 1: gradients are
 * divided by it when they are summed or completed. Gradients that already wait for a
 * step are rescaled to it. Not collective. */
void shard_loss_scale(struct shard *s, float scale);
/* Gives up the micro-batches since the last step, whatever their state: zeroes the
 * gradients of all optimizers, and drops gathered copies. Not collective, but all ranks
 * must call it. */
void shard_abandon(struct shard *s);

/* The calls that follow work on the gradients of one optimizer's units, "them". */

/* Completes them: afterwards the gradient shard holds the sum over all backwards since
 * it was zeroed, divided by world * accumulate and by the loss scale, times the factor
 * of shard_step_scale. Does nothing if they are complete; a backward may add to them
 * later. Collective. */
accel_status_t shard_reduce(struct shard *s, int optim, accel_error_t *err);
/* Reduces them over the ranks before they are complete: they remain partial sums, now
 * equal on all ranks that store the same elements. Collective. */
accel_status_t shard_reduce_early(struct shard *s, int optim, accel_error_t *err);
/* Has a backward added to them since they were zeroed? The same on all ranks, if they
 * use the same units. */
bool shard_has_gradient(const struct shard *s, int optim);
/* Calls fn for the stored piece of every parameter's gradient, in a fixed order. With a
 * device, fn gets a host copy, and what it writes is copied back. Not collective. */
accel_status_t shard_each_gradient(struct shard *s, int optim, accel_gradient_f fn,
                                   void *user, accel_error_t *err);
/* The sum of squares of the gradient elements that this rank is responsible for: summed
 * over all ranks it is the global value under every strategy. Local SGD: of all
 * elements of this rank. The only call of a step that waits for the device, so it
 * returns errors not yet reported, such as ids out of range. Not collective. */
accel_status_t shard_grad_sumsq(struct shard *s, int optim, double *sum_out,
                                accel_error_t *err);
/* Multiplies them by `factor`; they must be complete. Not collective. */
void shard_scale(struct shard *s, int optim, float factor);
/* Clamps them, elementwise, to [-limit, limit]; they must be complete. Not
 * collective. */
void shard_clamp(struct shard *s, int optim, float limit);
/* Are they complete, and has no backward added to them since? */
bool shard_is_reduced(const struct shard *s, int optim);
/* Zeroes them without a step. Not collective. */
void shard_zero(struct shard *s, int optim);
/* Makes step t = 1, 2, ... of the optimizer with the gradients times grad_scale, and
 * with the lr_scale and weight_decay of each parameter. Zeroes the gradients and drops
 * gathered copies of its units. Not collective. Fails only for an optimizer of the
 * program, if there is no host memory for copies of what is on a device. */
accel_status_t shard_update(struct shard *s, int optim, float lr, int64_t t,
                            float grad_scale, accel_error_t *err);

/* Local SGD: replaces the parameters, or what is kept beside them (optimizer state and
 * averages), by their mean over the ranks. Drops gathered copies. Collective. */
accel_status_t shard_meet(struct shard *s, accel_error_t *err);
accel_status_t shard_meet_state(struct shard *s, accel_error_t *err);
/* average = keep * average + take * parameters; the optimizer must be `averaged`. Not
 * collective. */
void shard_average(struct shard *s, int optim, float keep, float take);
/* Swaps parameters and average; two swaps restore the same bits. The gradients must be
 * zero, because their memory is used. Drops gathered copies. Not collective, but all
 * ranks must call it. */
void shard_swap_average(struct shard *s, int optim);

/* PowerSGD: replaces each optimizer's errors by their mean over the ranks.
 * Collective. */
accel_status_t shard_meet_errors(struct shard *s, accel_error_t *err);
/* How many reductions the optimizer's gradients have had, compressed or not; 0: without
 * PowerSGD. Checkpoints store this number, and shard_set_sums restores it. */
int64_t shard_sums(const struct shard *s, int optim);
void shard_set_sums(struct shard *s, int optim, int64_t sums);
/* Computes what the shards of those units will allocate and send for an optimizer. */
accel_status_t shard_powersgd_sizes(const struct units *units, int optim,
                                    const accel_powersgd_t *rule,
                                    struct powersgd_sizes *sizes_out,
                                    accel_error_t *err);

/* Reports what shard_open has allocated. */
void shard_memory(const struct shard *s, struct shard_memory *memory_out);
/* All pieces that this rank stores, as boxes that point into the shards: model/NAME,
 * scale/NAME for float16 masters, optim/NAME/STATE for trained parameters, the average
 * (ema) included, and after these the state of PowerSGD (powersgd_boxes.c). NO_SHARD:
 * each rank stores its 1/world of the flat range; with for_load, all of it. The caller
 * frees *boxes_out, one malloc that holds the names too. Not collective. */
accel_status_t shard_boxes(struct shard *s, bool for_load, accel_ckpt_box_t **boxes_out,
                           size_t *count_out, accel_error_t *err);

/* What is needed to read a checkpoint whose masters or optimizer state have another
 * format than the run's: bfloat16, float16, quantised moments, or float32. */
struct shard_saved {
    accel_dtype_t masters;
    /* of each optimizer */
    accel_moments_t moments[ACCEL_MAX_OPTIMS];
    /* host memory for what has another format; the caller frees it */
    char *room;
    size_t room_bytes;
    /* Was the parameter read? If not, shard_take_saved skips it. NULL: all were. */
    bool (*has)(void *user, const accel_tensor_t *p);
    void *user;
};
/* Scales of quantised moments are separate tensors, whose names end in this. */
#define SHARD_SCALE_SUFFIX ".scale"
/* Scales of float16 masters are, too; their names begin with this. */
#define SHARD_EXPONENT_PREFIX "scale/"
/* Is `name` that of scales of masters? */
bool shard_is_exponents(const char *name);
/* shard_boxes for a load, in the checkpoint's formats: boxes whose format is not the
 * run's point into saved->room. Not collective. */
accel_status_t shard_boxes_saved(struct shard *s, struct shard_saved *saved,
                                 accel_ckpt_box_t **boxes_out, size_t *count_out,
                                 accel_error_t *err);
/* The flat shards as they lie in memory, padding included: flat/UNIT, scale/flat/UNIT
 * for float16 masters, and optim/flat/UNIT/STATE, each with one dimension; UNIT counts
 * from 0. The state of PowerSGD follows them. Only the same ranks with the same units
 * can load them. Otherwise as shard_boxes. */
accel_status_t shard_flat_boxes(struct shard *s, bool for_load,
                                accel_ckpt_box_t **boxes_out, size_t *count_out,
                                accel_error_t *err);
/* Call this when the boxes of shard_boxes_saved have been read. Converts saved->room to
 * the run's masters and state. Float32 is rounded to nearest. Not collective. */
accel_status_t shard_take_saved(struct shard *s, const struct shard_saved *saved,
                                accel_error_t *err);
/* A0999: a box of scales, in host memory, has a value that no save writes. */
accel_status_t shard_check_scales(const accel_ckpt_box_t *box, size_t boxes,
                                  const char *dir, accel_error_t *err);
/* Converts n > 0 values in host memory to masters of dtype `type` at `to`, in the
 * memory of `home`, rounded to nearest. */
void shard_put_masters(const struct backend *home, void *to, accel_dtype_t type,
                       const float *values, int64_t n);
/* The same for n numbers with scales, from the start of a block; and the reverse. */
void shard_put_scaled(const struct backend *home, struct scaled to, const float *values,
                      int64_t n);
void shard_get_scaled(const struct backend *home, struct scaled from, float *values_out,
                      int64_t n);
/* The backend in whose memory the boxes are. */
const struct backend *shard_home(const struct shard *s);
/* Call these before and after copying boxes by be->copy. The copies get the values that
 * all calls so far leave, and whatever writes the boxes later waits on the device until
 * the copies are complete. */
void shard_read_begin(struct shard *s);
void shard_read_end(struct shard *s);
/* Call this before boxes are written during a run. Waits for what reads old values. */
void shard_settle(struct shard *s);
/* Call this when the boxes have been written. Drops gathered copies: they are stale. */
void shard_loaded(struct shard *s);

#endif
