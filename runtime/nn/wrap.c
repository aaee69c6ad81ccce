/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts the module tree into units by the wrap policy. In: a built tree. Out: the list
 * of units that shard/ works on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/nn.h"

/* What makes a module the start of a unit. */
struct policy {
    bool wrap;
    /* comma list; NULL or empty: names that end in "Block" or "Layer" */
    const char *classes;
};

/* Is `name` one of the words of a comma list? Blanks around a word do not count. */
static bool in_list(const char *list, const char *name)
{
    size_t len = strlen(name);

    while (*list) {
        size_t n = strcspn(list, ",");
        const char *word = list;

        list += n + (list[n] == ',');
        while (n && (*word == ' ' || *word == '\t')) {
            word++;
            n--;
        }
        while (n && (word[n - 1] == ' ' || word[n - 1] == '\t'))
            n--;
        if (n == len && !memcmp(word, name, n))
            return true;
    }
    return false;
}

/* The root never does: it holds what no unit takes. */
static bool starts_unit(const struct policy *p, const accel_module_t *m)
{
    static const char *const ends[] = { "Block", "Layer" };
    size_t len = strlen(m->cls->name);

    if (!p->wrap || !m->parent)
        return false;
    if (p->classes && *p->classes)
        return in_list(p->classes, m->cls->name);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(ends); i++)
        if (len >= strlen(ends[i]) &&
            !strcmp(m->cls->name + len - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

/* Adds up modules and parameters, so that both lists can be allocated at once. No tree
 * has more units than modules. */
static void count(const accel_module_t *m, int *modules, int *params)
{
    ++*modules;
    *params += m->param_count;
    for (const accel_module_t *c = m->child; c; c = c->next)
        count(c, modules, params);
}

/* What the walk works on. whose[i]: the module that unit i belongs to, the start of a
 * unit or the root. */
struct cut {
    const struct policy *policy;
    struct units *u;
    const accel_module_t **whose;
};

/* All parameters of a unit are gathered and reduced alike, so the modules of `owner`
 * have a unit for each set of types. */
static int unit_of(struct cut *k, const accel_module_t *owner, const accel_module_t *m)
{
    const struct plan_types t = { m->own_types, m->types.compute, m->types.reduce };
    struct units *u = k->u;

    for (int i = 0; i < u->count; i++) {
        const struct plan_types *of = &u->unit[i].types;

        if (k->whose[i] == owner && of->own == t.own &&
            (!t.own || (of->parameters == t.parameters && of->reduce == t.reduce)))
            return i;
    }
    k->whose[u->count] = owner;
    u->unit[u->count].name = m->path;
    u->unit[u->count].types = t;
    return u->count++;
}

/* Pre-order: a unit's number is the order in which its module is met. That is the order
 * of the forward too, for models that call their children in order of declaration.
 * Units do not nest: below the start of one no other begins. */
static void assign(struct cut *k, const accel_module_t *owner, accel_module_t *m)
{
    m->wrapped = !owner->parent && starts_unit(k->policy, m);
    owner = m->wrapped ? m : owner;
    m->unit = unit_of(k, owner, m);
    k->u->unit[m->unit].param_count += m->param_count;
    for (accel_module_t *c = m->child; c; c = c->next)
        assign(k, owner, c);
}

/* The second walk, when the counts are known. The lists of all units share
 * one array. */
static void collect(accel_module_t *m, struct units *u)
{
    for (int i = 0; i < m->param_count; i++) {
        struct unit *to = &u->unit[m->unit];

        to->param[to->param_count++] = m->param[i];
        m->param[i]->param->seen_as = m->types.compute;
    }
    for (accel_module_t *c = m->child; c; c = c->next)
        collect(c, u);
}

int nn_wrapped(const accel_module_t *root)
{
    int n = root->wrapped;

    for (const accel_module_t *c = root->child; c; c = c->next)
        n += nn_wrapped(c);
    return n;
}

/* All class names of the tree, for a suggestion; beyond `cap` they are left out. */
static int class_names(const accel_module_t *m, const char **names, int n, int cap)
{
    if (n < cap)
        names[n++] = m->cls->name;
    for (const accel_module_t *c = m->child; c; c = c->next)
        n = class_names(c, names, n, cap);
    return n;
}

/* A misspelt class would silently make the model one unit, which gathers all of it at
 * once: that is refused, with the nearest name. */
static accel_status_t unknown_class(accel_module_t *const *roots, int trees,
                                    const char *word, size_t len, accel_error_t *err)
{
    const char *names[512], *near;
    char text[128], hint[256];
    int n = 0;

    for (int i = 0; i < trees; i++)
        n = class_names(roots[i], names, n, ACCEL_ARRAY_SIZE(names));
    snprintf(text, sizeof(text), "%.*s", (int)(len < 127 ? len : 127), word);
    near = suggest_nearest(text, names, (size_t)n);
    if (near)
        snprintf(hint, sizeof(hint), "did you mean %s?", near);
    else
        snprintf(hint, sizeof(hint),
                 "name a class of the model, or remove the key to wrap classes ending "
                 "in Block or Layer");
    return accel_fail(err, A0614, hint,
                      "fsdp_transformer_layer_cls_to_wrap: the model has no class '%s'",
                      text);
}

/* The root does not count, as in starts_unit. */
static bool has_class(const accel_module_t *m, const char *list_word)
{
    if (m->parent && in_list(list_word, m->cls->name))
        return true;
    for (const accel_module_t *c = m->child; c; c = c->next)
        if (has_class(c, list_word))
            return true;
    return false;
}

accel_status_t nn_classes_check(accel_module_t *const *roots, int n,
                                const char *classes, accel_error_t *err)
{
    for (const char *at = classes ? classes : ""; *at;) {
        size_t len = strcspn(at, ",");
        char *word = strndup(at, len);
        bool found = false;

        if (!word)
            return accel_fail_nomem(err, "a class name", len);
        for (int i = 0; i < n && !found; i++)
            found = has_class(roots[i], word);
        free(word);
        if (!found) {
            while (len && (*at == ' ' || *at == '\t')) {
                at++;
                len--;
            }
            /* blanks before the word are no part of its name */
            return unknown_class(roots, n, at, len, err);
        }
        at += len + (at[len] == ',');
    }
    return ACCEL_OK;
}

/* Two arrays: the units, and one for the parameters of all of them, which starts with
 * unit 0's (units_free knows that). */
static accel_status_t allocate(struct cut *k, int units, int params, accel_error_t *err)
{
    struct units *u = k->u;

    u->unit = calloc((size_t)units, sizeof(*u->unit));
    k->whose = calloc((size_t)units, sizeof(accel_module_t *));
    if (u->unit)
        u->unit[0].param = calloc((size_t)params, sizeof(*u->unit[0].param));
    if (!u->unit || !u->unit[0].param || !k->whose) {
        if (u->unit)
            free(u->unit[0].param);
        free(u->unit);
        free((void *)k->whose);
        return accel_fail_nomem(err, "the list of units", (size_t)params * 8);
    }
    return ACCEL_OK;
}

accel_status_t nn_units_build(accel_module_t *root, bool transformer_wrap,
                              const char *classes, struct units *units_out,
                              accel_error_t *err)
{
    const struct policy p = { transformer_wrap, classes };
    struct units u = { 0 };
    struct cut k = { .policy = &p, .u = &u };
    int modules = 0, params = 0;
    accel_status_t st;

    if (!root)
        return accel_fail(err, A0609, "pass what accel_module_new returned",
                          "the model is NULL");
    count(root, &modules, &params);
    if (!params)
        return accel_fail(err, A0609, "declare some with accel_param",
                          "the model has no parameters");
    ACCEL_CHECK(st, allocate(&k, modules, params, err));
    assign(&k, root, root);
    free((void *)k.whose);
    /* From counts to places: each list starts where the one before it ends. The counts
     * go back to 0, and collect brings them up again while it fills the lists. */
    for (int i = 0; i < u.count; i++) {
        if (i)
            u.unit[i].param = u.unit[i - 1].param + params;
        params = u.unit[i].param_count;
        u.unit[i].param_count = 0;
    }
    collect(root, &u);
    units_lay_out(&u);
    *units_out = u;
    return ACCEL_OK;
}
