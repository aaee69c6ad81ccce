/* SPDX-License-Identifier: Apache-2.0
 *
 * The models and optimizers of a run: those that the program adds before
 * accel_prepare_all, or the one of each that a job names. In: roots of module trees,
 * settings. Out: the lists in the run, checked. Computes nothing.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sized.h"
#include "optim/optim.h"
#include "handle/run.h"

/* ---- models ---------------------------------------------------------------------- */

static accel_status_t bad_model(accel_error_t *err, const char *name, const char *why)
{
    return accel_fail(err, A0960, "see accel_model_add in accel_objects.h",
                      "model '%s': %s", name ? name : "NULL", why);
}

static accel_status_t bad_optim(accel_error_t *err, const char *name, const char *why)
{
    return accel_fail(err, A0961, "see accel_optim_add in accel_objects.h",
                      "optimizer '%s': %s", name ? name : "NULL", why);
}

/* Names become parts of paths and of keys. */
static bool name_possible(const char *name)
{
    if (!name || strlen(name) >= RUN_NAME)
        return false;
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_-.", *c))
            return false;
    return true;
}

/* The model with that root; NULL: there is none. */
static struct run_model *models_find(accel_t *run, const accel_module_t *root)
{
    for (int i = 0; root && i < run->models; i++)
        if (run->model[i].root == root)
            return &run->model[i];
    return NULL;
}

static bool is_tree_of(const accel_t *run, const accel_module_t *root)
{
    for (int i = 0; i < run->trees; i++)
        if (run->tree[i] == root)
            return true;
    return false;
}

accel_status_t accel_model_add(accel_t *run, const char *name, accel_module_t *root,
                               accel_error_t *err)
{
    accel_status_t st;

    ACCEL_CHECK(st, run_given(run, "accel_model_add", err));
    if (run->prepared)
        return bad_model(err, name, "added after the run was prepared");
    if (!name_possible(name))
        return bad_model(err, name, "is no name (letters, digits, _, - and dots)");
    if (!root || !is_tree_of(run, root))
        return bad_model(err, name,
                         root ? "its module is no root of this run"
                              : "its module is NULL");
    if (models_find(run, root))
        return bad_model(err, name, "its module is a model already");
    for (int i = 0; i < run->models; i++)
        if (strcmp(run->model[i].name, name) == 0)
            return bad_model(err, name, "another model has that name");
    if (run->models && (!*name || !run->model[0].name[0]))
        return bad_model(err, name, "only a run's one model may be without a name");
    run->model[run->models] = (struct run_model){ .root = root };
    snprintf(run->model[run->models++].name, RUN_NAME, "%s", name);
    return ACCEL_OK;
}

accel_status_t models_given(accel_t *run, const accel_module_t *root, const char *call,
                            const struct run_model **model_out, accel_error_t *err)
{
    *model_out = models_find(run, root);
    return *model_out
               ? ACCEL_OK
               : accel_fail(err, A0962, "pass the root that accel_model_add was given",
                            "%s: the module is no model of this run", call);
}

accel_status_t models_only(const accel_t *run, const char *call, const char *cure,
                           const struct run_model **model_out, accel_error_t *err)
{
    *model_out = run->models ? &run->model[0] : NULL;
    return run->models < 2
               ? ACCEL_OK
               : accel_fail(err, A0962, cure, "%s knows one model, but the run has %d",
                            call, run->models);
}

int64_t models_buffers(const accel_t *run, accel_tensor_t **list_out)
{
    int64_t n = 0;

    for (int i = 0; i < run->models; i++)
        n += nn_buffers_list(run->model[i].root, list_out ? list_out + n : NULL);
    return n;
}

static bool name_one(accel_tensor_t *t, const char *model)
{
    const char *name = t->name ? t->name : t->buffer;
    size_t len = strlen(model) + strlen(name) + 2;

    free(t->full);
    t->full = malloc(len);
    if (t->full)
        snprintf(t->full, len, "%s/%s", model, name);
    return t->full != NULL;
}

static bool name_tree(accel_module_t *m, const char *model)
{
    bool good = true;

    for (int i = 0; i < m->param_count && good; i++)
        good = name_one(m->param[i], model);
    for (int i = 0; i < m->buffer_count && good; i++)
        good = name_one(m->buffer[i], model);
    for (accel_module_t *c = m->child; c && good; c = c->next)
        good = name_tree(c, model);
    return good;
}

accel_status_t objects_name(accel_t *run, accel_error_t *err)
{
    for (int i = 0; i < run->models; i++)
        if (run->model[i].name[0] && !name_tree(run->model[i].root, run->model[i].name))
            return accel_fail_nomem(err, "the names of parameters", RUN_NAME);
    return ACCEL_OK;
}

/* ---- freezing -------------------------------------------------------------------- */

/* A parameter that is not trained at all stays as it is. */
static void pause_tree(accel_module_t *m, bool on)
{
    for (int i = 0; i < m->param_count; i++) {
        accel_tensor_t *p = m->param[i];
        bool trained = param_is_trained(p);

        p->param->paused = trained && on;
        p->needs_grad = trained && !on;
    }
    for (accel_module_t *c = m->child; c; c = c->next)
        pause_tree(c, on);
}

accel_status_t accel_model_freeze(accel_t *run, accel_module_t *root, int on,
                                  accel_error_t *err)
{
    accel_status_t st;
    const struct run_model *model;

    ACCEL_CHECK(st, run_ready(run, "accel_model_freeze", err));
    st = models_given(run, root, "accel_model_freeze", &model, err);
    if (st == ACCEL_OK)
        pause_tree(root, on != 0);
    return st;
}

/* ---- optimizers ------------------------------------------------------------------ */

const char *optim_suffix(const struct accel_optim *o, char *buf, size_t len)
{
    snprintf(buf, len, "%s%s", o->name[0] ? "." : "", o->name);
    return buf;
}

int optim_state_count(const struct accel_optim *o)
{
    int states = o->own.states;

    if (!o->own.update)
        optim_state_names(&o->settings, &states);
    return states;
}

/* Without the models. */
static accel_status_t optim_possible(const accel_t *run, const char *name,
                                     const accel_optimizer_t *settings,
                                     const accel_own_optim_t *own, accel_error_t *err)
{
    if (run->prepared)
        return bad_optim(err, name, "added after the run was prepared");
    if (!name_possible(name))
        return bad_optim(err, name, "is no name (letters, digits, _, - and dots)");
    if (run->optims == ACCEL_MAX_OPTIMS)
        return bad_optim(err, name, "a run has at most 8 optimizers");
    for (int i = 0; i < run->optims; i++)
        if (strcmp(run->optim[i].name, name) == 0)
            return bad_optim(err, name, "another optimizer has that name");
    if (!settings)
        return bad_optim(err, name, "its settings are NULL");
    if (own && (!own->update || own->states < 0 || own->states > SHARD_MAX_STATE ||
                (own->states > 0 && !own->state)))
        return bad_optim(err, name, "it needs an update and 0 to 4 names of state");
    if (own && settings->moments != ACCEL_MOMENTS_FLOAT32)
        return bad_optim(err, name, "the state of a program's own is float32");
    for (int i = 0; own && i < own->states; i++) {
        if (!name_possible(own->state[i]) || !*own->state[i])
            return bad_optim(err, name, "the name of a state is no name");
        for (int k = 0; k < i; k++)
            if (strcmp(own->state[i], own->state[k]) == 0)
                return bad_optim(err, name, "two states have the same name");
    }
    return optim_check(settings, err);
}

/* Its models are models of the run that no other optimizer has. */
static accel_status_t models_possible(accel_t *run, const char *name,
                                      accel_module_t *const *models, int n,
                                      accel_error_t *err)
{
    if (n < 1 || !models)
        return bad_optim(err, name, "it has no model");
    for (int i = 0; i < n; i++) {
        const struct run_model *m = models_find(run, models[i]);

        if (!m)
            return bad_optim(err, name, "a module was not added with accel_model_add");
        if (m->optim)
            return accel_fail(err, A0961, "give one optimizer all of its models",
                              "optimizer '%s': the model '%s' belongs to optimizer "
                              "'%s' already",
                              name, m->name, m->optim->name);
        for (int k = 0; k < i; k++)
            if (models[k] == models[i])
                return bad_optim(err, name, "it was given a model twice");
    }
    return ACCEL_OK;
}

/* The next one, which has passed all checks. */
static accel_optim_t *optim_new(accel_t *run, const char *name,
                                const accel_optimizer_t *settings)
{
    struct accel_optim *o = &run->optim[run->optims];

    *o = (struct accel_optim){ .run = run,
                               .number = run->optims++,
                               .settings = optim_defaults(*settings) };
    snprintf(o->name, sizeof(o->name), "%s", name);
    o->lr = o->settings.lr;
    return o;
}

static accel_optim_t *optim_add(accel_t *run, const char *call, const char *name,
                                accel_module_t *const *models, int n,
                                const accel_optimizer_t *settings,
                                const accel_own_optim_t *own, accel_error_t *err)
{
    accel_optimizer_t set;
    accel_own_optim_t functions;
    accel_optim_t *o;

    if (run_given(run, call, err) != ACCEL_OK ||
        sized_read(SIZED(accel_optimizer_t, moments), &set, settings, err) !=
            ACCEL_OK ||
        sized_read(SIZED(accel_own_optim_t, states), &functions, own, err) !=
            ACCEL_OK ||
        optim_possible(run, name, settings ? &set : NULL, own ? &functions : NULL,
                       err) != ACCEL_OK ||
        models_possible(run, name, models, n, err) != ACCEL_OK)
        return NULL;
    o = optim_new(run, name, &set);
    o->own = functions;
    for (int i = 0; i < n; i++)
        models_find(run, models[i])->optim = o;
    return o;
}

accel_optim_t *accel_optim_add(accel_t *run, const char *name,
                               accel_module_t *const *models, int n,
                               const accel_optimizer_t *settings, accel_error_t *err)
{
    return optim_add(run, "accel_optim_add", name, models, n, settings, NULL, err);
}

accel_optim_t *accel_optim_add_own(accel_t *run, const char *name,
                                   accel_module_t *const *models, int n,
                                   const accel_optimizer_t *settings,
                                   const accel_own_optim_t *own, accel_error_t *err)
{
    if (!own) {
        bad_optim(err, name, "its functions are NULL");
        return NULL;
    }
    return optim_add(run, "accel_optim_add_own", name, models, n, settings, own, err);
}

accel_optim_t *accel_optim_find(accel_t *run, const char *name)
{
    for (int i = 0; run && name && i < run->optims; i++)
        if (strcmp(run->optim[i].name, name) == 0)
            return &run->optim[i];
    return NULL;
}

/* ---- preparing ------------------------------------------------------------------- */

/* A failure is the run's, so what was added before it does not matter. */
accel_status_t objects_of_job(accel_t *run, const accel_job_t *job, accel_error_t *err)
{
    const accel_schedule_t standard = schedule_of_job(job->warmup, job->steps);
    accel_module_t *model = job->model;
    accel_optim_t *o;

    if (run->models || run->optims)
        return bad_model(
            err, run->models ? run->model[0].name : "",
            "call accel_prepare_all for models and optimizers of your own");
    if (model && accel_model_add(run, "", model, err) != ACCEL_OK)
        return ACCEL_EINVAL;
    o = optim_new(run, "", job->optimizer);
    o->clip = job->clip;
    if (model)
        run->model[0].optim = o;
    return optim_schedule(o, job->schedule ? job->schedule : &standard, err);
}

accel_status_t objects_check(const accel_t *run, accel_error_t *err)
{
    if (!run->models)
        return bad_model(err, "", "the run has none: call accel_model_add");
    if (!run->optims)
        return bad_optim(err, "", "the run has none: call accel_optim_add");
    if (run->own_units)
        return bad_model(err, run->model[0].name,
                         "a run has models or units of its own, not both");
    return ACCEL_OK;
}

accel_status_t optim_schedule(struct accel_optim *o, const accel_schedule_t *set,
                              accel_error_t *err)
{
    accel_status_t st = schedule_begin(&o->schedule, set, o->lr, err);

    o->scheduled = st == ACCEL_OK;
    return st;
}
