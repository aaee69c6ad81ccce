/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor/: tensors, the arena they live in, the tape of one micro-batch, and the
 * context (struct graph) that ties them together. Nothing here touches tensor data:
 * that is the backend's. Errors inside a forward are sticky: the first one stays in
 * graph->error, and every later op returns NULL. A graph is used by one thread.
 */
#ifndef ACCEL_TENSOR_GRAPH_H
#define ACCEL_TENSOR_GRAPH_H

#include "common/common.h"

#define TENSOR_MAX_DIMS 4

struct backend;    /* backend/device.h */
struct fp8_linear; /* precision/fp8.h */
struct graph;
struct tape_entry;

/* How parameters become present; implemented by shard/, and by a resident stand-in in
 * unit tests. A unit is a group of parameters in one flat buffer. */
struct residency {
    void *user;
    /* The unit's full parameters in the unit's dtype. Valid until done(unit). Up to
     * two different units may be open at once. Collective when sharded. */
    accel_status_t (*want)(void *user, int unit, void **data_out, accel_error_t *err);
    void (*done)(void *user, int unit);
    /* The unit's full gradient, float32, at the same offsets; the caller adds to it.
     * Asking for another unit ends the previous one, which may be reduced at that
     * moment. Collective when sharded. */
    accel_status_t (*grad)(void *user, int unit, float **grad_out, accel_error_t *err);
    /* Another number whenever values of parameters may have changed. */
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
    /* It is trained, but has needs_grad off until accel_model_freeze turns it on
     * again. */
    bool paused;
    /* An op that is no linear takes it, or may; so it is not coded. */
    bool taken_wide;
    /* The residency hands it out in fp8, by the recipe of `fp8`; the elements before it
     * in its unit that are so, a byte each; and what its codes are multiplied by, in
     * the memory of the backend. */
    bool coded;
    int64_t coded_before;
    const float *coded_inverse;
    /* The scales with which linear multiplies by this weight in fp8; not owned.
     * NULL: it multiplies in the compute dtype. */
    struct fp8_linear *fp8;
    /* the program's initial values, until accel_prepare; NULL: init */
    const float *values;
    /* of its parameter group; set by accel_prepare */
    float lr_scale, weight_decay;
};

/* What linears in fp8 know of their input. */
struct narrowed {
    /* What a linear has made of it in fp8 with that scale (0: its own), for others
     * with the same; its data is NULL where nobody holds it. The second is for the
     * gradient of the weight, where that takes another copy: transposed, or with scales
     * of other blocks. */
    struct accel_tensor *copy[2];
    accel_dtype_t type;
    float scale;
    /* The last linear to note the largest magnitude of what is narrow: what it had seen
     * before (fp8_linear.seen), and since; NULL: none */
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
    /* NULL for parameters, which are asked of the residency */
    void *data;
    /* float32 or compute dtype; during backward only */
    struct accel_tensor *grad;
    bool needs_grad;
    /* holders of `data`: its module's scope, tape entries, a `grad` link */
    int refs;
    /* the scope still holds it */
    bool scoped;
    /* a view: the tensor whose data it shares, and holds; else NULL */
    struct accel_tensor *base;
    /* For the result of an op that ends in an activation, while the tape has that
     * op: what the derivative of the activation is made from; else NULL. An op that
     * alone reads the result may hand in the gradient of the value before the
     * activation (grad_before). */
    struct accel_tensor *before;
    accel_activation_t act;
    /* how many inputs of tape entries it is */
    int readers;
    /* grad is that of the value before the activation */
    bool grad_before;
    /* a backward has been through what made it */
    bool spent;
    /* Inside, not behind a pointer: in an fp8 run the inputs of all linears have it,
     * and a step allocates nothing. */
    struct narrowed narrowed;
    /* NULL: no parameter */
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

/* The unit of a parameter. -1: none yet, or no parameter. */
static inline int tensor_unit(const accel_tensor_t *t)
{
    return t->param ? t->param->unit : -1;
}

/* May the residency hand it out in fp8? */
static inline bool param_is_codable(const accel_tensor_t *p)
{
    return p->param->fp8 && !p->param->taken_wide;
}

/* Has the parameter an optimizer? Not where it is frozen for the whole run. */
static inline bool param_is_trained(const accel_tensor_t *p)
{
    return p->needs_grad || p->param->paused;
}

/* What the parameter or buffer is called outside of its model. */
static inline const char *tensor_full_name(const accel_tensor_t *t)
{
    return t->full ? t->full : t->name ? t->name : t->buffer;
}

/* The arena: one address range per run, in the memory of `be`. Alloc and free in any
 * order, first fit over a sorted free list, 64-byte aligned. With `be` NULL it counts
 * only: it hands out addresses that must not be touched and keeps the books, which
 * together with the meta backend gives the peak without any memory. */
struct arena;
accel_status_t arena_open(struct arena **arena_out, const struct backend *be,
                          accel_error_t *err);
/* NULL: out of memory. Contents are undefined. */
void *arena_alloc(struct arena *a, size_t bytes);
/* NULL is fine, and so is an address that is not in use. */
void arena_free(struct arena *a, void *p);
/* Frees all blocks, keeps the memory and the peak. */
void arena_reset(struct arena *a);
/* Takes the memory of an arena without blocks back to the system; its addresses and its
 * peak stay. Returns the bytes; 0 where a block is in use. */
size_t arena_trim(struct arena *a);
/* The largest extent so far, gaps included: what was ever touched. */
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

/* An addition that is not queued yet. What is called next decides how: a norm of the
 * sum does both in one kernel, all else has it queued first. The memory of x and y is
 * held until then. */
struct waiting_sum {
    struct accel_tensor *sum; /* NULL: none waits */
    struct accel_tensor *x, *y;
};

struct narrow_copy; /* backend/operands.h */

/* The result of a norm, an activation or a gated product, whose kernel is not queued
 * yet. What is called next decides how: a linear that multiplies it in fp8 has its
 * copies made by that kernel, all else has it queued first. The memory of `out`, `in`
 * and `stats` is held until then; parameters are asked of the residency only then. */
struct waiting_result {
    struct accel_tensor *out; /* NULL: none waits */
    struct accel_tensor *in[3], *stats;
    accel_activation_t act;
    float eps;
    bool rms;
    /* names for an error: those of the call */
    const char *op, *path;
    /* queues the kernel; to NULL: no copies. False: sticky error */
    bool (*queue)(struct graph *g, const struct waiting_result *w,
                  const struct narrow_copy *to);
};

/* The context of the micro-batch at work. Owned by the run; arena and tape are
 * its own. */
struct graph {
    /* for accel_module_run */
    accel_t *run;
    /* ACCEL_F32, ACCEL_BF16 or ACCEL_F16: that of the run, or of the module whose
     * forward or backward is at work */
    accel_dtype_t compute;
    /* the widest one of all modules, which a cache of keys and values has room for */
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
    /* backward leaves on the tape what does not belong to its loss */
    bool many_losses;
    /* asked for by accel_inference_mode: neither tape nor dropout */
    bool evaluating;
    /* bytes of logits that cross_entropy may keep for the backward beside one chunk;
     * set once for the run, from its plan */
    size_t logits_room;
    struct draws draws;
    struct waiting_sum waiting;
    /* Of the sum, where both wait: the norm of it. */
    struct waiting_result result;
    /* Weights are multiplied in fp8 with scales of whole tensors: results wait for
     * the linear that may take them. Set once for the run. */
    bool narrows;
    /* inputs of linears that were noted in this run; each has its number */
    uint64_t notes;
    /* This is micro-batch `micro`, from 1, of the step's `micros`; 0: of no step. For
     * messages; cleared by graph_reset. */
    int micro, micros;
    /* first error of this micro-batch, cleared by graph_reset */
    accel_error_t error;
    struct tape *tape;
    /* of the module in forward, for messages */
    const char *module_path;
    /* at work, for messages; NULL: none yet */
    const char *op;
    /* forwards that have not returned */
    int depth;
    /* "a gradient function": the function of the program that is at work and is no
     * forward; NULL: none */
    const char *inside;
};

/* A function of the program begins, which is called `what`. Returns what g->inside must
 * be when it has returned. */
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
/* Drops all tensors and the tape of the micro-batch, and its error; keeps
 * the memory. */
void graph_reset(struct graph *g);
/* A tensor with data in the arena, uninitialised. A size of 0 is fine and has an
 * address too. NULL: sticky error. */
accel_tensor_t *graph_tensor(struct graph *g, accel_dtype_t t, int ndim,
                             const int64_t *dims);
/* A tensor of other sizes, with no more elements, over the data of `t` (an activation),
 * which it holds. Moves nothing, records nothing. NULL: sticky error. */
accel_tensor_t *graph_view(struct graph *g, accel_tensor_t *t, int ndim,
                           const int64_t *dims);
/* Queues what waits. Whoever reads a tensor otherwise than by an op calls it first.
 * False: sticky error, of this call. */
bool graph_queue_waiting(struct graph *g);
/* The first error of the forward, or what keeps `loss` from being one: a single float32
 * element that needs a gradient. Its value may be read then. */
accel_status_t graph_check_loss(struct graph *g, const accel_tensor_t *loss,
                                accel_error_t *err);
/* Backward of a one-element float32 loss with d(loss) = seed. Empties the tape, or
 * (many_losses) takes off it what belongs to the loss. Collective when parameters are
 * sharded. */
accel_status_t graph_backward(struct graph *g, accel_tensor_t *loss, float seed,
                              accel_error_t *err);
/* Implemented by run/: the graph of a run. */
struct graph *accel_run_graph(accel_t *run);

#endif
