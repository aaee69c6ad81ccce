/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules that compute in another dtype than their run. In: the tree, the rules of the
 * config, what the program asks for. Out: the dtypes of every module.
 */
#include <stdio.h>
#include <string.h>

#include "nn/nn.h"
#include "tensor/tape.h"

/* The first tensor of the tree whose name has the model's in front; NULL: none has. */
static const accel_tensor_t *named_tensor(const accel_module_t *m)
{
    const accel_tensor_t *t = NULL;

    for (int i = 0; i < m->param_count && !t; i++)
        t = m->param[i]->full ? m->param[i] : NULL;
    for (int i = 0; i < m->buffer_count && !t; i++)
        t = m->buffer[i]->full ? m->buffer[i] : NULL;
    for (const accel_module_t *c = m->child; c && !t; c = c->next)
        t = named_tensor(c);
    return t;
}

/* "MODEL/h.3.attn", or "h.3.attn" where the model has no name, in buf; returns buf. */
static const char *module_name(const accel_module_t *m, char *buf, size_t len)
{
    const accel_module_t *root = m;
    const accel_tensor_t *t;
    int prefix = 0;

    while (root->parent)
        root = root->parent;
    t = named_tensor(root);
    if (t)
        prefix = (int)(strlen(t->full) - strlen(t->name ? t->name : t->buffer));
    snprintf(buf, len, "%.*s%s", prefix, t ? t->full : "", m->path);
    return buf;
}

/* The first rule that fits the module or one of its own parameters; -1: none does. */
static int rule_of(const struct module_rules *rules, const accel_module_t *m,
                   const char *name)
{
    int first = module_rule_of(rules, name);

    for (int i = 0; i < m->param_count; i++) {
        const int rule = module_rule_of(rules, tensor_full_name(m->param[i]));

        if (rule >= 0 && (first < 0 || rule < first))
            first = rule;
    }
    return first;
}

/* What an assignment walks with. */
struct assignment {
    const struct config *cfg;
    struct module_rules rules;
    struct module_types run;
    /* modules so far that have other types */
    int others;
};

static accel_status_t assign(struct assignment *a, accel_module_t *m,
                             accel_error_t *err)
{
    const struct module_types around = m->parent ? m->parent->types : a->run;
    const struct module_choice *choice = &m->choice;
    char name[1024];
    const int rule = rule_of(&a->rules, m, module_name(m, name, sizeof(name)));
    accel_status_t st = ACCEL_OK;

    m->types = around;
    m->types.output = around.compute;
    if (rule >= 0) {
        a->rules.rule[rule].hits++;
        choice = &a->rules.rule[rule].choice;
    }
    if (choice->compute != MODULE_INHERITS)
        st = module_types_choose(a->cfg, choice, around, name, &m->types, err);
    if (accel_dtype_bytes(m->types.compute) > accel_dtype_bytes(m->g->widest))
        m->g->widest = m->types.compute;
    m->own_types =
        m->types.compute != a->run.compute || m->types.reduce != a->run.reduce;
    a->others += m->own_types;
    for (accel_module_t *c = m->child; c && st == ACCEL_OK; c = c->next)
        st = assign(a, c, err);
    return st;
}

accel_status_t nn_precision_assign(accel_module_t *const *roots, int n,
                                   const struct config *cfg, int *others_out,
                                   accel_error_t *err)
{
    struct assignment a = { .cfg = cfg, .run = module_types_of(cfg) };
    char some[1024] = "";
    accel_status_t st = module_rules_read(cfg, &a.rules, err);

    for (int i = 0; i < n && st == ACCEL_OK; i++) {
        st = assign(&a, roots[i], err);
        if (roots[i]->child)
            module_name(roots[i]->child, some, sizeof(some));
    }
    *others_out = a.others;
    return st == ACCEL_OK ? module_rules_used(&a.rules, false, some, err) : st;
}

bool nn_module_narrows(const accel_module_t *m, bool otherwise)
{
    while (m && m->choice.compute == MODULE_INHERITS)
        m = m->parent;
    return m ? m->choice.compute == MODULE_FP8 : otherwise;
}

accel_status_t accel_module_precision(accel_module_t *m, const char *precision,
                                      accel_error_t *err)
{
    struct module_choice choice;

    if (!m)
        return accel_fail(err, A0609, "pass what accel_module_new returned",
                          "the module is NULL");
    if (!precision || !module_choice_read(precision, &choice))
        return accel_fail(err, A0605,
                          "use fp32, bf16, fp16 or fp8, with +output:TYPE and "
                          "+reduce:TYPE behind it where they differ",
                          "module '%s' cannot have the precision '%s'", m->path,
                          precision ? precision : "NULL");
    if (m->unit >= 0)
        return accel_fail(err, A0605, "call it before accel_prepare",
                          "the precision of module '%s' cannot change any more",
                          m->path);
    m->choice = choice;
    return ACCEL_OK;
}
