/* SPDX-License-Identifier: Apache-2.0
 *
 * The leaves that the models share: linear, norm, embedding. Each is a module with
 * parameters named weight and bias. Builders accept a NULL parent and return NULL after
 * the first failure, which stays in the graph.
 */
#ifndef ACCEL_NN_MODELS_LAYERS_H
#define ACCEL_NN_MODELS_LAYERS_H

#include "nn/nn.h"

/* Standard deviation of initial weights: initializer_range of config.json. */
#define LAYER_DEVIATION 0.02f

/* LAYER_PLAIN: no bias. */
enum layer_bias { LAYER_PLAIN, LAYER_BIAS };

/* weight [out, in] from a normal distribution with standard deviation `deviation`, bias
 * [out] zeros. The forward takes [..., in] and applies `act` to the result. */
accel_module_t *layer_linear(accel_module_t *parent, const char *name, int64_t out,
                             int64_t in, enum layer_bias bias, float deviation,
                             accel_activation_t act);
/* weight [width] ones and bias [width] zeros. */
accel_module_t *layer_layernorm(accel_module_t *parent, const char *name, int64_t width,
                                float eps);
/* weight [width] ones; no bias. */
accel_module_t *layer_rmsnorm(accel_module_t *parent, const char *name, int64_t width,
                              float eps);
/* weight [rows, width] from a normal distribution; the forward takes int32 ids. */
accel_module_t *layer_embedding(accel_module_t *parent, const char *name, int64_t rows,
                                int64_t width, float deviation);
/* A class of modules. */
#define LAYER_CLASS(variable, name, forward, bytes)                                    \
    static const accel_class_t variable = { sizeof(variable), name, forward, bytes }
/* A module of class `cls`; NULL if the parent is NULL. */
accel_module_t *layer_new(accel_module_t *parent, const accel_class_t *cls,
                          const char *name);

/* One size of a model, for layer_sizes_check. */
struct layer_size {
    const char *name;
    int value;
};

/* The beginning of a builder: all of size[n] must be at least 1. ACCEL_EINVAL names all
 * of them, after `model`. */
accel_status_t layer_sizes_check(const char *model, const struct layer_size *size,
                                 int n, accel_error_t *err);
/* The end of a builder. Returns the tree `m`; after a failure frees it, copies the
 * graph's error to `err` (NULL is fine) and returns NULL. */
accel_module_t *layer_tree(const struct graph *g, accel_module_t *m,
                           accel_error_t *err);

/* The weight of a layer; NULL if m is NULL or has none. */
accel_tensor_t *layer_weight(const accel_module_t *m);
/* Calls the module on one input. NULL: sticky error. */
accel_tensor_t *layer_call(accel_module_t *m, accel_tensor_t *x);

#endif
