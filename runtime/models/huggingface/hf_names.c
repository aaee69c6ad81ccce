/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of names and layouts, one row per model. Files may have or omit the prefix
 * of the base model; old files call the parameters of norms gamma and beta; GPT-2's
 * linear layers are stored [in, out].
 */
#include <stdio.h>
#include <string.h>

#include "models/huggingface/hf_names.h"

/* entries of each list; unused ones are NULL */
#define MOST 4

struct hf_names {
    /* of the base model's names; parameters of this library have it, too, or not */
    const char *prefix;
    bool params_have_it;
    /* names outside the base model begin with one of these: never prefixed */
    const char *heads[MOST];
    /* names of transposed matrices end with one */
    const char *transposed[MOST];
    /* parameters that may be missing begin with one, behind the prefix */
    const char *optional[MOST];
    /* buffers end with one */
    const char *buffers[MOST];
    /* { tensor, parameter } pairs of equal values */
    const char *tied[MOST][2];
    /* LayerNorm.gamma and .beta are names as well */
    bool gamma;
};

/* GPT-2's Conv1D stores [in, out]. Older files hold the causal mask as a buffer. */
static const struct hf_names gpt2_names = {
    .prefix = "transformer.",
    .heads = { "lm_head." },
    .transposed = { ".c_attn.weight", ".c_proj.weight", ".c_fc.weight" },
    .buffers = { ".attn.bias", ".attn.masked_bias" },
    .tied = { { "lm_head.weight", "wte.weight" } },
};
/* Where the head is not tied, lm_head is a parameter and the pair does not count. */
static const struct hf_names llama_names = {
    .prefix = "model.",
    .heads = { "lm_head." },
    .buffers = { ".rotary_emb.inv_freq" },
    .tied = { { "lm_head.weight", "embed_tokens.weight" } },
};
/* Heads and pooler may be missing: pre-trained files are the usual start
 * for a new classifier. */
static const struct hf_names bert_names = {
    .prefix = "bert.",
    .params_have_it = true,
    .heads = { "cls.", "classifier." },
    .optional = { "cls.", "classifier.", "pooler." },
    .buffers = { "embeddings.position_ids" },
    .tied = { { "cls.predictions.decoder.weight", "embeddings.word_embeddings.weight" },
              { "cls.predictions.decoder.bias", "cls.predictions.bias" } },
    .gamma = true,
};
/* any other model: names as they are, nothing transposed, nothing optional */
static const struct hf_names plain = { .prefix = "" };

/* The rows by the names that Hugging Face has for the models. */
static const struct {
    const char *type;
    const struct hf_names *names;
} types[] = { { "gpt2", &gpt2_names },
              { "llama", &llama_names },
              { "bert", &bert_names } };

const struct hf_names *hf_names_for(const char *model_type)
{
    if (!model_type)
        return &plain;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].type, model_type) == 0)
            return types[i].names;
    return NULL;
}

static bool begins(const char *s, const char *head)
{
    return strncmp(s, head, strlen(head)) == 0;
}

static bool ends(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);

    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* Does s fit an entry of the list? */
static bool any(const char *const list[MOST], const char *s,
                bool (*fits)(const char *, const char *))
{
    for (int i = 0; i < MOST && list[i]; i++)
        if (fits(s, list[i]))
            return true;
    return false;
}

/* The name without the base model's prefix. */
static const char *inner(const struct hf_names *n, const char *name)
{
    return begins(name, n->prefix) ? name + strlen(n->prefix) : name;
}

/* Names 0 .. forms-1 are with and without prefix; then the same with the
 * old names of the norms. */
bool hf_name(const struct hf_names *n, const char *param, int i, char *buf, size_t len)
{
    const char *base = inner(n, param), *old = NULL;
    bool head = any(n->heads, base, begins);
    /* with the prefix and without; heads have one form */
    int forms = head || !*n->prefix ? 1 : 2;
    size_t cut;

    if (n->gamma && ends(base, "LayerNorm.weight"))
        old = "gamma";
    else if (n->gamma && ends(base, "LayerNorm.bias"))
        old = "beta";
    if (i >= (old ? 2 : 1) * forms)
        return false;
    snprintf(buf, len, "%s%s", head || i % forms ? "" : n->prefix, base);
    if (i < forms)
        return true;
    /* replaces weight or bias behind the last dot */
    cut = (size_t)(strrchr(buf, '.') - buf) + 1;
    snprintf(buf + cut, len - cut, "%s", old);
    return true;
}

void hf_param(const struct hf_names *n, const char *tensor, char *buf, size_t len)
{
    snprintf(buf, len, "%s", n->params_have_it ? tensor : inner(n, tensor));
}

bool hf_is_transposed(const struct hf_names *n, const char *param)
{
    return any(n->transposed, param, ends);
}

bool hf_is_head(const struct hf_names *n, const char *param)
{
    return any(n->optional, inner(n, param), begins);
}

bool hf_is_buffer(const struct hf_names *n, const char *tensor)
{
    return any(n->buffers, tensor, ends);
}

bool hf_tied(const struct hf_names *n, int i, const char **tensor_out,
             const char **param_out)
{
    if (i >= MOST || !n->tied[i][0])
        return false;
    *tensor_out = n->tied[i][0];
    *param_out = n->tied[i][1];
    return true;
}
