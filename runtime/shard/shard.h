/* SPDX-License-Identifier: Apache-2.0
 *
 * shard/: flat units, and how they are spread over the ranks.
 *
 * Each unit's parameters lie in one master buffer, float32, bfloat16 or float16, padded
 * to a multiple of world * 32 elements. FULL_SHARD keeps elements from rank * S to
 * (rank + 1) * S of it on each rank, with the optimizer state and the gradient of the
 * same range, and gathers the whole unit, in the dtype of parameters, into a ring of
 * two slots when the tape wants it. SHARD_GRAD_OP gathers a unit once per step and
 * keeps it. NO_SHARD keeps everything everywhere. The HYBRID strategies do the first
 * two within groups of ranks, and sum the gradient over the copies of a group at the
 * end of a step.
 *
 * The units of all models of a run lie side by side, and each is trained by one
 * optimizer, with state, gradient and steps of its own.
 *
 * Gradients go through one float32 reduce buffer, which is reduce-scattered when
 * backward moves to another unit. The wire carries the reduce dtype; sums are float32
 * in rank order. NO_SHARD sums them in place before the step, in float32, by way of
 * that dtype or compressed (PowerSGD), or (local SGD) not at all.
 *
 * Frozen parameters lie at the end of their unit and have no optimizer state; a unit of
 * nothing else has no gradient either.
 *
 * Names are always the original ones: the segment table maps flat ranges to parameters.
 */
#ifndef ACCEL_SHARD_SHARD_H
#define ACCEL_SHARD_SHARD_H

#include "backend/device.h"
#include "accel_ckpt.h"
#include "accel_objects.h"
#include "comm/comm.h"
#include "config/config.h"
#include "powersgd/powersgd.h"
#include "precision/policy.h"
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
    /* tells apart what PowerSGD keeps of several; "": of the only one */
    const char *name;
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
    /* NO_SHARD: each rank steps with its own gradients (local SGD), and shard_meet
     * brings the ranks together */
    bool local;
    /* NO_SHARD: sums of gradients are compressed, with draws by `seed`; NULL: not */
    const accel_powersgd_t *powersgd;
    uint64_t seed;
    /* copied by shard_open */
    const struct shard_optim *optim;
    int optims;
    /* owns the shards' memory and has their kernels */
    const struct backend *backend;
    /* Offloading: the CPU, where masters, optimizer state and gradient shard live
     * instead (page-locked) and where the optimizer runs; `backend` gathers, computes
     * and reduces. NULL: not offloaded, as are whole copies (NO_SHARD). */
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
    /* of all optimizers, where those sums are compressed */
    size_t powersgd;
    /* of all kinds together, with the moving average */
    size_t moments;
    /* offloaded: narrow copy of the masters to gather from */
    size_t narrow_master;
    /* beside gather_slots, where weights are gathered in fp8 */
    size_t coded_room;
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
/* The factor on the losses of the backwards from now on, 1 at first: what their
 * gradients are divided by when they are summed or completed. Gradients that wait for a
 * step are brought to it. Not collective. */
void shard_loss_scale(struct shard *s, float scale);
/* Gives up the micro-batches since the last step, wherever they are: zeroes the
 * gradients of all optimizers, and drops gathered copies. Not collective, but all ranks
 * must. */
void shard_abandon(struct shard *s);

/* What follows works on the gradients of one optimizer's units. */

/* Completes them: afterwards the gradient shard holds the sum over all backwards since
 * it was zeroed, divided by world * accumulate and by the loss scale, times the factor
 * of shard_step_scale.
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

/* Compressed sums: what is left out, of each optimizer, becomes the mean over the
 * ranks. Collective. */
accel_status_t shard_meet_errors(struct shard *s, accel_error_t *err);
/* The sums that the optimizer's gradients have been through; belongs into checkpoints,
 * whose number shard_set_sums takes. 0 where they are not compressed. */
int64_t shard_sums(const struct shard *s, int optim);
void shard_set_sums(struct shard *s, int optim, int64_t sums);
/* What the shards of those units will need and send for an optimizer. */
accel_status_t shard_powersgd_sizes(const struct units *units, int optim,
                                    const accel_powersgd_t *rule,
                                    struct powersgd_sizes *sizes_out,
                                    accel_error_t *err);

/* What shard_open has allocated. */
void shard_memory(const struct shard *s, struct shard_memory *memory_out);
/* All pieces that this rank stores, as boxes that point into the shards: model/NAME,
 * scale/NAME for float16 ones, and optim/NAME/STATE for what is trained, the average
 * (ema) included; what PowerSGD keeps (powersgd_boxes.c) behind them. NO_SHARD: each
 * rank stores its 1/world of the flat range, and with for_load all of it. The caller
 * frees *boxes_out, one malloc that holds the names too. Not collective. */
accel_status_t shard_boxes(struct shard *s, bool for_load, accel_ckpt_box_t **boxes_out,
                           size_t *count_out, accel_error_t *err);

/* A checkpoint that is read may have masters or an optimizer's state in another form
 * than the run: bfloat16, float16 or narrow moments, or float32. */
struct shard_saved {
    accel_dtype_t masters;
    /* of each optimizer */
    accel_moments_t moments[ACCEL_MAX_OPTIMS];
    /* host memory for what has another form; the caller frees it */
    char *room;
    size_t room_bytes;
    /* Was the parameter read? Others shard_take_saved leaves alone. NULL: all were. */
    bool (*has)(void *user, const accel_tensor_t *p);
    void *user;
};
/* Scales of narrow moments are a tensor of their own: their name's end. */
#define SHARD_SCALE_SUFFIX ".scale"
/* So are those of float16 masters: the start of their name. */
#define SHARD_EXPONENT_PREFIX "scale/"
/* Is that the name of scales of masters? */
bool shard_is_exponents(const char *name);
/* shard_boxes for a load, in the checkpoint's form: boxes of state in another form than
 * the run's point into saved->room. Not collective. */
accel_status_t shard_boxes_saved(struct shard *s, struct shard_saved *saved,
                                 accel_ckpt_box_t **boxes_out, size_t *count_out,
                                 accel_error_t *err);
/* The flat shards as they lie in memory, padding included: flat/UNIT, scale/flat/UNIT
 * for float16 ones, and optim/flat/UNIT/STATE, of one dimension; UNIT counts from 0.
 * What PowerSGD keeps lies behind them. Only the same ranks of the same units can load
 * them. Otherwise as shard_boxes. */
accel_status_t shard_flat_boxes(struct shard *s, bool for_load,
                                accel_ckpt_box_t **boxes_out, size_t *count_out,
                                accel_error_t *err);
/* When the boxes of shard_boxes_saved have been read: makes the run's masters and state
 * of saved->room. Float32 is rounded to the nearest. Not collective. */
accel_status_t shard_take_saved(struct shard *s, const struct shard_saved *saved,
                                accel_error_t *err);
/* A0999: a box of scales, in host memory, has one that no save writes. */
accel_status_t shard_check_scales(const accel_ckpt_box_t *box, size_t boxes,
                                  const char *dir, accel_error_t *err);
/* n > 0 values in host memory become masters of that type at `to`, in the memory of
 * `home`, rounded to the nearest. */
void shard_put_masters(const struct backend *home, void *to, accel_dtype_t type,
                       const float *values, int64_t n);
/* The same of n numbers with scales, from the start of a block; and back. */
void shard_put_scaled(const struct backend *home, struct scaled to, const float *values,
                      int64_t n);
void shard_get_scaled(const struct backend *home, struct scaled from, float *values_out,
                      int64_t n);
/* The backend in whose memory the boxes are. */
const struct backend *shard_home(const struct shard *s);
/* Around copies of boxes by be->copy: they get the values that all calls so far leave,
 * and whatever writes the boxes later waits on the device until they are made. */
void shard_read_begin(struct shard *s);
void shard_read_end(struct shard *s);
/* To be called before boxes are written in the middle of a run: waits for what still
 * reads the old values. */
void shard_settle(struct shard *s);
/* To be called when the boxes have been written: drops gathered copies, which
 * are stale. */
void shard_loaded(struct shard *s);

#endif
