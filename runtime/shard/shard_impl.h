/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of shard/ share: the layout of a unit on this rank, the rings, the
 * state of a step. Not for other stages.
 *
 * On a device three queues run concurrently, and only events order them:
 *   master changed (compute) -> gather; slot gathered (gather) -> compute
 *   slot's last reader (compute) -> gather; last gather -> master changes (compute)
 *   gradient computed (compute) -> reduce; buffer reduced (reduce) -> compute
 *
 * The host waits for the device once per step, for the norm of the gradient. When
 * offloaded, masters, optimizer state and gradient shard lie in page-locked host
 * memory. Then a gather begins and a reduction ends with a copy, and the norm is
 * computed after that wait.
 *
 * Each wait is where its first reader needs it, and nowhere else.
 *
 * Calls go down this list: boxes, update, gradient_reduction, compressed, replicated,
 * gradients, init, ring, the store (masters, shard_state, fp8_gradients), unit_ranges.
 */
#ifndef ACCEL_SHARD_IMPL_H
#define ACCEL_SHARD_IMPL_H

#include "optim/optim.h"
#include "shard/shard.h"

/* What the shards keep for each optimizer. */
struct shard_trainer {
    struct shard_optim o;
    /* The number of arrays of its state, and of all that is kept for trained elements:
     * the moving average follows the state. */
    int states, arrays;
    const char *state_name[SHARD_MAX_STATE + 1];
    /* trained elements stored here */
    int64_t state_elems;
    /* of its state; the moving average is always float32 */
    accel_moments_t form;
    /* [state_elems] each; shard_array_at knows their dtypes */
    void *state[SHARD_MAX_STATE + 1];
    /* reduces its gradients, in `grad` from `compressed_at` on; NULL: not compressed */
    struct powersgd *powersgd;
    int64_t compressed_at;
    /* reductions so far */
    int64_t sums;
    /* a backward has added to its gradients since they were zeroed */
    bool dirty;
    /* Nonzero: they are complete, and this is the factor that each rank's own part was
     * multiplied by since the last backward, for equal parts on all ranks. 0: they are
     * not complete. */
    float reduced;
};

/* A slot for one gathered unit. In keep mode each unit owns one, else each ring has
 * two. */
struct shard_slot {
    /* -1: empty */
    int unit;
    /* calls of want without their done */
    int pins;
    /* gather.clock when it was last wanted; the slot with the smaller one is evicted */
    uint64_t used;
    /* the gather is complete (gather queue); the last reader is done (compute queue) */
    struct backend_event *ready, *read;
    /* number of the gather that filled it */
    uint64_t gathered;
    /* number of its last reader's mark */
    uint64_t left;
};

/* Masters, moments and gradients: the memory that the layout has offsets in. */
struct shard_store {
    /* [stored_elems] in the dtype of masters, then their scales; see shard_master_at */
    char *master;
    /* [trainers] */
    struct shard_trainer *trainer;
    int trainers;
    /* [grad_elems]; or narrow_grad, quantised, then scales; the other is NULL */
    float *grad;
    char *narrow_grad;
    /* grad belongs to comm_alloc */
    bool grad_in_window;
    /* [SHARD_STAGE_ELEMS], page-locked; NULL: no device */
    float *stage;
    /* of each parameter, in the order of units: it has no initial values yet */
    bool *undrawn;
    /* all parameters have values */
    bool all_drawn;
    /* of the initial values */
    uint64_t seed;
};

/* How units become available to the tape. */
struct gather_ring {
    /* resident, or offloaded (then in the memory of `home`): what units store whose
     * dtype is not that of masters, in their dtype; NULL: there are none */
    char *copy;
    /* resident: the copy matches the masters */
    bool copied;
    /* [units] offloaded: the unit's copy does */
    bool *fresh;
    /* the weights that are gathered in fp8, by their number among the layout's codes */
    accel_tensor_t **coded_param;
    /* In the memory of `be`, all in coded_room: coded_wide, numbers between masters and
     * codes, in the dtype of parameters; coded_spare, on a device room for the largest
     * part; coded_amax [codes.n], largest magnitudes; coded_scale [2 * codes.n], scales
     * and inverses. */
    void *coded_room;
    uint16_t *coded_wide;
    char *coded_spare;
    float *coded_amax, *coded_scale;
    /* the scales match the masters */
    bool coded_scaled;
    /* memory of all slots */
    char *gathered;
    struct shard_slot *slot;
    /* two for each ring, or as many as units */
    int slots;
    uint64_t clock;
    /* the masters have changed; copies of the boxes are complete */
    struct backend_event *updated, *boxes_read;
    /* compute has not waited for `boxes_read` yet */
    bool reading;
    /* A queue works in order, so a wait for an event includes all earlier events of its
     * queue. Gathers and marks (events of the compute queue) are numbered, and a wait
     * is skipped if its queue has already waited for a later number. The compute queue
     * has waited for gather number gather_seen, the gather queue for mark number
     * mark_seen. */
    uint64_t gathers, gather_seen;
    uint64_t marks, mark_seen;
    /* number of the mark `updated` */
    uint64_t changed;
};

/* The way of gradients from a backward to `grad`. */
struct reducer {
    /* The reduce buffers of all rings. Without any, gradients are accumulated in `grad`
     * directly. */
    float *buffer;
    /* of each ring, the unit whose gradient is in its buffer; -1: none */
    int open[SHARD_RINGS];
    /* whole copies whose gradients are summed in a narrow dtype: a unit on the wire;
     * NULL: they are summed in float32 */
    char *wire;
    /* a unit's own part; offloaded: on its way to `home`; narrow gradients: while it is
     * summed or changed */
    float *piece;
    /* [units] offloaded, or narrow gradients: micro-batches in the sum that `grad`
     * holds */
    uint32_t *sums;
    /* compute has written, and reduce has read, what `buffer` or `grad` holds */
    struct backend_event *computed, *reduced;
    /* compute has not waited for `reduced` yet */
    bool reducing;
    /* grad_scale: 1 / (world * accumulate * loss_scale), which makes sums means;
     * step_scale: a further factor on complete ones; loss_scale: that on the losses */
    float grad_scale, step_scale, loss_scale;
    /* elements of the longest all-reduce that memory is reserved for */
    int64_t sum_most;
    /* local SGD with quantised moments or narrow masters: a piece as float32 */
    float *mean_room;
};

/* Scratch of the optimizer's step. */
struct shard_step {
    /* [units], of shard_grad_sumsq; page-locked: its result */
    size_t units;
    struct span *span;
    double *sumsq;
    /* shard_update appends to these. range, scaled: [2 * all parameters + units]; step,
     * step_like: [all parameters]. step_like: the first parameter with those
     * constants. */
    struct update_span *range;
    /* the arrays with scales of each range; NULL: there are none */
    struct scaled_arrays *scaled;
    struct optim_step *step;
    const accel_tensor_t **step_like;
    int ranges, steps;
};

/* The order in which the last backward asked for units; see unit_order.c. */
struct unit_order {
    bool in_backward;
    int *unit;
    int len, cap, at, last;
    /* a hash of the collectives since the last step */
    uint64_t hash;
};

/* All state of the shards of one rank. */
struct shard {
    /* control messages between the ranks, on the host */
    struct comm *comm;
    /* gathers parameters in the backend's memory */
    struct comm *data;
    /* reduces gradients there, among the same ranks */
    struct comm *reduce_data;
    /* the ranks with the same gradient shard; NULL: none */
    struct comm *copies;
    const struct backend *be;
    /* of masters, state and grad: `be`, or the CPU */
    const struct backend *home;
    /* `home` is not `be` */
    bool offloaded;
    struct shard_options o;
    /* of the ranks that the state is cut over */
    int rank, world;
    struct shard_layout layout;
    struct shard_store store;
    struct gather_ring gather;
    struct reducer reducer;
    struct shard_step step;
    struct unit_order order;
};

/* unit_ranges.c: the part [*begin_out, *end_out) of parameter p, in its own elements,
 * that lies in the flat range [first, first + count) of its unit. False: nothing
 * does. */
bool shard_param_range(const accel_tensor_t *p, int64_t first, int64_t count,
                       int64_t *begin_out, int64_t *end_out);
/* The flat range of u that only this rank is responsible for: it stores this range in a
 * checkpoint and counts it in the norm. */
void shard_answers(const struct shard *s, const struct shard_unit *u,
                   int64_t *first_out, int64_t *count_out);

/* init.c: draws initial values for the parameters that have none yet. */
void shard_draw(struct shard *s);

/* ring.c: the unit's full parameters in its dtype; gathers them unless they are there.
 * Valid until done. Collective. */
accel_status_t shard_ring_want(struct shard *s, int unit, void **data_out,
                               accel_error_t *err);
void shard_ring_done(struct shard *s, int unit);
/* Gathers the unit that the last backward asked for next, among those in the ring of
 * `unit`, if a slot is free. Collective. */
accel_status_t shard_ring_prefetch(struct shard *s, int unit, accel_error_t *err);
/* Drops gathered and narrow copies of an optimizer's units, or of all (SHARD_ALL),
 * because the masters have changed. */
#define SHARD_ALL (-2)
void shard_ring_drop(struct shard *s, int optim);
/* Makes the compute queue wait for every gather, because gathers read masters. */
void shard_ring_settle(struct shard *s);
/* Call this before the compute queue changes masters or state. Makes it wait for
 * everything else that reads them: gathers, and copies of boxes (shard_read_begin). */
void shard_readers_settle(struct shard *s);
/* If offloaded, waits until copies from and to the device are complete. */
void shard_settle_home(struct shard *s);

/* fp8_gather.c: finds the weights that are gathered in fp8, for the layout. */
accel_status_t shard_coded_open(struct shard *s, const struct units *units,
                                accel_error_t *err);
/* Marks them so, and allocates their memory in addition to the slots. */
accel_status_t shard_coded_alloc(struct shard *s, accel_error_t *err);
void shard_coded_close(struct shard *s);
/* Computes the scales from the masters, unless they match already. Collective. */
accel_status_t shard_coded_scale(struct shard *s, accel_error_t *err);
/* Writes this rank's part of a unit to its place in `data`, in the form that is sent.
 * When all parts are there, shard_coded_close_up closes the gaps between them. */
void shard_coded_put(struct shard *s, const struct shard_unit *u, char *data);
void shard_coded_close_up(const struct shard *s, const struct shard_unit *u,
                          char *data);

/* unit_order.c: records that this backward wants `unit` now. */
accel_status_t shard_order_note(struct shard *s, int unit, accel_error_t *err);
/* The unit of that ring that comes next if this backward continues as the last one did;
 * -1: not known. */
int shard_order_next(const struct shard *s, int ring);
/* The collectives that enter the hash, and the call that adds one. */
enum shard_event { SHARD_GATHER = 1, SHARD_REDUCE = 2 };
void shard_order_hash(struct shard *s, enum shard_event what, int unit);
/* Collective. A0504: the ranks used the units in different orders. */
accel_status_t shard_order_check(struct shard *s, accel_error_t *err);

/* gradients.c: marks all reduce buffers as without a unit. */
void shard_close_units(struct shard *s);
/* Makes the reduce queue wait for what compute has written; the calls that follow go to
 * the reduce queue. */
void shard_begin_reduce(struct shard *s);
/* Switches back to the compute queue, which does not wait yet. */
void shard_end_reduce(struct shard *s);
/* From here on compute may change the reduce buffer, or read the gradient. */
void shard_wait_reduced(struct shard *s);
/* The float32 gradients of the optimizer's units stored here, as ranges of `grad`: the
 * first from unit *at on, which moves past it. False: there is none. */
bool shard_next_gradients(const struct shard *s, int optim, int *at, float **first_out,
                          int64_t *count_out);
/* Changes all of them, in whatever format, by a kernel of `be` with a float: be->scale
 * or be->clamp. */
typedef void shard_change_f(const struct backend *be, float *x, int64_t n, float by);
void shard_change_gradients(const struct shard *s, const struct backend *be, int optim,
                            shard_change_f *change, float by);
/* Where backward adds a unit's float32 gradient; reduces the unit before.
 * Collective. */
accel_status_t shard_grad(struct shard *s, int unit, float **grad_out,
                          accel_error_t *err);
/* Complete gradients become this rank's part of a sum again, which shard_reduce
 * completes as if all backwards had come before it. */
void shard_reopen(struct shard *s, struct shard_trainer *t);
/* Call this when the optimizer's gradients have been zeroed. Notes that, and drops
 * gathered copies of its units, which are stale. */
void shard_updated(struct shard *s, int optim);

/* replicated.c: sums the optimizer's gradients over the ranks in the dtype of `wire`,
 * and scales them. Collective. */
accel_status_t shard_sum_narrow(struct shard *s, int optim, accel_error_t *err);
/* Replaces x[n] by its mean over the ranks, on the queue in use. Collective. */
accel_status_t shard_mean(const struct shard *s, float *x, int64_t n,
                          accel_error_t *err);
/* Allocates memory for means of what is not float32: that many elements at a time. */
#define SHARD_MEAN_ELEMS ((int64_t)1 << 16)
accel_status_t shard_open_mean(struct shard *s, accel_error_t *err);

/* masters.c: the address of stored element `at`. */
void *shard_master_at(const struct shard *s, int64_t at);
/* Are masters narrower than float32? Are they float16 with scales? */
bool shard_has_narrow_masters(const struct shard *s);
bool shard_has_scaled_masters(const struct shard *s);
/* Scaled masters from stored element `at` on, a multiple of 32. */
struct scaled shard_scaled_at(const struct shard *s, int64_t at);
/* Writes n masters from stored element `at` on, a multiple of 32 where they are scaled,
 * to `to` as dtype `type`, by a kernel of `be`: home, or if not offloaded, the
 * backend. */
void shard_read_masters(const struct shard *s, const struct backend *be, int64_t at,
                        int64_t n, accel_dtype_t type, void *to);
/* Sets n narrow masters to from[n], in home's memory, to nearest; `at` as above. */
void shard_narrow_masters(const struct shard *s, int64_t at, int64_t n,
                          const float *from);

/* fp8_gradients.c: are gradients stored in e4m3? Those from element `at` of all
 * gradients on, a multiple of 32. */
bool shard_has_narrow_gradients(const struct shard *s);
struct scaled shard_gradient_at(const struct shard *s, int64_t at);
/* Dequantises the unit's gradients to float32 in the piece, which is returned; and the
 * reverse, rounded to nearest. What has not changed in between keeps its values. */
float *shard_widen_gradient(const struct shard *s, const struct shard_unit *u);
void shard_narrow_gradient(const struct shard *s, const struct shard_unit *u);
/* Quantises the piece with stochastic rounding: a sum of a micro-batch with those
 * `sums` before it, which is not yet complete. */
void shard_narrow_sum(const struct shard *s, const struct shard_unit *u, uint32_t sums);
/* Zeroes all of the optimizer's. */
void shard_zero_gradients(const struct shard *s, int optim);

/* An array of state from some element on; only one of the two has data. */
struct state_array {
    struct moments plain; /* float32, or 8-bit moments */
    struct scaled scaled; /* ACCEL_MOMENTS_FP8 */
};
/* The elements of a tensor of a checkpoint, in memory. */
struct stored {
    accel_dtype_t type;
    char *data;
    /* scales: how many elements share one, in one dimension; 0: these are not scales */
    int block;
};
/* shard_boxes.c: an array of state, or its scales; data is NULL if it has none. */
struct stored shard_stored_state(struct state_array x, bool scales);
/* shard_state.c: the bytes of array k of the optimizer's state, and the array from
 * element `at` on, a multiple of 32 if it is quantised. */
size_t shard_state_bytes(const struct shard_trainer *t, int k);
struct state_array shard_array_at(const struct shard_trainer *t, int k, int64_t at);
/* The same for an array that is float32. */
float *shard_state_at(const struct shard_trainer *t, int k, int64_t at);
/* Does an optimizer have ACCEL_MOMENTS_FP8? */
bool shard_has_scaled_state(const struct shard *s);
/* Dequantises elements [at, at + n) of x, `at` a multiple of 32, to float32; and the
 * reverse, rounded to nearest. `positive`: squares; those above 0 keep a code above 0.
 * In the memory of `be`, which is the host's if x is float32. */
void shard_widen_state(const struct backend *be, float *to, struct state_array x,
                       bool positive, int64_t at, int64_t n);
void shard_narrow_state(const struct backend *be, struct state_array x, int64_t at,
                        const float *from, bool positive, int64_t n);
/* checkpoint_dtypes.c: the format of state in the checkpoint or, without one, in the
 * run. The bytes for one array of n elements in that format; array k in such room. */
accel_moments_t shard_saved_moments(const struct shard_saved *saved,
                                    const struct shard_trainer *t, int optim);
size_t shard_room_bytes(int64_t n, accel_moments_t form);
struct state_array shard_room_at(const struct shard_trainer *t, char *room, int k,
                                 int64_t n, accel_moments_t form);
/* The dtype of masters in the checkpoint or, without one, in the run; the bytes of room
 * for n of them; and scaled masters in that room. */
accel_dtype_t shard_saved_masters(const struct shard_saved *saved,
                                  const struct shard *s);
size_t shard_master_room_bytes(int64_t n, accel_dtype_t type);
struct scaled shard_master_room(char *room, int64_t n);
/* The keys of the random numbers of a parameter, and of step t of an optimizer. */
uint64_t shard_name_hash(const accel_tensor_t *p);
uint64_t shard_draws(const struct shard *s, int64_t t);

/* compressed.c: PowerSGD of each optimizer, and its memory. */
accel_status_t shard_powersgd_open(struct shard *s, accel_error_t *err);
void shard_powersgd_close(struct shard *s);
/* The most elements that one reduction sends. */
int64_t shard_powersgd_sent(const struct shard *s);
/* The trained parameter with index `number` among the optimizer's. */
const accel_tensor_t *shard_trained_param(const struct shard *s, int optim, int number);
/* Will the next reduction of its gradients be compressed? */
bool shard_compresses(const struct shard *s, int optim);
/* Replaces its gradients times `scale` by an approximation of their mean over the
 * ranks. Collective. */
accel_status_t shard_compress(struct shard *s, int optim, float scale,
                              accel_error_t *err);

/* What a walk over the shards lists for a checkpoint: boxes, the bytes of their names
 * and of the room for what the checkpoint has in another form (`saved`; NULL: nothing).
 * box, text: where they go; NULL: the walk only counts. */
struct box_walk {
    const struct shard_saved *saved;
    size_t boxes, text_bytes, room_bytes;
    accel_ckpt_box_t *box;
    char *text;
};
typedef void shard_walk_f(const struct shard *s, bool for_load, struct box_walk *w);
/* powersgd_boxes.c: lists the state of PowerSGD. */
shard_walk_f shard_powersgd_boxes;
/* shard_boxes.c: makes the list of a walk, and that of PowerSGD after it. */
accel_status_t shard_walk_boxes(struct shard *s, bool for_load, shard_walk_f *walk,
                                struct shard_saved *saved, accel_ckpt_box_t **boxes_out,
                                size_t *count_out, accel_error_t *err);
/* Blocks of n elements. */
static inline int64_t shard_blocks(int64_t n, int block)
{
    return (n + block - 1) / block;
}

/* own_update.c: a step of the program's own optimizer; does not zero the gradients. */
accel_status_t shard_own_update(struct shard *s, int optim, float lr, int64_t t,
                                float grad_scale, accel_error_t *err);

#endif
