/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tensors of a Hugging Face model are called, and how they lie there, against
 * the parameters of this library. In: a model and a name. Out: names; never a file.
 */
#ifndef ACCEL_NN_MODELS_HF_NAMES_H
#define ACCEL_NN_MODELS_HF_NAMES_H

#include "nn/nn.h"

struct hf_names; /* the rules of one model; static */

/* For a model that is not of the library (NULL, too) names are taken as they are. */
const struct hf_names *hf_names_of(const accel_module_t *root);
/* The i-th name under which `param` may be in a file, into buf; false: no more. The
 * first one is written. */
bool hf_name(const struct hf_names *n, const char *param, int i, char *buf, size_t len);
/* Stored as the transpose of ours. */
bool hf_is_transposed(const struct hf_names *n, const char *param);
/* A new head: may be absent, and then keeps its initial values. */
bool hf_is_head(const struct hf_names *n, const char *param);
/* A buffer that files may hold and that is computed here. */
bool hf_is_buffer(const struct hf_names *n, const char *tensor);
/* The i-th tensor that may be there again under another name: `tensor` equals the
 * parameter `param`. False: no more. */
bool hf_tied(const struct hf_names *n, int i, const char **tensor_out,
             const char **param_out);

#endif
