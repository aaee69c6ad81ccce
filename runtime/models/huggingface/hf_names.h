/* SPDX-License-Identifier: Apache-2.0
 *
 * The names and layouts of the tensors of a Hugging Face model, relative to the
 * parameters of this library. In: a model and a name. Out: names; never a file.
 */
#ifndef ACCEL_WEIGHTS_HF_NAMES_H
#define ACCEL_WEIGHTS_HF_NAMES_H

#include "nn/nn.h"

/* entries of each list; unused ones are NULL */
#define HF_NAMES_MOST 4

/* The rules of a family. Files may have or omit the prefix of the base model. */
struct hf_names {
    /* of the base model's names; parameters of this library have it, too, or not */
    const char *prefix;
    bool params_have_it;
    /* names outside the base model begin with one of these: never prefixed */
    const char *heads[HF_NAMES_MOST];
    /* names of matrices that are stored [in, out] end with one */
    const char *transposed[HF_NAMES_MOST];
    /* parameters that may be missing begin with one, after the prefix */
    const char *optional[HF_NAMES_MOST];
    /* buffers end with one */
    const char *buffers[HF_NAMES_MOST];
    /* { tensor, parameter } pairs of equal values */
    const char *tied[HF_NAMES_MOST][2];
    /* LayerNorm.gamma and .beta of old files are names as well */
    bool gamma;
};

/* The rules for a model. For NULL, or a model not of the library, names stay the
 * same. */
const struct hf_names *hf_names_of(const accel_module_t *root);
/* The same by the model_type of its config.json; NULL: any other model. Returns NULL
 * for a type that is not the library's. */
const struct hf_names *hf_names_for(const char *model_type);
/* Writes the i-th name that `param` may have in a file to buf[len]. Name 0 is the one
 * that is written to files. False: no more names. */
bool hf_name(const struct hf_names *n, const char *param, int i, char *buf, size_t len);
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
