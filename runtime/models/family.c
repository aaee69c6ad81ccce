/* SPDX-License-Identifier: Apache-2.0
 *
 * What is the same for every model family (see family.h): the list of rows,
 * and what is looked up in it.
 */
#include "models/family.h"

#include <stdio.h>
#include <string.h>

#define MODEL_FAMILY_ROW(name) &name##_family,
static const struct model_family *const families[] = { MODEL_FAMILIES(
    MODEL_FAMILY_ROW) };

const struct model_family *model_family_at(size_t i)
{
    return i < ACCEL_ARRAY_SIZE(families) ? families[i] : NULL;
}

const struct model_family *model_family_find(const char *type)
{
    for (size_t i = 0; type && i < ACCEL_ARRAY_SIZE(families); i++)
        if (strcmp(families[i]->type, type) == 0)
            return families[i];
    return NULL;
}

const struct model_family *model_family_of(const accel_module_t *root)
{
    for (size_t i = 0; root && i < ACCEL_ARRAY_SIZE(families); i++)
        if (families[i]->root == root->cls)
            return families[i];
    return NULL;
}

const char *model_family_list(enum model_family_text which, char *buf, size_t len)
{
    const size_t n = ACCEL_ARRAY_SIZE(families);
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < n && used < len; i++)
        used += (size_t)snprintf(buf + used, len - used, "%s%s",
                                 !i          ? ""
                                 : i + 1 < n ? ", "
                                             : " or ",
                                 which == MODEL_TYPES ? families[i]->type
                                                      : families[i]->example);
    return buf;
}

void model_config_fill(const struct model_family *f, accel_model_config_t *c)
{
    for (const struct model_key *k = f->keys; k->key; k++) {
        void *at = (char *)c + k->at;

        if (k->kind == MODEL_EPS && !(*(float *)at > 0))
            *(float *)at = (float)k->otherwise;
        if (k->kind == MODEL_ACTIVATION && *(accel_activation_t *)at == ACCEL_ACT_NONE)
            *(accel_activation_t *)at = hf_activation(k->word);
    }
    if (f->fill)
        f->fill(c);
}
