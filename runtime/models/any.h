/* SPDX-License-Identifier: Apache-2.0
 *
 * Any of the library's models, by name or directory, for programs to which it does not
 * matter which.
 */
#ifndef ACCEL_NN_MODELS_ANY_H
#define ACCEL_NN_MODELS_ANY_H

#include "nn/nn.h"

enum model_kind { MODEL_GPT2, MODEL_LLAMA, MODEL_BERT };

/* The sizes of one model. Only the member that `kind` names is used. */
struct model_shape {
    enum model_kind kind;
    accel_gpt2_t gpt2;
    accel_llama_t llama;
    accel_bert_t bert;
};

/* The sizes that all kinds have. */
struct model_sizes {
    int layers, heads, width, context, vocab;
};

/* A published model by its name (accel_gpt2_preset ...); if `name` contains a '/' or is
 * a directory or file, the config.json there. */
accel_status_t model_shape_open(const char *name, struct model_shape *shape_out,
                                accel_error_t *err);
/* The name of published model number `i`, from 0; NULL: no more. Static. */
const char *model_preset_name(size_t i);
/* The sizes of the member that `kind` names. */
struct model_sizes model_sizes_of(const struct model_shape *m);
/* Changes the sizes that are not 0 in `s`, and those that follow from them: the width
 * of heads, the heads of keys and values, and the hidden width. */
void model_resize(struct model_shape *m, const struct model_sizes *s);
/* The fields of a training sample of `seq` tokens, as the model's forward takes them;
 * returns how many (at most 4). */
int model_fields(const struct model_shape *m, int seq, accel_field_t fields_out[4]);
/* Builds the tree; the caller frees it with nn_module_free. NULL and `err`
 * on failure. */
accel_module_t *model_new(struct graph *g, const struct model_shape *m,
                          accel_error_t *err);

#endif
