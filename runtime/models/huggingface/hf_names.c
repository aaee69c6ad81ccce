/* SPDX-License-Identifier: Apache-2.0
 *
 * Names and layouts of tensors in files, by the rules of a family.
 */
#include <stdio.h>
#include <string.h>

#include "models/family.h"
#include "models/huggingface/hf_names.h"

/* any other model: names as they are, nothing transposed, nothing optional */
static const struct hf_names plain = { .prefix = "" };

const struct hf_names *hf_names_for(const char *model_type)
{
    const struct model_family *f = model_family_find(model_type);

    return f ? &f->names : model_type ? NULL : &plain;
}

/* A model's family is known by the class of its root, not by the names in it. */
const struct hf_names *hf_names_of(const accel_module_t *root)
{
    const struct model_family *f = model_family_of(root);

    return f ? &f->names : &plain;
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
static bool any(const char *const list[HF_NAMES_MOST], const char *s,
                bool (*fits)(const char *, const char *))
{
    for (int i = 0; i < HF_NAMES_MOST && list[i]; i++)
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
    /* replaces weight or bias after the last dot */
    cut = (size_t)(strrchr(buf, '.') - buf) + 1;
    snprintf(buf + cut, len - cut, "%s", old);
    return true;
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
    if (i >= HF_NAMES_MOST || !n->tied[i][0])
        return false;
    *tensor_out = n->tied[i][0];
    *param_out = n->tied[i][1];
    return true;
}
