/* SPDX-License-Identifier: Apache-2.0
 *
 * The names and layouts of the tensors of a Hugging Face model, relative to the
 * parameters of this library, and the text of the model's config.json. In: a model and
 * a name. Out: names, text; never a file.
 */
#ifndef ACCEL_WEIGHTS_HF_NAMES_H
#define ACCEL_WEIGHTS_HF_NAMES_H

#include "nn/nn.h"

/* the rules of one model; static, never freed */
struct hf_names;

/* The rules for a model. For NULL, or a model not of the library, names stay the
 * same. */
const struct hf_names *hf_names_of(const accel_module_t *root);
/* The same by the model_type of its config.json: "gpt2", "llama", "bert"; NULL: any
 * other model. Returns NULL for a type that is not the library's. */
const struct hf_names *hf_names_for(const char *model_type);
/* The config.json of a model, with weights of `dtype`; *text_out, one malloc, is NULL
 * for a model that is not the library's. ACCEL_ENOMEM. */
accel_status_t hf_config_text(const accel_module_t *root, const char *dtype,
                              char **text_out, accel_error_t *err);
/* The same on one line of ASCII, with the directory that the model was opened from
 * (NULL: none) as _name_or_path. */
accel_status_t hf_config_line(const accel_module_t *root, const char *from,
                              char **line_out, accel_error_t *err);
/* Writes the i-th name that `param` may have in a file to buf[len]. Name 0 is the one
 * that is written to files. False: no more names. */
bool hf_name(const struct hf_names *n, const char *param, int i, char *buf, size_t len);
/* Writes the parameter whose name 0 is `tensor` to buf[len]. */
void hf_param(const struct hf_names *n, const char *tensor, char *buf, size_t len);
/* Is the parameter stored as the transpose of ours? */
bool hf_is_transposed(const struct hf_names *n, const char *param);
/* Is it part of a head? A new head may be missing from the file, and then keeps its
 * initial values. */
bool hf_is_head(const struct hf_names *n, const char *param);
/* Is it a buffer that files may contain, but that accel computes itself? */
bool hf_is_buffer(const struct hf_names *n, const char *tensor);
/* The i-th tensor that a file may contain although the model ties it: *tensor_out must
 * equal the parameter *param_out. Static texts. False: no more. */
bool hf_tied(const struct hf_names *n, int i, const char **tensor_out,
             const char **param_out);

#endif
