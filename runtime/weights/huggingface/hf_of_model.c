/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rules of names a model has. Apart from the rules, which tools use without any
 * model.
 */
#include "nn/models/bert.h"
#include "nn/models/gpt2.h"
#include "nn/models/llama.h"
#include "weights/huggingface/hf_names.h"

/* The model's kind is known by its configuration, not by the names in it. */
const struct hf_names *hf_names_of(const accel_module_t *root)
{
    return hf_names_for(gpt2_config(root)    ? "gpt2"
                        : llama_config(root) ? "llama"
                        : bert_config(root)  ? "bert"
                                             : NULL);
}
