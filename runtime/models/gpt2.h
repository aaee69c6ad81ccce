/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2 as a module tree, with the parameter names of Hugging Face.
 */
#ifndef ACCEL_NN_MODELS_GPT2_H
#define ACCEL_NN_MODELS_GPT2_H

#include "nn/nn.h"

/* Builds the tree; the caller frees it with nn_module_free. Forward takes {ids,
 * targets}, int32 [B, T], and returns the mean loss; with {ids} alone it returns the
 * logits of the last position, float32 [B, vocab], without a backward. NULL and `err`
 * on failure. */
accel_module_t *gpt2_new(struct graph *g, const accel_gpt2_t *cfg, accel_error_t *err);
/* The shape, defaults filled in, of a model made by gpt2_new; NULL for any
 * other module. */
const accel_gpt2_t *gpt2_config(const accel_module_t *model);

#endif
