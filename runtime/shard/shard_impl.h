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
    /* elements, a multiple of world * 32 */
    int64_t padded;
    /* padded / world */
    int64_t own;
    /* where it starts among the padded elements of all units */
    int64_t all_at;
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
    /* offloaded: the bf16 copy matches the masters */
    bool fresh;
    /* offloaded: grad holds the sum of earlier micro-batches */
    bool partial;
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
    float *state[SHARD_MAX_STATE + 1]; /* [state_elems] each */
    /* a backward has added to its gradients since they were zeroed */
    bool dirty;
    /* They are complete: what each rank's own part was multiplied by on the way from
     * the last backward, if all ranks had the same one; 0: they are not. */
    float reduced;
};

/* A place for one gathered unit. In keep mode each unit owns a slot. Otherwise two
 * slots share one region of (largest + second largest) bytes: the first grows up from
 * its start, the second down from its end, so that any two different units fit side by
 * side without either slot having the size of the largest. */
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
    /* sums over all units; the first counts padded elements */
    int64_t all_elems;
    int64_t stored_elems, grad_elems;
    /* no unit has a parameter without values */
    bool all_drawn;
    /* of the initial values */
    uint64_t seed;
    struct shard_memory memory;
    /* [trainers] */
    struct shard_trainer *trainer;
    int trainers;
    float *master; /* [stored_elems] */
    float *grad;   /* [grad_elems] */
    /* [SHARD_STAGE_ELEMS], page-locked; NULL: no device */
    float *stage;
    /* grad belongs to comm_alloc */
    bool grad_in_window;

    /* How parameters become present. direct: the masters serve as they are. resident: a
     * bf16 copy of everything. keep: a slot for every unit, gathered once per step.
     * Otherwise the ring. */
    bool direct, resident, keep;
    /* resident, or offloaded (then at home): [stored_elems] in bf16 */
    uint16_t *copy;
    /* resident: it matches the masters */
    bool copied;
    /* memory of all slots */
    char *ring;
    size_t ring_bytes;
    struct shard_slot *slot;
    /* 2, or as many as units */
    int slots;
    uint64_t clock;
    /* the masters have changed */
    struct backend_event *updated;
    /* A queue keeps its order, so waiting for an event implies all earlier ones of its
     * queue. Gathers and marks (events of the compute queue) are numbered, and a wait
     * is skipped where a later number was waited for. The compute queue has waited for
     * gather number gather_seen, the gather queue for mark number mark_seen. */
    uint64_t gathers, gather_seen;
    uint64_t marks, mark_seen;
    /* number of the mark `updated` */
    uint64_t changed;

    /* Gradients. Without a reduce buffer they are added up in `grad` directly. */
    float *reduce;
    /* whole copies that are summed in a narrow dtype: a unit on the wire; NULL: they
     * are summed as they are */
    char *wire;
    /* offloaded: a unit's own part on its way home */
    float *piece;
    /* unit in the reduce buffer, or -1 */
    int open;
    /* compute has written, reduce has read what `reduce` or `grad` holds */
    struct backend_event *computed, *reduced;
    /* compute has not waited for `reduced` yet */
    bool reducing;
    /* 1 / (world * accumulate): sums become means; what complete ones are multiplied by
     * besides */
    float grad_scale, step_scale;
    /* [units], scratch of shard_grad_sumsq */
    struct span *span;
    /* page-locked: its result */
    double *sumsq;
    /* [all parameters * 2 + units], [all parameters]: scratch of shard_update, which
     * appends to them. step_like: the first parameter with those constants. */
    struct update_span *range;
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

/* init.c: draws initial values for the parameters that have none yet. */
void shard_draw(struct shard *s);

/* ring.c: the unit's full parameters in the dtype of parameters, gathered unless they
 * are there. Valid until done. Collective. */
accel_status_t shard_ring_want(struct shard *s, int unit, void **data_out,
                               accel_error_t *err);
void shard_ring_done(struct shard *s, int unit);
/* Gathers the unit that the last backward asked for next, if a slot is
 * free. Collective. */
accel_status_t shard_ring_prefetch(struct shard *s, accel_error_t *err);
/* Forgets gathered copies of an optimizer's units, or of all (SHARD_ALL): the masters
 * have changed. */
#define SHARD_ALL (-2)
void shard_ring_drop(struct shard *s, int optim);
/* Before the compute queue changes masters: waits for every gather that reads them. */
void shard_ring_settle(struct shard *s);

/* unit_order.c: notes that this backward wants `unit` now. */
accel_status_t shard_order_note(struct shard *s, int unit, accel_error_t *err);
/* The unit that comes next if this backward goes on as the last one; -1: not known. */
int shard_order_next(const struct shard *s);
/* Collectives that count in the hash, and the hash itself. */
enum shard_event { SHARD_GATHER = 1, SHARD_REDUCE = 2 };
void shard_order_hash(struct shard *s, enum shard_event what, int unit);
/* Collective. A0504: the ranks used the units in different orders. */
accel_status_t shard_order_check(struct shard *s, accel_error_t *err);

/* reduce_queue.c: the reduce queue waits for what compute has written; calls that
 * follow go to it. */
void shard_begin_reduce(struct shard *s);
/* Back to the compute queue, which does not wait yet. */
void shard_end_reduce(struct shard *s);
/* From here on compute may change the reduce buffer, or read the gradient. */
void shard_wait_reduced(struct shard *s);

/* whole_copies.c: the optimizer's gradients, summed over the ranks in the dtype of
 * `wire` and scaled. Collective. */
accel_status_t shard_sum_narrow(struct shard *s, int optim, accel_error_t *err);

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

/* gradients.c: the gradients stored here of the optimizer's units, as ranges of `grad`:
 * the first one from unit *at on, which moves behind it. False: there is none. */
bool shard_next_gradients(const struct shard *s, int optim, int *at, float **first_out,
                          int64_t *count_out);
/* Where backward adds the gradient of a unit, float32; reduces the unit
 * before. Collective. */
accel_status_t shard_grad(struct shard *s, int unit, float **grad_out,
                          accel_error_t *err);

/* The part [*begin_out, *end_out) of parameter p, in its own elements, that lies in the
 * flat range [first, first + count) of its unit. False: nothing does. */
bool shard_param_range(const accel_tensor_t *p, int64_t first, int64_t count,
                       int64_t *begin_out, int64_t *end_out);

#endif
