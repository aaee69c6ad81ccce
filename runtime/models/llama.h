/* SPDX-License-Identifier: Apache-2.0
 *
 * Llama as a module tree, with the parameter names of Hugging Face.
 */
#ifndef ACCEL_NN_MODELS_LLAMA_H
#define ACCEL_NN_MODELS_LLAMA_H

#include "nn/nn.h"

/* Builds the tree; the caller frees it with nn_module_free. Forward as in gpt2_new.
 * NULL and `err` on failure. */
accel_module_t *llama_new(struct graph *g, const accel_llama_t *cfg,
                          accel_error_t *err);
/* The shape, defaults filled in, of a model made by llama_new; NULL for any other. */
const accel_llama_t *llama_config(const accel_module_t *model);

#endif
