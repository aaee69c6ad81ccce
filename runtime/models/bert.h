/* SPDX-License-Identifier: Apache-2.0
 *
 * BERT as a module tree, with the parameter names of Hugging Face.
 */
#ifndef ACCEL_NN_MODELS_BERT_H
#define ACCEL_NN_MODELS_BERT_H

#include "nn/nn.h"

/* Builds the tree; the caller frees it with nn_module_free. Forward takes the same
 * inputs as a model of accel_bert_new. NULL and `err` on failure. */
accel_module_t *bert_new(struct graph *g, const accel_bert_t *cfg, accel_error_t *err);
/* The shape, defaults filled in, of a model made by bert_new; NULL for any other. */
const accel_bert_t *bert_config(const accel_module_t *model);

#endif
