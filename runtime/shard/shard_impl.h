/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of shard/ share: the layout of a unit on this rank, the ring, the
 * state of one step. Not for other stages.
 *
 * On a device three queues work side by side, and only events order them:
 *   master changed (compute) -> gather; slot gathered (gather) -> compute
 *   slot's last reader (compute) -> gather; last gather -> master changes (compute)
 *   gradient computed (compute) -> reduce; buffer reduced (reduce) -> compute
 *
 * The host waits for the device once per step, for the norm of the gradient. When
 * offloaded, masters, optimizer state and gradient shard lie in page-locked host
 * memory. Gather and reduce then begin or end with a copy, and the norm is computed
 * after that wait.
 *
 * Each wait stands where the first reader needs it, and only there.
 */
#ifndef ACCEL_SHARD_IMPL_H
#define ACCEL_SHARD_IMPL_H

#include "optim/optim.h"
#include "shard/shard.h"

/* One unit. The `own` elements from flat index rank * own on are this rank's part: it
 * stores them (FULL_SHARD), or answers for them among the copies (NO_SHARD). */
struct shard_unit {
    const struct unit *def;
    /* what it is gathered in, and what its gradient has on the wire; the ring of all
     * such units */
    accel_dtype_t type, reduce;
    int ring;
    /* elements, a multiple of world * 32 */
    int64_t padded;
    /* padded / world */
    int64_t own;
    /* bytes of each rank's part when it is gathered, and where the unit starts among
     * the gathered bytes of all units */
    size_t part_bytes, all_at;
    /* where it starts in `copy`, in bytes */
    size_t copy_at;
    /* what of it is coded, in the shards' lists: from that number on, how many */
    int coded_at, coded;
    /* flat index of the first element stored here */
    int64_t first;
    /* elements stored here: own, or padded */
    int64_t stored;
    /* where they start in `master` */
    int64_t at;
    /* the same in each array of its optimizer's state, and the elements there */
    int64_t state_at, state;
    /* the same in `grad`, which has all stored ones; -1: nothing is trained */
    int64_t grad_at;
    /* offloaded: the narrow copy matches the masters */
    bool fresh;
    /* offloaded, or narrow gradients: there is a sum of earlier micro-batches */
    bool partial;
    /* micro-batches in that sum */
    uint32_t sums;
    /* [def->param_count]: still without initial values */
    bool *undrawn;
};

/* What is there once for each optimizer. */
struct shard_trainer {
    struct shard_optim o;
    /* Arrays of its state, and of all that is kept for a trained element: the moving
     * average comes behind the state. */
    int states, arrays;
    const char *state_name[SHARD_MAX_STATE + 1];
    /* trained elements stored here */
    int64_t state_elems;
    /* of its state; the moving average is float32 in any case */
    accel_moments_t form;
    /* [state_elems] each; shard_array_at knows the types */
    void *state[SHARD_MAX_STATE + 1];
    /* sums its gradients, which begin at that place in `grad`; NULL: not compressed */
    struct powersgd *powersgd;
    int64_t compressed_at;
    /* sums so far */
    int64_t sums;
    /* a backward has added to its gradients since they were zeroed */
    bool dirty;
    /* They are complete: what each rank's own part was multiplied by on the way from
     * the last backward, if all ranks had the same one; 0: they are not. */
    float reduced;
};

/* What the units of one dtype and wire share: two slots in one region of (largest +
 * second largest) bytes, of which the first grows up from its start, the second down
 * from its end, so that any two different units fit side by side without either slot
 * having the size of the largest; and a reduce buffer. A block whose norms have another
 * dtype goes from one ring to the other and back, and neither evicts what the other
 * needs next. */
struct shard_ring {
    accel_dtype_t type, reduce_type;
    int units;
    /* bytes of gathered units; elements of those that are not wholly frozen */
    size_t largest, second;
    int64_t largest_trained;
    /* its region */
    char *memory;
    size_t bytes;
    /* of one unit, which is `open`; -1: none is. NULL: there is none. */
    float *reduce;
    int open;
};

/* A place for one gathered unit. In keep mode each unit owns a slot, otherwise each
 * ring has two. */
struct shard_slot {
    /* -1: empty */
    int unit;
    /* want without done */
    int pins;
    /* shard.clock when it was last wanted; the smaller one is evicted */
    uint64_t used;
    /* gathered (gather queue); read for the last time (compute queue) */
    struct backend_event *ready, *read;
    /* number of the gather that filled it */
    uint64_t gathered;
    /* number of its last reader's mark */
    uint64_t left;
};

/* All state of the shards of one rank. */
struct shard {
    /* control messages between the ranks, on the host */
    struct comm *comm;
    /* gathers parameters, in the backend's memory */
    struct comm *data;
    /* reduces gradients there, among the same ranks */
    struct comm *reduce_data;
    /* ranks with the same gradient shard; NULL: none */
    struct comm *copies;
    const struct backend *be;
    /* of masters, state and grad: `be`, or the CPU */
    const struct backend *home;
    /* home is another backend than be */
    bool offloaded;
    struct shard_options o;
    /* among the ranks that the state is cut over */
    int rank, world;
    struct shard_unit *unit;
    int units;
    /* sums over all units: padded elements, bytes when they are gathered */
    int64_t all_elems;
    size_t all_bytes;
    /* of `copy` */
    size_t copy_bytes;
    int64_t stored_elems, grad_elems;
    /* no unit has a parameter without values */
    bool all_drawn;
    /* of the initial values */
    uint64_t seed;
    struct shard_memory memory;
    /* [trainers] */
    struct shard_trainer *trainer;
    int trainers;
    /* [stored_elems] in the type of masters, scales behind them; shard_master_at */
    char *master;
    /* [grad_elems], or narrow with their scales behind them; the other is NULL */
    float *grad;
    char *narrow_grad;
    /* [SHARD_STAGE_ELEMS], page-locked; NULL: no device */
    float *stage;
    /* grad belongs to comm_alloc */
    bool grad_in_window;
    /* elements of the longest all-reduce that is reserved */
    int64_t sum_most;

    /* How parameters become present. resident: whole here; units in the dtype of
     * masters are those as they are, of all others there is a copy. Not scaled masters,
     * which go through rings even where they are whole. keep: a slot for every unit,
     * gathered once per step; also of whole fp8 weights.
     * Otherwise the rings. */
    bool resident, keep;
    /* resident, or offloaded (then at home): what units in other dtypes than masters
     * store, in their dtype; NULL: there are none */
    char *copy;
    /* resident: it matches the masters */
    bool copied;
    /* Weights that are gathered in fp8, [coded.n] in the order of units: places and
     * themselves. coded.n 0: none. */
    struct plan_codes coded;
    accel_tensor_t **coded_param;
    /* In the memory of `be`, all in coded_room: numbers on their way from masters to
     * codes, in the dtype of parameters; on a device room for the largest part; largest
     * magnitudes [coded.n]; scales and inverses [2 coded.n]. */
    void *coded_room;
    uint16_t *coded_wide;
    char *coded_spare;
    float *coded_amax, *coded_scale;
    /* their scales are those of the masters */
    bool coded_scaled;
    /* memory of all slots */
    char *gathered;
    /* [rings], at most as many as units */
    struct shard_ring *ring;
    int rings;
    struct shard_slot *slot;
    /* two for each ring, or as many as units */
    int slots;
    uint64_t clock;
    /* the masters have changed; copies of the boxes have been made */
    struct backend_event *updated, *boxes_read;
    /* compute has not waited for `boxes_read` yet */
    bool reading;
    /* A queue keeps its order, so waiting for an event implies all earlier ones of its
     * queue. Gathers and marks (events of the compute queue) are numbered, and a wait
     * is skipped where a later number was waited for. The compute queue has waited for
     * gather number gather_seen, the gather queue for mark number mark_seen. */
    uint64_t gathers, gather_seen;
    uint64_t marks, mark_seen;
    /* number of the mark `updated` */
    uint64_t changed;

    /* Gradients: the reduce buffers of all rings. Without any they are added up in
     * `grad` directly. */
    float *reduce;
    /* whole copies that are summed in a narrow dtype: a unit on the wire; NULL: they
     * are summed as they are */
    char *wire;
    /* offloaded: a unit's own part on its way home; narrow gradients: while it is
     * summed or changed */
    float *piece;
    /* compute has written, reduce has read what `reduce` or `grad` holds */
    struct backend_event *computed, *reduced;
    /* compute has not waited for `reduced` yet */
    bool reducing;
    /* 1 / (world * accumulate * loss_scale): sums become means; what complete ones are
     * multiplied by besides; what the losses were multiplied by */
    float grad_scale, step_scale, loss_scale;
    /* [units], scratch of shard_grad_sumsq */
    struct span *span;
    /* page-locked: its result */
    double *sumsq;
    /* local SGD with 8-bit moments or narrow masters: a piece as float32 */
    float *mean_room;
    /* [all parameters * 2 + units], [all parameters]: scratch of shard_update, which
     * appends to them. step_like: the first parameter with those constants. */
    struct update_span *range;
    /* what each of them has with scales; NULL: nothing */
    struct scaled_arrays *scaled;
    struct optim_step *step;
    const accel_tensor_t **step_like;
    int ranges, steps;

    /* The order in which the last backward asked for units; see unit_order.c. */
    bool in_backward;
    int *order;
    int order_len, order_cap, order_at, last_unit;
    /* of the collectives since the last step */
    uint64_t hash;
};

/* shard.c: elements of the unit, from its start, that are trained. */
int64_t shard_trained_elems(const struct shard_unit *u);

/* init.c: draws initial values for the parameters that have none yet. */
void shard_draw(struct shard *s);

/* ring.c: the unit's full parameters in its dtype, gathered unless they are there.
 * Valid until done. Collective. */
accel_status_t shard_ring_want(struct shard *s, int unit, void **data_out,
                               accel_error_t *err);
void shard_ring_done(struct shard *s, int unit);
/* Gathers the unit that the last backward asked for next of those in the ring of
 * `unit`, if a slot is free. Collective. */
accel_status_t shard_ring_prefetch(struct shard *s, int unit, accel_error_t *err);
/* Forgets gathered copies of an optimizer's units, or of all (SHARD_ALL): the masters
 * have changed. */
#define SHARD_ALL (-2)
void shard_ring_drop(struct shard *s, int optim);
/* The compute queue waits for every gather, each of which reads masters. */
void shard_ring_settle(struct shard *s);
/* shard.c: before the compute queue changes masters, or state. It waits for everything
 * else that reads them: gathers, and copies of boxes (shard_read_begin). */
void shard_readers_settle(struct shard *s);

/* fp8_gather.c: finds what is gathered in fp8, and tells the parameters so. */
accel_status_t shard_coded_open(struct shard *s, const struct units *units,
                                accel_error_t *err);
/* Their memory beside that of the slots. */
accel_status_t shard_coded_alloc(struct shard *s, accel_error_t *err);
void shard_coded_close(struct shard *s);
/* Those of a unit. */
struct plan_codes shard_codes(const struct shard *s, int unit);
/* Makes the scales those of the masters, unless they are. Collective. */
accel_status_t shard_coded_scale(struct shard *s, accel_error_t *err);
/* Writes this rank's part of a unit to its place in `data` as it is sent. When all are
 * there shard_coded_close_up makes one array of them. */
void shard_coded_put(struct shard *s, const struct shard_unit *u, char *data);
void shard_coded_close_up(const struct shard *s, const struct shard_unit *u,
                          char *data);

/* unit_order.c: notes that this backward wants `unit` now. */
accel_status_t shard_order_note(struct shard *s, int unit, accel_error_t *err);
/* The unit of that ring that comes next if this backward goes on as the last one; -1:
 * not known. */
int shard_order_next(const struct shard *s, int ring);
/* Collectives that count in the hash, and the hash itself. */
enum shard_event { SHARD_GATHER = 1, SHARD_REDUCE = 2 };
void shard_order_hash(struct shard *s, enum shard_event what, int unit);
/* Collective. A0504: the ranks used the units in different orders. */
accel_status_t shard_order_check(struct shard *s, accel_error_t *err);

/* gradients.c: no unit is in a reduce buffer any more. */
void shard_close_units(struct shard *s);

/* reduce_queue.c: the reduce queue waits for what compute has written; calls that
 * follow go to it. */
void shard_begin_reduce(struct shard *s);
/* Back to the compute queue, which does not wait yet. */
void shard_end_reduce(struct shard *s);
/* From here on compute may change the reduce buffer, or read the gradient. */
void shard_wait_reduced(struct shard *s);

/* replicated.c: the optimizer's gradients, summed over the ranks in the dtype of
 * `wire` and scaled. Collective. */
accel_status_t shard_sum_narrow(struct shard *s, int optim, accel_error_t *err);

/* x[n] becomes its mean over the ranks, in the queue that is in use. Collective. */
accel_status_t shard_mean(const struct shard *s, float *x, int64_t n,
                          accel_error_t *err);

/* masters.c: where stored element `at` is, as many bytes from the start as it and its
 * predecessors have. */
void *shard_master_at(const struct shard *s, int64_t at);
/* Are masters narrower than float32? Float16 with scales? */
bool shard_has_narrow_masters(const struct shard *s);
bool shard_has_scaled_masters(const struct shard *s);
/* Bytes of all that is stored here, scales included. */
size_t shard_masters_bytes(const struct shard *s);
/* Scaled ones from stored element `at` on, a multiple of 32. */
struct scaled shard_scaled_at(const struct shard *s, int64_t at);
/* n masters from stored element `at` on, a multiple of 32 where they are scaled, as
 * `type`, by a kernel of `be`: the home, or where nothing is offloaded the backend. */
void shard_read_masters(const struct shard *s, const struct backend *be, int64_t at,
                        int64_t n, accel_dtype_t type, void *to);
/* n narrow ones become those numbers, in the memory of home, rounded to the nearest;
 * `at` as above. */
void shard_narrow_masters(const struct shard *s, int64_t at, int64_t n,
                          const float *from);
/* Makes the unit's trained masters their mean over the ranks. Collective. */
accel_status_t shard_mean_masters(const struct shard *s, const struct shard_unit *u,
                                  accel_error_t *err);

/* fp8_gradients.c: do gradients rest in e4m3? Them from element `at` of all
 * gradients on, a multiple of 32. */
bool shard_has_narrow_gradients(const struct shard *s);
struct scaled shard_gradient_at(const struct shard *s, int64_t at);
/* The unit's as float32 in s->piece, which is returned; and back, to the nearest. What
 * has not changed between the two has the same values again. */
float *shard_widen_gradient(const struct shard *s, const struct shard_unit *u);
void shard_narrow_gradient(const struct shard *s, const struct shard_unit *u);
/* Back from s->piece by stochastic rounding: a sum that goes on. */
void shard_narrow_sum(const struct shard *s, const struct shard_unit *u);
/* All of the optimizer through a kernel that takes a float: be->scale or be->clamp. */
typedef void shard_change_f(const struct backend *be, float *x, int64_t n, float by);
void shard_change_gradients(const struct shard *s, int optim, shard_change_f *change,
                            float by);
void shard_zero_gradients(const struct shard *s, int optim);

/* An array of state from some element on: one of the two has data. */
struct state_array {
    struct moments plain; /* float32, or 8-bit moments */
    struct scaled scaled; /* ACCEL_MOMENTS_FP8 */
};
/* The elements of a tensor, where they lie, for a checkpoint. */
struct stored {
    accel_dtype_t type;
    char *data;
    /* of scales: the elements that share one, in one dimension; 0: these are none */
    int block;
};
/* shard_boxes.c: an array of state; or its scales, NULL data where it has none. */
struct stored shard_stored_state(struct state_array x, bool scales);
/* shard_state.c: bytes of array k of the optimizer's state, and element `at` of it, a
 * multiple of 32 where it is narrow. */
size_t shard_state_bytes(const struct shard_trainer *t, int k);
struct state_array shard_array_at(const struct shard_trainer *t, int k, int64_t at);
/* One that is float32. */
float *shard_state_at(const struct shard_trainer *t, int k, int64_t at);
/* Does an optimizer have ACCEL_MOMENTS_FP8? */
bool shard_has_scaled_state(const struct shard *s);
/* Elements [at, at + n) of x, `at` a multiple of 32, as float32; and back, to the
 * nearest. `positive`: squares, which above 0 keep a code above 0. In the memory of
 * `be`, which is the host's where x is float32. */
void shard_widen_state(const struct backend *be, float *to, struct state_array x,
                       bool positive, int64_t at, int64_t n);
void shard_narrow_state(const struct backend *be, struct state_array x, int64_t at,
                        const float *from, bool positive, int64_t n);
/* checkpoint_dtypes.c: the form of state in the checkpoint, or without one in the run.
 * Room for one array of n elements in that form, and array k in it. */
accel_moments_t shard_saved_moments(const struct shard_saved *saved,
                                    const struct shard_trainer *t, int optim);
size_t shard_room_bytes(int64_t n, accel_moments_t form);
struct state_array shard_room_at(const struct shard_trainer *t, char *room, int k,
                                 int64_t n, accel_moments_t form);
/* The type of masters in the checkpoint, or without one in the run; the bytes of room
 * for n of them; and scaled ones in it. */
accel_dtype_t shard_saved_masters(const struct shard_saved *saved,
                                  const struct shard *s);
size_t shard_master_room_bytes(int64_t n, accel_dtype_t type);
struct scaled shard_master_room(char *room, int64_t n);
/* What draws of a parameter, and of step t of an optimizer, have for themselves. */
uint64_t shard_name_hash(const accel_tensor_t *p);
uint64_t shard_draws(const struct shard *s, int64_t t);
/* Memory for the second one, which makes the unit's array k its mean over the
 * ranks. Collective. */
accel_status_t shard_open_mean(struct shard *s, accel_error_t *err);
/* Elements of that memory. */
#define SHARD_MEAN_ELEMS ((int64_t)1 << 16)
accel_status_t shard_mean_state(const struct shard *s, const struct shard_unit *u,
                                int k, accel_error_t *err);

/* compressed.c: PowerSGD of each optimizer, and its memory. */
accel_status_t shard_powersgd_open(struct shard *s, accel_error_t *err);
void shard_powersgd_close(struct shard *s);
/* Most elements of one of its sums. */
int64_t shard_powersgd_sent(const struct shard *s);
/* The trained parameter with that number among the optimizer's. */
const accel_tensor_t *shard_trained_param(const struct shard *s, int optim, int number);
/* Is the next sum of its gradients compressed? */
bool shard_compresses(const struct shard *s, int optim);
/* Its gradients times `scale` become nearly their mean over the ranks. Collective. */
accel_status_t shard_compress(struct shard *s, int optim, float scale,
                              accel_error_t *err);
/* powersgd_boxes.c: what PowerSGD keeps, as boxes in box[] with their names in `text`;
 * NULL: they are counted only. Returns how many there are; *text_bytes_out: of all
 * names. */
size_t shard_powersgd_boxes(const struct shard *s, bool for_load, accel_ckpt_box_t *box,
                            char *text, size_t *text_bytes_out);

/* update.c: offloaded, waits until copies from and to the device are complete. */
void shard_settle_home(struct shard *s);
/* The flat range of u that this rank alone answers for: what it stores in a checkpoint
 * and counts in the norm. */
void shard_answers(const struct shard *s, const struct shard_unit *u,
                   int64_t *first_out, int64_t *count_out);

/* The gradients are zero and gathered copies of the optimizer's units are stale. */
void shard_updated(struct shard *s, int optim);

/* own_update.c: a step of the program's own optimizer; leaves the gradients. */
accel_status_t shard_own_update(struct shard *s, int optim, float lr, int64_t t,
                                float grad_scale, accel_error_t *err);

/* gradients.c: float32 gradients stored here of the optimizer's units, as ranges of
 * `grad`: the first one from unit *at on, which moves behind it. False: there is
 * none. */
bool shard_next_gradients(const struct shard *s, int optim, int *at, float **first_out,
                          int64_t *count_out);
/* Multiplies all of them, in whatever form they rest, by a kernel of `be`. */
void shard_multiply(const struct shard *s, const struct backend *be, int optim,
                    float by);
/* Where backward adds the gradient of a unit, float32; reduces the unit
 * before. Collective. */
accel_status_t shard_grad(struct shard *s, int unit, float **grad_out,
                          accel_error_t *err);

/* The part [*begin_out, *end_out) of parameter p, in its own elements, that lies in the
 * flat range [first, first + count) of its unit. False: nothing does. */
bool shard_param_range(const accel_tensor_t *p, int64_t first, int64_t count,
                       int64_t *begin_out, int64_t *end_out);

#endif
