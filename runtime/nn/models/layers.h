/* SPDX-License-Identifier: Apache-2.0
 *
 * The leaves that the models share: linear, norm, embedding. Each is a module whose
 * parameters are named weight and bias. Builders take a NULL parent and return NULL after
 * the first failure, which stays in the graph.
 */
#ifndef ACCEL_NN_MODELS_LAYERS_H
#define ACCEL_NN_MODELS_LAYERS_H

#include "nn/nn.h"

enum layer_bias { LAYER_PLAIN, LAYER_BIAS };

/* weight [out, in] from a normal distribution of that deviation, bias [out] zeros. */
accel_module_t *layer_linear(accel_module_t *parent, const char *name, int64_t out,
                             int64_t in, enum layer_bias bias, float deviation,
                             accel_activation_t act);
/* layernorm with gain and bias. */
accel_module_t *layer_layernorm(accel_module_t *parent, const char *name, int64_t width,
                                float eps);
accel_module_t *layer_rmsnorm(accel_module_t *parent, const char *name, int64_t width,
                              float eps);
/* weight [rows, width]; the forward takes ids. */
accel_module_t *layer_embedding(accel_module_t *parent, const char *name, int64_t rows,
                                int64_t width, float deviation);
/* A module of class `cls`; NULL parent: NULL. */
accel_module_t *layer_new(accel_module_t *parent, const accel_class_t *cls,
                          const char *name);

/* A tree that is built: `m` itself, or after a failure NULL, the tree freed and the graph's
 * error in `err`. */
accel_module_t *layer_tree(const struct graph *g, accel_module_t *m,
                           accel_error_t *err);

/* Parameters of a layer; NULL for NULL, or where it has none. */
accel_tensor_t *layer_weight(const accel_module_t *m);
accel_tensor_t *layer_bias(const accel_module_t *m);
/* Calls the module on one input. */
accel_tensor_t *layer_call(accel_module_t *m, accel_tensor_t *x);

#endif
