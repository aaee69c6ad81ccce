/* SPDX-License-Identifier: Apache-2.0
 *
 * The walk over module trees that finds the matrices of linears.
 */
#include "nn/fp8_linears.h"

#include <stdlib.h>
#include <string.h>

#include "backend/device.h"

/* The matrices of one tree, in order of declaration. */
struct matrix {
    accel_tensor_t *weight;
    const accel_module_t *module;
};

struct matrix_list {
    struct matrix *at; /* NULL: they are counted only */
    int count;
};

/* What takes no part in a product as a whole is no linear: rows of a table are looked
 * up. A head that is tied to such a table stays wide with it. */
static void list_matrices(const accel_module_t *m, struct matrix_list *l)
{
    for (int i = 0; i < m->param_count && strcmp(m->cls->name, "Embedding"); i++) {
        if (m->param[i]->ndim != 2)
            continue;
        if (l->at)
            l->at[l->count] = (struct matrix){ m->param[i], m };
        l->count++;
    }
    for (const accel_module_t *c = m->child; c; c = c->next)
        list_matrices(c, l);
}

/* Does it multiply in fp8? A rule that fits it decides, then the program; without
 * either `otherwise` is the answer, where its sizes allow it. */
static accel_status_t matrix_narrows(const struct matrix *x, struct module_rules *rules,
                                     bool otherwise, bool *narrow_out,
                                     accel_error_t *err)
{
    const accel_tensor_t *w = x->weight;
    const char *name = tensor_full_name(w);
    const bool fits = w->dim[0] % FP8_MULTIPLE == 0 && w->dim[1] % FP8_MULTIPLE == 0;
    const int i = module_rule_of(rules, name);
    const bool asked = i < 0 ? nn_module_narrows(x->module, false)
                             : rules->rule[i].choice.compute == MODULE_FP8;

    if (i >= 0)
        rules->rule[i].hits++;
    /* Until a rehearsal tells, modules of the program's own may do anything with it. */
    x->weight->param->taken_wide =
        !asked && strcmp(x->module->cls->name, "Linear") != 0;
    /* fp8 leaves the run's dtype for the rest of a linear */
    *narrow_out = fits && x->module->types.compute == w->g->compute &&
                  (i < 0 ? nn_module_narrows(x->module, otherwise) : asked);
    if (fits || !asked)
        return ACCEL_OK;
    return accel_fail(err, A0997, "use a glob that leaves it out, or other sizes",
                      "fp8 is asked for %s [%lld, %lld], whose sizes are not multiples "
                      "of %d",
                      name, (long long)w->dim[0], (long long)w->dim[1], FP8_MULTIPLE);
}

/* Takes what is to multiply in fp8 of one tree. */
static accel_status_t choose_matrices(struct fp8_linears *out,
                                      const struct matrix_list *l,
                                      struct module_rules *rules, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < l->count && st == ACCEL_OK; i++) {
        bool narrow = false;

        st = matrix_narrows(&l->at[i], rules, i > 0 && i < l->count - 1, &narrow, err);
        if (narrow)
            out->weight[out->count++] = l->at[i].weight;
    }
    return st;
}

/* The matrices of all trees; the list is as long as it can get. */
static accel_status_t choose_all(struct fp8_linears *out, accel_module_t *const *roots,
                                 int n, struct module_rules *rules, accel_error_t *err)
{
    struct matrix *list = calloc((size_t)out->candidates + 1, sizeof(*list));
    const char *some = "";
    accel_status_t st = ACCEL_OK;

    out->weight = calloc((size_t)out->candidates + 1, sizeof(accel_tensor_t *));
    if (!list || !out->weight)
        st = accel_fail_nomem(err, "the list of linears",
                              2 * (size_t)out->candidates * sizeof(*list));
    for (int i = 0; i < n && st == ACCEL_OK; i++) {
        struct matrix_list l = { .at = list };

        list_matrices(roots[i], &l);
        some = l.count > 0 ? tensor_full_name(list[0].weight) : some;
        st = choose_matrices(out, &l, rules, err);
    }
    free(list);
    return st == ACCEL_OK ? module_rules_used(rules, true, some, err) : st;
}

/* Scales for what is chosen. */
static accel_status_t open_scales(struct fp8_linears *out, accel_error_t *err)
{
    const size_t count = (size_t)out->count;
    const size_t each = (size_t)fp8_state_elems(&out->recipe);

    out->linear = calloc(count + 1, sizeof(*out->linear));
    out->state = calloc(count * each + 1, sizeof(*out->state));
    out->shown = calloc(count * FP8_TENSORS + 1, sizeof(*out->shown));
    if (!out->linear || !out->state || !out->shown)
        return accel_fail_nomem(err, "the scales of linears",
                                count * each * sizeof(*out->state));
    for (size_t i = 0; i < count; i++) {
        struct fp8_linear *l = &out->linear[i];

        l->recipe = &out->recipe;
        l->state = out->state + i * each;
        l->live = out->shown + i * FP8_TENSORS;
        fp8_begin(l);
        out->weight[i]->param->fp8 = l;
        out->weight[i]->g->narrows = !out->recipe.blocks;
    }
    return ACCEL_OK;
}

accel_status_t fp8_linears_open(struct fp8_linears *out, accel_module_t *const *roots,
                                int n, const struct config *cfg, accel_error_t *err)
{
    struct module_rules rules;
    struct matrix_list counted = { NULL };
    accel_status_t st = module_rules_read(cfg, &rules, err);

    memset(out, 0, sizeof(*out));
    out->recipe = fp8_recipe_of(cfg);
    for (int i = 0; i < n; i++)
        list_matrices(roots[i], &counted);
    out->candidates = counted.count;
    ACCEL_TRY(st, choose_all(out, roots, n, &rules, err));
    ACCEL_TRY(st, open_scales(out, err));
    return st;
}

void fp8_linears_rehearse(struct fp8_linears *l)
{
    for (int i = 0; i < l->count; i++)
        l->weight[i]->param->taken_wide = false;
}

int fp8_linears_wide(const struct fp8_linears *l, const char **name_out)
{
    int n = 0;

    for (int i = 0; i < l->count; i++)
        if (l->weight[i]->param->taken_wide && n++ == 0)
            *name_out = tensor_full_name(l->weight[i]);
    return n;
}

size_t fp8_linears_bytes(const struct fp8_linears *l)
{
    return l->recipe.current ? 0 : (size_t)l->count * FP8_TENSORS * sizeof(*l->shown);
}

accel_status_t fp8_linears_place(struct fp8_linears *l, const struct backend *be,
                                 accel_error_t *err)
{
    const size_t bytes = fp8_linears_bytes(l);
    void *memory = NULL;
    accel_status_t st =
        bytes ? be->alloc(be, MEMORY_BUFFERS, bytes, &memory, err) : ACCEL_OK;

    if (st != ACCEL_OK || !bytes)
        return st;
    l->be = be;
    l->live = memory;
    for (int i = 0; i < l->count; i++)
        l->linear[i].live = l->live + i * FP8_TENSORS;
    fp8_linears_show(l);
    return ACCEL_OK;
}

void fp8_linears_show(struct fp8_linears *l)
{
    for (int i = 0; i < l->count; i++) {
        fp8_show(&l->linear[i], l->shown + i * FP8_TENSORS);
        /* other scales, and a largest magnitude to be noted */
        l->linear[i].kept_of = l->linear[i].seen = 0;
    }
    if (l->be)
        l->be->from_host(l->be, l->live, l->shown, fp8_linears_bytes(l));
}

void fp8_linears_look(struct fp8_linears *l)
{
    l->be->to_host_bytes(l->be, l->shown, l->live, fp8_linears_bytes(l));
    for (int i = 0; i < l->count * FP8_TENSORS; i++)
        fp8_history(&l->linear[i / FP8_TENSORS],
                    (enum fp8_tensor)(i % FP8_TENSORS))[0] = l->shown[i].amax;
}

void fp8_linears_close(struct fp8_linears *l)
{
    if (l->be)
        l->be->free(l->be, l->live);
    if (l->kept_be)
        l->kept_be->free(l->kept_be, l->kept);
    free(l->linear);
    free(l->weight);
    free(l->state);
    free(l->shown);
    memset(l, 0, sizeof(*l));
}
