/* SPDX-License-Identifier: Apache-2.0
 *
 * The config of a model of any family, and the tree that is built from it.
 */
#ifndef ACCEL_MODELS_MODEL_CONFIG_H
#define ACCEL_MODELS_MODEL_CONFIG_H

#include "nn/nn.h"

/* As accel_model_config, of a config whose `bytes` are checked. */
accel_status_t model_config_open(const char *name, accel_model_config_t *config,
                                 accel_error_t *err);
/* A program's config in today's size. A0612: NULL; A0913, A0914: as sized_read. */
accel_status_t model_config_take(const accel_model_config_t *given,
                                 accel_model_config_t *config_out, accel_error_t *err);
/* Changes the layers, heads, width, context and vocab that are not 0 in `given`, and
 * what follows from them: the width of heads, the heads of keys and values, hidden. */
void model_config_resize(accel_model_config_t *c, const accel_model_config_t *given);
/* The fields of a training sample of `seq` tokens, as the model's forward takes them;
 * returns how many (at most 4). */
int model_fields(const accel_model_config_t *c, int seq, accel_field_t fields_out[4]);
/* Builds the tree of any family; the caller frees it with nn_module_free. NULL and
 * `err` on failure. */
accel_module_t *model_new(struct graph *g, const accel_model_config_t *config,
                          accel_error_t *err);

#endif
