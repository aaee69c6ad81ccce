/* SPDX-License-Identifier: Apache-2.0
 *
 * The naming rules of a model, and its config.json. Separate from the rules themselves,
 * which tools use without a model.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "models/bert.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "models/huggingface/hf_config.h"
#include "models/huggingface/hf_names.h"

/* The model's kind is known by its configuration, not by the names in it. */
const struct hf_names *hf_names_of(const accel_module_t *root)
{
    return hf_names_for(gpt2_config(root)    ? "gpt2"
                        : llama_config(root) ? "llama"
                        : bert_config(root)  ? "bert"
                                             : NULL);
}

accel_status_t hf_config_text(const accel_module_t *root, const char *dtype,
                              char **text_out, accel_error_t *err)
{
    const accel_gpt2_t *gpt2 = gpt2_config(root);
    const accel_llama_t *llama = llama_config(root);
    const accel_bert_t *bert = bert_config(root);

    *text_out = NULL;
    return gpt2    ? hf_gpt2_format(gpt2, dtype, text_out, err)
           : llama ? hf_llama_format(llama, dtype, text_out, err)
           : bert  ? hf_bert_format(bert, dtype, text_out, err)
                   : ACCEL_OK;
}

accel_status_t hf_config_line(const accel_module_t *root, const char *from,
                              char **line_out, accel_error_t *err)
{
    char *text = NULL;
    json_t *o;
    accel_status_t st = hf_config_text(root, "float32", &text, err);

    *line_out = NULL;
    if (st || !text)
        return st;
    o = json_loads(text, 0, NULL);
    free(text);
    /* the key by which transformers, too, says where a model comes from; a path that is
     * not UTF-8 is left out */
    if (from)
        json_object_set_new(o, "_name_or_path", json_string(from));
    *line_out = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_SORT_KEYS |
                                  JSON_REAL_PRECISION(9));
    json_decref(o);
    return *line_out ? ACCEL_OK
                     : accel_fail_nomem(err, "the text of config.json", 4096);
}
