/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ops share: argument checks with messages, access to parameters through the
 * residency, gradients of inputs. An op's file holds its shape check, forward and
 * backward, and reaches data through the backend only. Errors are sticky: the first one
 * stays in the graph, and every later op returns NULL at once.
 */
#ifndef ACCEL_OPS_OPS_H
#define ACCEL_OPS_OPS_H

#include "backend/device.h"
#include "common/sized.h"
#include "tensor/tape.h"

/* Returns the graph of the first input that is not NULL. An input that is NULL, was
 * freed, or belongs to another graph is an error; so is a previous error: NULL then.
 * Pass only the inputs that must be there. */
struct graph *op_graph(const char *op, accel_tensor_t *const *in, int n);
/* The same for an op that looks whether in[0] is the sum that waits (g->waiting), and
 * then makes it itself, and calls op_sum_taken; or the result that waits (g->result),
 * and then calls op_result_taken. */
struct graph *op_graph_of_sum(const char *op, accel_tensor_t *const *in, int n);
struct graph *op_graph_of_result(const char *op, accel_tensor_t *const *in, int n);
/* waiting.c, the four below. */
/* The addition sum = x + y waits (struct waiting_sum); none did. */
void op_sum_waits(struct graph *g, accel_tensor_t *sum, accel_tensor_t *x,
                  accel_tensor_t *y);
/* The addition that waited is queued, or nobody reads the sum. */
void op_sum_taken(struct graph *g);
/* The kernel of a result (struct waiting_result) waits for the next op, or is queued at
 * once where no linear may take it; none waits. False: sticky error. */
bool op_result_waits(struct graph *g, const struct waiting_result *w);
/* Queues the result that waits; to NULL: without 8-bit copies. False: sticky error. */
bool op_result_taken(struct graph *g, const struct narrow_copy *to);
/* The checks below return false after setting an error that names `what`. This one: an
 * activation of the compute dtype, with at least one dimension. */
bool op_activation(struct graph *g, const char *op, const accel_tensor_t *t,
                   const char *what);
/* A prepared parameter of `ndim` dimensions. */
bool op_parameter(struct graph *g, const char *op, const accel_tensor_t *t,
                  const char *what, int ndim);
/* An int32 tensor. */
bool op_int32(struct graph *g, const char *op, const accel_tensor_t *t,
              const char *what);
/* The result of an op, or a tensor of the batch, of any dtype: not a parameter. */
bool op_computed(struct graph *g, const char *op, const accel_tensor_t *t,
                 const char *what);
/* The same, but a float type (common.h), whatever the compute dtype. */
bool op_floats(struct graph *g, const char *op, const accel_tensor_t *t,
               const char *what);
/* x as [rows, last size]. Empty tensors have no rows, even if their last size is 0. */
static inline int64_t op_last_size(const accel_tensor_t *x)
{
    return x->dim[x->ndim - 1];
}
static inline int64_t op_rows(const accel_tensor_t *x)
{
    return x->elems ? x->elems / op_last_size(x) : 0;
}
bool op_same_shape(struct graph *g, const char *op, const accel_tensor_t *x,
                   const char *x_name, const accel_tensor_t *y, const char *y_name);
/* Two such tensors of the same dtype and shape. */
bool op_alike(struct graph *g, const char *op, const accel_tensor_t *x,
              const char *x_name, const accel_tensor_t *y, const char *y_name);
/* Is `dim` a dimension of t? */
bool op_dim(struct graph *g, const char *op, const accel_tensor_t *t, int dim);
bool op_act(struct graph *g, const char *op, accel_activation_t act);
/* The program's struct of options in today's size; NULL: all zero. */
bool op_options(struct graph *g, const char *op, const struct sized *type,
                void *own_out, const void *theirs);
/* Sets "x [2, 8] and weight [4, 9] do not fit: RULE" as the error; returns NULL, which
 * is also false. */
void *op_misfit(struct graph *g, const char *op, const accel_tensor_t *x,
                const char *x_name, const accel_tensor_t *y, const char *y_name,
                const char *rule);

/* The units that an op's parameters live in, gathered between op_want and op_done. At
 * most two units at a time: the gather ring has two slots. */
struct op_units {
    int unit[2];
    void *base[2];
    int count;
};
/* Gathers the units of t[n] (NULLs allowed). False: sticky error, and nothing is
 * held. None of t may be coded, but for op_want_coded. */
bool op_want(struct graph *g, const char *op, struct op_units *u,
             accel_tensor_t *const *t, int n);
bool op_want_coded(struct graph *g, const char *op, struct op_units *u,
                   accel_tensor_t *const *t, int n);
/* Lets go of them. Kernels already queued still see the values. */
void op_done(struct graph *g, const struct op_units *u);
/* The values of parameter t, in the compute dtype or coded; NULL for NULL. Valid until
 * op_done. */
const void *op_values(const struct graph *g, const struct op_units *u,
                      const accel_tensor_t *t);
/* The end of a forward: puts the op on the tape if a backward is wanted, that is, if
 * recording is on and one of t[n] (NULLs allowed) needs its gradient. Returns e->out;
 * NULL: sticky error. */
accel_tensor_t *op_record(struct graph *g, accel_tensor_t *const *t, int n,
                          const struct tape_entry *e);
/* The float32 buffer that the gradient of parameter t is added to. Asking for another
 * unit's gradient may reduce the previous unit and reuse its buffer, so finish one unit
 * first. NULL: sticky error. */
float *op_grad(struct graph *g, const char *op, const accel_tensor_t *t);

/* The gradient tensor of input x, which a kernel then writes (*add_out false) or adds
 * to (true). NULL: out of memory (sticky). */
accel_tensor_t *grad_target(struct graph *g, accel_tensor_t *x, bool *add_out);
/* Makes `dy` itself the gradient of x, shared, or adds it to the gradient x already
 * has. Passing a gradient on this way costs no memory. */
bool grad_share(struct graph *g, accel_tensor_t *x, accel_tensor_t *dy);

/* The gradient of the value before the activation that made e->out, which saved[1]
 * gives the derivative of: out->grad itself without one, or scratch that the caller
 * frees. NULL: sticky error. */
const void *op_grad_before(struct graph *g, const struct tape_entry *e,
                           accel_activation_t act, void **scratch_out);
/* The random stream of this forward's next draw (see struct draws): the key is the
 * run's seed, the index is the op's own count of elements over all samples of the
 * run. */
uint64_t op_draw_stream(struct graph *g);

/* Runs the backwards of all entries after the first `base`, last first, and drops the
 * entries. False: sticky error. */
bool graph_backward_to(struct graph *g, int base);

/* Writes frequency[head_width / 2] of accel_rope: radians per position. */
void rope_frequencies(const accel_rope_t *o, int64_t head_width, float *frequency);

/* accel_embedding, but with positions from `first` on: generation with a cache. */
accel_tensor_t *op_embedding(accel_tensor_t *ids, accel_tensor_t *table,
                             accel_tensor_t *positions, int64_t first);

/* The sum of `loss` times 0, as one float32: no gradient comes of it, but every
 * backward runs. */
accel_tensor_t *op_uncounted(accel_tensor_t *loss);

/* Float32 logits [B, V] of the last position of x [B, T, C], with weight [V, C]. For
 * generation; no backward. */
accel_tensor_t *op_last_logits(accel_tensor_t *x, accel_tensor_t *weight);

#endif
