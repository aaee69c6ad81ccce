/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor/: tensors, the arena they live in, the tape of one micro-batch, and the
 * context (struct graph) that ties them together. Nothing here touches tensor data:
 * only the backend does. Errors inside a forward are sticky: the first one stays in
 * graph->error, and every later op returns NULL. One thread uses a graph.
 */
#ifndef ACCEL_TENSOR_GRAPH_H
#define ACCEL_TENSOR_GRAPH_H

#include "common/common.h"

#define TENSOR_MAX_DIMS 4

struct backend;    /* backend/device.h */
struct fp8_linear; /* precision/fp8.h */
struct graph;
struct tape_entry;

/* How parameters become available; implemented by shard/, and by a resident stand-in in
 * unit tests. A unit is a group of parameters in one flat buffer. */
struct residency {
    void *user;
    /* The unit's full parameters in the unit's dtype. Valid until done(unit). Up to
     * two different units may be open at once. Collective when sharded. */
    accel_status_t (*want)(void *user, int unit, void **data_out, accel_error_t *err);
    void (*done)(void *user, int unit);
    /* The unit's full gradient, float32, at the same offsets; the caller adds to it. A
     * request for another unit ends the previous one, which may then be reduced.
     * Collective when sharded. */
    accel_status_t (*grad)(void *user, int unit, float **grad_out, accel_error_t *err);
    /* A number that changes whenever values of parameters may have changed. */
    const uint64_t *changed;
};

/* What only a parameter has. */
struct param {
    /* -1: not assigned yet */
    int unit;
    /* elements from the start of the unit */
    int64_t unit_offset;
    /* the dtype that ops see, which is that of its unit */
    accel_dtype_t seen_as;
    /* It is trained, but needs_grad is off until accel_model_freeze turns it on. */
    bool paused;
    /* An op other than linear takes it, or may, so it cannot be coded. */
    bool taken_wide;
    /* coded: the residency provides it in fp8, by the recipe of `fp8`. coded_before:
     * the elements before it in its unit that are coded, a byte each. coded_inverse:
     * the factor on its codes, in the memory of the backend. */
    bool coded;
    int64_t coded_before;
    const float *coded_inverse;
    /* The scales with which linear does its matmuls with this weight in fp8; not owned.
     * NULL: it does them in the compute dtype. */
    struct fp8_linear *fp8;
    /* the program's initial values, until accel_prepare; NULL: init */
    const float *values;
    /* those of its parameter group; set by accel_prepare */
    float lr_scale, weight_decay;
};

/* What fp8 linears record about their input. */
struct narrowed {
    /* The fp8 copy that a linear has made of it with that scale (0: the copy's own),
     * for other linears with the same scale; its data is NULL if nobody holds it. The
     * second is for the gradient of the weight, if that needs another copy: transposed,
     * or with scales of other blocks. */
    struct accel_tensor *copy[2];
    accel_dtype_t type;
    float scale;
    /* The last linear that noted the largest magnitude of the values it quantised, and
     * what it had seen before (fp8_linear.seen) and afterwards; NULL: none */
    const struct fp8_linear *noted_by;
    uint64_t noted_before, noted;
};

/* A tensor of the micro-batch, a parameter or a buffer. */
struct accel_tensor {
    struct graph *g;
    accel_dtype_t dtype;
    int ndim;
    int64_t dim[TENSOR_MAX_DIMS];
    int64_t elems;
    /* NULL for parameters: the residency has their data */
    void *data;
    /* float32 or compute dtype; during backward only */
    struct accel_tensor *grad;
    bool needs_grad;
    /* holders of `data`: its module's scope, tape entries, a `grad` link */
    int refs;
    /* the scope still holds it */
    bool scoped;
    /* a view: the tensor whose data it shares and holds; else NULL */
    struct accel_tensor *base;
    /* For the result of an op that ends in an activation, while the tape has that op:
     * the tensor that the derivative of the activation is computed from; else NULL. If
     * only one op reads the result, it may provide the gradient of the value before the
     * activation (grad_before). */
    struct accel_tensor *before;
    accel_activation_t act;
    /* how many inputs of tape entries are this tensor */
    int readers;
    /* grad is that of the value before the activation */
    bool grad_before;
    /* a backward has already gone through the op that made it */
    bool spent;
    /* A member, not a pointer: in an fp8 run the inputs of all linears need it, and a
     * step must not allocate. */
    struct narrowed narrowed;
    /* NULL: not a parameter */
    struct param *param;
    /* name of a parameter in its model, else NULL */
    const char *name;
    /* of a parameter or buffer, "MODEL/NAME", malloc; NULL: the model has no name */
    char *full;
    /* name of a buffer in its model, else NULL */
    const char *buffer;
    /* of a parameter or buffer */
    accel_init_t init;
};

/* The unit of a parameter. -1: none yet, or not a parameter. */
static inline int tensor_unit(const accel_tensor_t *t)
{
    return t->param ? t->param->unit : -1;
}

/* May the residency provide it in fp8? */
static inline bool param_is_codable(const accel_tensor_t *p)
{
    return p->param->fp8 && !p->param->taken_wide;
}

/* Does the parameter have an optimizer? Not if it is frozen for the whole run. */
static inline bool param_is_trained(const accel_tensor_t *p)
{
    return p->needs_grad || p->param->paused;
}

/* The name of the parameter or buffer outside its model. */
static inline const char *tensor_full_name(const accel_tensor_t *t)
{
    return t->full ? t->full : t->name ? t->name : t->buffer;
}

/* The arena: one address range per run, in the memory of `be`. Alloc and free in any
 * order, first fit over a sorted free list, 64-byte aligned. With `be` NULL it only
 * counts: it returns addresses that must not be touched, and does the bookkeeping.
 * Together with the meta backend this gives the peak without any memory. */
struct arena;
accel_status_t arena_open(struct arena **arena_out, const struct backend *be,
                          accel_error_t *err);
/* NULL: out of memory. Contents are undefined. */
void *arena_alloc(struct arena *a, size_t bytes);
/* NULL and addresses that are not in use are fine. */
void arena_free(struct arena *a, void *p);
/* Frees all blocks, keeps the memory and the peak. */
void arena_reset(struct arena *a);
/* Gives the memory of an arena without blocks back to the system; its addresses and its
 * peak stay. Returns the bytes; 0 if a block is in use. */
size_t arena_trim(struct arena *a);
/* The largest extent so far, gaps included: all that was ever touched. */
size_t arena_peak_bytes(const struct arena *a);
void arena_close(struct arena *a);

/* Where random numbers of a forward come from: Philox(seed, call, sample, element). The
 * sample is counted over the whole run and all ranks, so that a mask does not depend on
 * which rank computes it. */
struct draws {
    uint64_t seed;
    /* of this micro-batch, in the global order of the run */
    int64_t first_sample;
    /* samples of this micro-batch: dim 0 of activations */
    int64_t batch;
    /* draws so far in this forward */
    uint32_t calls;
};

/* An addition that is not queued yet. The next call decides how it is done: a norm of
 * the sum does both in one kernel; any other call queues the addition first. The memory
 * of x and y is held until then. */
struct waiting_sum {
    struct accel_tensor *sum; /* NULL: none waits */
    struct accel_tensor *x, *y;
};

struct narrow_copy; /* backend/operands.h */

/* The result of a norm, an activation or a gated product whose kernel is not queued
 * yet. The next call decides how it is done: for an fp8 linear the same kernel also
 * writes the fp8 copies; any other call queues the kernel alone first. The memory of
 * `out`, `in` and `stats` is held until then; parameters are requested from the
 * residency only then. */
struct waiting_result {
    struct accel_tensor *out; /* NULL: none waits */
    struct accel_tensor *in[3], *stats;
    accel_activation_t act;
    float eps;
    bool rms;
    /* the names of the call, for an error */
    const char *op, *path;
    /* queues the kernel; to NULL: no copies. False: sticky error */
    bool (*queue)(struct graph *g, const struct waiting_result *w,
                  const struct narrow_copy *to);
};

/* The context of the current micro-batch. The run owns it; it owns arena and tape. */
struct graph {
    /* for accel_module_run */
    accel_t *run;
    /* ACCEL_F32, ACCEL_BF16 or ACCEL_F16: that of the run, or of the module whose
     * forward or backward is running */
    accel_dtype_t compute;
    /* the widest of all modules, which a cache of keys and values has room for */
    accel_dtype_t widest;
    const struct backend *backend;
    struct arena *arena;
    struct residency residency;
    const struct accel_log *log;
    /* false: evaluation or generation, nothing goes on the tape */
    bool recording;
    /* false: no dropout */
    bool training;
    /* a module's forward runs again, in backward */
    bool recomputing;
    /* backward leaves entries on the tape that do not belong to its loss */
    bool many_losses;
    /* set by accel_inference_mode: neither tape nor dropout */
    bool evaluating;
    /* bytes of logits that cross_entropy may keep for the backward, in addition to one
     * chunk; set once for the run, from its plan */
    size_t logits_room;
    struct draws draws;
    struct waiting_sum waiting;
    /* If both wait, this is the norm of that sum. */
    struct waiting_result result;
    /* Linears use fp8 with scales of whole tensors, so results wait for the linear that
     * may take them. Set once for the run. */
    bool narrows;
    /* how many inputs of linears have been noted in this run; each gets a number */
    uint64_t notes;
    /* This is micro-batch `micro`, counted from 1, of the step's `micros`; 0: it
     * belongs to no step. For messages; cleared by graph_reset. */
    int micro, micros;
    /* first error of this micro-batch, cleared by graph_reset */
    accel_error_t error;
    struct tape *tape;
    /* of the module in forward, for messages */
    const char *module_path;
    /* the current one, for messages; NULL: none yet */
    const char *op;
    /* forwards that have not returned */
    int depth;
    /* the function of the program that is running, other than a forward, as "a gradient
     * function"; NULL: none */
    const char *inside;
};

/* Call this before a function of the program, which `what` describes. Returns the value
 * to restore to g->inside when it has returned. */
static inline const char *graph_enter(struct graph *g, const char *what)
{
    const char *outer = g->inside;

    g->inside = what;
    return outer;
}

/* Opens arena and tape on `backend`, which must outlive the graph. compute: ACCEL_F32
 * ACCEL_BF16 or ACCEL_F16. `counting`: the arena has no memory. */
accel_status_t graph_open(struct graph *g, const struct backend *backend,
                          accel_dtype_t compute, bool counting, accel_error_t *err);
void graph_close(struct graph *g);
/* Drops all tensors, the tape and the error of the micro-batch; keeps the memory. */
void graph_reset(struct graph *g);
/* A tensor with data in the arena, uninitialised. A size of 0 is fine and has an
 * address too. NULL: sticky error. */
accel_tensor_t *graph_tensor(struct graph *g, accel_dtype_t t, int ndim,
                             const int64_t *dims);
/* A tensor of other sizes, with no more elements, over the data of `t` (an activation),
 * which it holds. Moves nothing, records nothing. NULL: sticky error. */
accel_tensor_t *graph_view(struct graph *g, accel_tensor_t *t, int ndim,
                           const int64_t *dims);
/* Queues what waits. Call this before reading a tensor other than by an op. False: this
 * call has failed, a sticky error. */
bool graph_queue_waiting(struct graph *g);
/* The first error of the forward, or the reason why `loss` is not a loss, which is a
 * single float32 element that needs a gradient. If ACCEL_OK, its value may be read. */
accel_status_t graph_check_loss(struct graph *g, const accel_tensor_t *loss,
                                accel_error_t *err);
/* Backward of a one-element float32 loss with d(loss) = seed. Empties the tape, or with
 * many_losses removes what belongs to the loss. Collective when parameters are
 * sharded. */
accel_status_t graph_backward(struct graph *g, accel_tensor_t *loss, float seed,
                              accel_error_t *err);
/* Implemented by run/: the graph of a run. */
struct graph *accel_run_graph(accel_t *run);

#endif
