/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of shard/ share: the layout of a unit on this rank, the ring, the state
 * of one step. Not for other stages.
 *
 * On a device three queues work beside each other, and nothing but events orders them:
 *   master changed (compute) -> gather;          slot gathered (gather) -> compute
 *   slot's last reader (compute) -> gather;      last gather -> master changes (compute)
 *   gradient computed (compute) -> reduce;       buffer reduced (reduce) -> compute
 * Offloaded, masters, state and gradient shard lie in page-locked memory of the host: gather
 * and reduce begin and end with a copy, and the host waits for the device once a step, before
 * the norm of the gradient.
 * Each wait is put where the first one who needs it comes, and only there.
 */
#ifndef ACCEL_SHARD_IMPL_H
#define ACCEL_SHARD_IMPL_H

#include "optim/optim.h"
#include "shard/shard.h"

/* One unit. `own` elements from flat index rank * own on are this rank's part: it stores
 * them (FULL_SHARD) or answers for them among the copies (NO_SHARD). */
struct shard_unit {
    const struct unit *def;
    int64_t padded;          /* elements, a multiple of world * 32 */
    int64_t own;             /* padded / world */
    int64_t all_at;          /* where it starts among all units' padded elements */
    int64_t first;           /* flat index of the first element stored here */
    int64_t stored;          /* elements stored here: own, or padded */
    int64_t at;              /* where they start in master */
    int64_t state_at, state; /* the same in each array of state; elements there */
    int64_t grad_at; /* the same in grad, which has all stored ones; -1: none trained */
    bool fresh;      /* bf16 copy is that of the masters */
    bool partial;    /* offloaded: grad holds earlier micro-batches */
    bool *undrawn;   /* [def->param_count] still without its initial values */
};

/* A gathered unit. Where units are kept each has its place; else two slots share one region of (largest + second largest) bytes: the
 * first grows up from its start, the second down from its end, so that any two different
 * units fit beside each other without either slot having to be of the largest size. */
struct shard_slot {
    int unit; /* -1: empty */
    int pins; /* want without done */
    uint64_t used;
    struct backend_event *ready, *read;
    uint64_t gathered; /* number of the gather into it */
    uint64_t left;     /* number of its last reader's mark */
};

struct shard {
    struct comm *comm;        /* what the ranks tell each other, on the host */
    struct comm *data;        /* parameters, in the backend's memory */
    struct comm *reduce_data; /* gradients, there, among the same ranks */
    struct comm *copies; /* of gradient shards: the ranks with the same; NULL: none */
    const struct backend *be;
    const struct backend *home; /* of masters, state and grad: be, or the CPU */
    bool offloaded;             /* home is another one than be */
    struct shard_options o;
    int rank, world; /* of those that the state is cut over */
    struct shard_unit *unit;
    int units;
    int64_t all_elems;                             /* padded, of all units */
    int64_t stored_elems, state_elems, grad_elems; /* of all units */
    bool all_drawn;                                /* no unit has an undrawn one */
    uint64_t seed;                                 /* of the initial values */
    struct shard_memory memory;
    const char *const *state_name;
    int states;                    /* arrays of state in use: 0 .. 2 */
    float *master;                 /* [stored_elems] */
    float *state[OPTIM_MAX_STATE]; /* [state_elems] each */
    float *grad;                   /* [grad_elems] */
    float *stage;        /* [SHARD_STAGE_ELEMS] of the host; NULL: no device */
    bool grad_in_window; /* grad belongs to comm_alloc */

    /* Parameters. direct: masters serve as they are; resident: bf16 copy of everything;
     * keep: a slot for every unit, gathered once a step; else the ring. */
    bool direct, resident, keep;
    uint16_t *copy; /* resident, or offloaded at home: [stored_elems] */
    char *ring;
    size_t ring_bytes;
    struct shard_slot *slot;
    int slots; /* 2, or as many as units */
    uint64_t clock;
    struct backend_event *updated; /* masters have changed */
    /* A queue keeps its order, so being behind one event is being behind all earlier ones
     * of that queue: gathers and marks (events of the compute queue) are numbered, and a
     * wait is left out where a later number was waited for. */
    uint64_t gathers, gather_seen; /* compute is behind gather number gather_seen */
    uint64_t marks, mark_seen; /* the gather queue is behind mark number mark_seen */
    uint64_t changed;          /* number of the mark `updated` */

    /* Gradients. Without a reduce buffer they are added up in `grad` at once. */
    float *reduce;
    float *piece; /* offloaded: a unit's own part on its way home */
    int open;     /* unit in the reduce buffer, or -1 */
    struct backend_event *computed, *reduced; /* what `reduce` or `grad` holds */
    bool reducing;                            /* compute is not behind `reduced` yet */
    float grad_scale;
    struct span *span; /* [units]: room for those of the norm */

    /* Order in which the last backward asked for units; see unit_order.c. */
    bool in_backward;
    int *order;
    int order_len, order_cap, order_at, last_unit;
    uint64_t hash; /* of the collectives since the last step */
};

/* init.c: initial values of the parameters that have none yet. */
void shard_draw(struct shard *s);

/* ring.c */
accel_status_t shard_ring_want(struct shard *s, int unit, void **data_out,
                               accel_error_t *err);
void shard_ring_done(struct shard *s, int unit);
accel_status_t shard_ring_prefetch(struct shard *s, accel_error_t *err);
void shard_ring_drop(struct shard *s); /* forgets gathered copies */
/* Before the compute queue changes masters: behind every gather that reads them. */
void shard_ring_settle(struct shard *s);

/* unit_order.c */
accel_status_t shard_order_note(struct shard *s, int unit, accel_error_t *err);
int shard_order_next(const struct shard *s); /* -1: not known */
enum shard_event { SHARD_GATHER = 1, SHARD_REDUCE = 2 };
void shard_order_hash(struct shard *s, enum shard_event what, int unit);
accel_status_t shard_order_check(struct shard *s, accel_error_t *err);

/* update.c */
void shard_settle_home(struct shard *s);
/* Flat range of u that this rank answers for, among all: the part it stores in a checkpoint
 * and counts in the norm. */
void shard_answers(const struct shard *s, const struct shard_unit *u,
                   int64_t *first_out, int64_t *count_out);

/* gradients.c */
accel_status_t shard_grad(struct shard *s, int unit, float **grad_out,
                          accel_error_t *err);

/* The part [*begin, *end) of parameter p, in its own elements, that lies in the flat range
 * [first, first + count) of its unit. False: nothing. */
bool shard_param_range(const accel_tensor_t *p, int64_t first, int64_t count,
                       int64_t *begin_out, int64_t *end_out);

#endif
