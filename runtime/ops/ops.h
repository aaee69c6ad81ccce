/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ops share: argument checks with messages, parameters through the residency,
 * gradients of inputs. An op file holds shape check, forward and backward of one op and
 * reaches data through the backend only.
 */
#ifndef ACCEL_OPS_OPS_H
#define ACCEL_OPS_OPS_H

#include "backend/backend.h"
#include "tensor/tape.h"

/* The graph of the first input that is not NULL. An input that is NULL, was freed, or
 * belongs to another graph is an error (sticky), as is an error before: returns NULL.
 * Pass only the inputs that must be there. */
struct graph *op_graph(const char *op, accel_tensor_t *const *in, int n);
/* An activation of the compute dtype with at least one dimension. */
bool op_activation(struct graph *g, const char *op, const accel_tensor_t *t,
                   const char *what);
/* A prepared parameter of `ndim` dimensions. */
bool op_parameter(struct graph *g, const char *op, const accel_tensor_t *t,
                  const char *what, int ndim);
/* An int32 tensor. */
bool op_int32(struct graph *g, const char *op, const accel_tensor_t *t,
              const char *what);
/* The result of an op or a batch, of any dtype: no parameter. */
bool op_computed(struct graph *g, const char *op, const accel_tensor_t *t,
                 const char *what);
/* Such a tensor of float32 or bfloat16, whatever the compute dtype. */
bool op_floats(struct graph *g, const char *op, const accel_tensor_t *t,
               const char *what);
bool op_same_shape(struct graph *g, const char *op, const accel_tensor_t *x,
                   const char *x_name, const accel_tensor_t *y, const char *y_name);
/* Two such tensors of one dtype and one shape. */
bool op_alike(struct graph *g, const char *op, const accel_tensor_t *x,
              const char *x_name, const accel_tensor_t *y, const char *y_name);
/* A dimension of t. */
bool op_dim(struct graph *g, const char *op, const accel_tensor_t *t, int dim);
bool op_act(struct graph *g, const char *op, accel_activation_t act);
/* "x [2, 8] and weight [4, 9] do not fit: RULE" */
void *op_misfit(struct graph *g, const char *op, const accel_tensor_t *x,
                const char *x_name, const accel_tensor_t *y, const char *y_name,
                const char *rule);

/* Full parameters of the units that t[n] (NULLs allowed) live in, between want and done. */
struct op_units {
    int unit[2];
    void *base[2];
    int count;
};
bool op_want(struct graph *g, const char *op, struct op_units *u,
             accel_tensor_t *const *t, int n);
void op_done(struct graph *g, const struct op_units *u);
/* Where the parameter's values are; NULL for NULL. */
const void *op_values(const struct graph *g, const struct op_units *u,
                      const accel_tensor_t *t);
/* Is a backward wanted: something is recorded, and one of t[n] (NULLs allowed) needs its
 * gradient? */
bool op_needs_grad(const struct graph *g, accel_tensor_t *const *t, int n);
/* Where the gradient of a parameter that needs one is added to; may hand in another unit's. NULL: sticky
 * error. */
float *op_grad(struct graph *g, const char *op, const accel_tensor_t *t);

/* The mask of a random op: `call` is g->draws.calls at its forward, before it was counted;
 * `per_sample` elements belong to one sample of the micro-batch; p is in [0, 1). */
struct mask op_mask(const struct graph *g, uint32_t call, int64_t per_sample, float p);

/* The gradient tensor of input x, for a kernel to write (*add false) or add to (true).
 * NULL: out of memory (sticky). */
accel_tensor_t *grad_target(struct graph *g, accel_tensor_t *x, bool *add);
/* Gives `dy` itself to x, which shares it, or adds it to the gradient x has. */
bool grad_share(struct graph *g, accel_tensor_t *x, accel_tensor_t *dy);

/* The stream of the next random draw of this forward (see struct draws): the key is the
 * run's seed, the index is the op's own count of elements over all samples of the run. */
uint64_t op_draw_stream(struct graph *g);

/* Runs the entries after the first `base` backwards and drops them. False: sticky error. */
bool graph_backward_to(struct graph *g, int base);

/* frequency[head_width / 2] of accel_rope: angle per position. */
void rope_frequencies(const accel_rope_t *o, int64_t head_width, float *frequency);

/* accel_embedding whose first position is `first`, not 0: generation with a cache. */
accel_tensor_t *op_embedding(accel_tensor_t *ids, accel_tensor_t *table,
                             accel_tensor_t *positions, int64_t first);

/* Logits float32 [B, V] of the last position of x [B, T, C] with weight [V, C]; for
 * generation, no backward. */
accel_tensor_t *op_last_logits(accel_tensor_t *x, accel_tensor_t *weight);

#endif
