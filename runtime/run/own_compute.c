/* SPDX-License-Identifier: Apache-2.0
 *
 * Own compute: units that the program declares, and access to their values and
 * gradients. Uses the same structures and residency as the tape. Computes nothing;
 * every misuse is an error of the micro-batch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loop/loop.h"
#include "place/place.h"
#include "training/ema.h"
#include "run/run_impl.h"
#include "backend/device.h"
#include "tensor/tape.h"
#include "handle/run.h"

#define UNITS_MAX 65536

/* ---- declaring ------------------------------------------------------------------- */

/* Units are declared before accel_prepare only. ACCEL_OK: it is not too late. */
static accel_status_t late(const accel_t *run, const char *call, accel_error_t *err)
{
    accel_status_t st = run_given(run, call, err);

    if (st != ACCEL_OK || !run->prepared)
        return st;
    return accel_fail(err, A0901, "declare all units first", "%s after accel_prepare",
                      call);
}

/* A0607, as for modules and parameters of a tree. */
static accel_status_t bad_name(accel_error_t *err, const char *name, const char *why)
{
    return accel_fail(err, A0607, "use letters, digits, _ and dots, each name once",
                      "'%s' %s", name ? name : "NULL", why);
}

/* '/' is kept out because names become paths in a checkpoint. */
accel_unit_t *accel_unit_new(accel_t *run, const char *name, accel_error_t *err)
{
    accel_unit_t **list, *u;

    if (late(run, "accel_unit_new", err))
        return NULL;
    if (!name || strchr(name, '/')) {
        bad_name(err, name, "is no name");
        return NULL;
    }
    for (int i = 0; i < run->own_units; i++)
        if (!strcmp(run->own[i]->name, name)) {
            bad_name(err, name, "is already a unit");
            return NULL;
        }
    list = run->own_units < UNITS_MAX
               ? reallocarray(run->own, (size_t)run->own_units + 1, sizeof(*list))
               : NULL;
    u = list ? calloc(1, sizeof(*u)) : NULL;
    if (list)
        run->own = list;
    if (u)
        u->name = strdup(name);
    if (!u || !u->name) {
        free(u);
        accel_fail_nomem(err, "a unit", sizeof(*u));
        return NULL;
    }
    u->run = run;
    u->number = -1;
    return list[run->own_units++] = u;
}

/* Full names are unique over all units: "a.b" can come from unit "a" or from unit "".
 * Linear over everything declared so far. */
static bool is_taken(const accel_t *run, const char *full)
{
    for (int i = 0; i < run->own_units; i++)
        for (int k = 0; k < run->own[i]->params; k++)
            if (!strcmp(run->own[i]->param[k]->name, full))
                return true;
    return false;
}

/* The full name is "unit.param", or "param" in the unit "". `values` is read by
 * shard_init, within accel_prepare, and must be there until then. */
accel_status_t accel_unit_param(accel_unit_t *unit, const char *name, int ndim,
                                const int64_t *dims, accel_init_t init,
                                const float *values, accel_error_t *err)
{
    /* takes the sticky error, which is the caller's alone here */
    struct graph scratch = { 0 };
    accel_tensor_t **list, *p;
    char *full;
    accel_status_t st;

    if (!unit)
        return accel_fail(err, A0609, "check what accel_unit_new returned",
                          "accel_unit_param: the unit is NULL");
    ACCEL_CHECK(st, late(unit->run, "accel_unit_param", err));
    if (!name || !*name || strchr(name, '/'))
        return bad_name(err, name, "is no name");
    full = malloc(strlen(unit->name) + strlen(name) + 2);
    if (full)
        sprintf(full, "%s%s%s", unit->name, *unit->name ? "." : "", name);
    if (full && is_taken(unit->run, full)) {
        st = bad_name(err, full, "is already a parameter");
        free(full);
        return st;
    }
    p = param_new(&scratch, unit->name, full, ndim, dims, init);
    if (!p) {
        if (err)
            *err = scratch.error;
        return scratch.error.code;
    }
    /* param_new has taken over `full`; from here param_free frees both. */
    list = reallocarray(unit->param, (size_t)unit->params + 1, sizeof(*list));
    if (!list) {
        param_free(p);
        return accel_fail_nomem(err, "a parameter", sizeof(*p));
    }
    p->g = &unit->run->graph;
    p->param->values = values;
    unit->param = list;
    list[unit->params++] = p;
    return ACCEL_OK;
}

/* All lists lie in one array, which units_free frees with the first. A unit without
 * parameters is allowed. */
accel_status_t own_units_build(accel_t *run, struct units *units_out,
                               accel_error_t *err)
{
    struct units u = { 0 };
    accel_tensor_t **all;
    int params = 0;

    for (int i = 0; i < run->own_units; i++)
        params += run->own[i]->params;
    if (params == 0)
        return accel_fail(
            err, A0609, "give the job a model, or declare units",
            "the job has no model, and the run has no units with parameters");
    u.unit = calloc((size_t)run->own_units, sizeof(*u.unit));
    all = calloc((size_t)params, sizeof(*all));
    if (!u.unit || !all) {
        free(u.unit);
        free(all);
        return accel_fail_nomem(err, "the list of units", (size_t)params * 8);
    }
    /* `all` moves through the shared array; unit 0's list keeps its start. */
    for (int i = 0; i < run->own_units; i++) {
        accel_unit_t *own = run->own[i];

        u.unit[i] = (struct unit){ .name = own->name,
                                   .param = all,
                                   .param_count = own->params };
        if (own->params)
            memcpy(all, own->param, (size_t)own->params * sizeof(*all));
        all += own->params;
        own->number = i;
    }
    u.count = run->own_units;
    units_lay_out(&u);
    *units_out = u;
    return ACCEL_OK;
}

/* After shard_close: the shards point to the parameters. */
void own_units_free(accel_t *run)
{
    for (int i = 0; i < run->own_units; i++) {
        accel_unit_t *u = run->own[i];

        for (int k = 0; k < u->params; k++)
            param_free(u->param[k]);
        free(u->param);
        free(u->name);
        free(u);
    }
    free(run->own);
}

/* What the program queues there is ordered with gathers and reductions. */
void *accel_stream(const accel_t *run)
{
    return run ? run->backend->native(run->backend, QUEUE_COMPUTE) : NULL;
}

/* ---- in a micro-batch ------------------------------------------------------------ */

/* For calls that return no status: becomes the micro-batch's first error. */
static void fail_late(const accel_unit_t *unit, const char *what, const char *cure)
{
    struct graph *g = &unit->run->graph;

    if (!g->error.code)
        accel_fail_at(&g->error, A0912, unit->name, cure, "%s", what);
}

/* `unit` NULL: the message names none. */
static accel_status_t misuse(const accel_unit_t *unit, const char *what,
                             const char *cure, accel_error_t *err)
{
    return accel_fail_at(err, A0912, unit ? unit->name : "unit", cure, "%s", what);
}

/* The run is ready, and its units are what it trains. */
static accel_status_t usable(const accel_unit_t *unit, const char *call,
                             accel_error_t *err)
{
    accel_status_t st;

    if (!unit)
        return misuse(NULL, "the unit is NULL", "check what accel_unit_new returned",
                      err);
    st = run_ready(unit->run, call, err);
    if (st == ACCEL_OK && unit->number < 0)
        return misuse(unit, "the job has a model, whose parameters the run trains",
                      "leave job.model NULL to train the units", err);
    return st;
}

/* Has the unit a parameter of this number? */
static bool has(const accel_unit_t *unit, int index)
{
    return index >= 0 && index < unit->params;
}

/* The ring has two slots: a third unit in use is refused here, with a text that says
 * what to do. The unit pointers stay valid until done. */
accel_status_t accel_unit_want(accel_unit_t *unit, accel_error_t *err)
{
    accel_status_t st;
    const struct residency *r;
    accel_error_t e = { 0 };
    int others = 0;

    ACCEL_CHECK(st, usable(unit, "accel_unit_want", err));
    for (int i = 0; i < unit->run->own_units; i++)
        /* units other than this one that are in use now */
        others += unit->run->own[i] != unit && unit->run->own[i]->wanted > 0;
    if (others > 1 && !unit->wanted)
        return misuse(unit, "wanted while two other units are in use",
                      "call accel_unit_done for one of them", err);
    r = &unit->run->graph.residency;
    st = r->want(r->user, unit->number, &unit->data, &e);
    if (st != ACCEL_OK)
        return run_report(unit->run, st, &e, err);
    unit->wanted++;
    return ACCEL_OK;
}

/* Each want has its done; the values are gone with the last. */
void accel_unit_done(accel_unit_t *unit)
{
    const struct residency *r;

    if (!unit || unit->number < 0)
        return;
    if (!unit->wanted) {
        fail_late(unit, "accel_unit_done without accel_unit_want",
                  "call it once for each accel_unit_want");
        return;
    }
    r = &unit->run->graph.residency;
    r->done(r->user, unit->number);
    if (--unit->wanted == 0)
        unit->data = NULL;
}

/* Values come in the compute dtype; gradients are float32. */
accel_dtype_t accel_unit_dtype(const accel_unit_t *unit)
{
    return unit ? unit->run->graph.compute : ACCEL_F32;
}

/* Offsets are elements of the compute dtype from the start of the unit. */
const void *accel_unit_values(const accel_unit_t *unit, int index)
{
    if (!unit)
        return NULL;
    if (!unit->wanted)
        fail_late(unit, "values requested, but the unit is not wanted",
                  "call accel_unit_want before, accel_unit_done after");
    else if (!has(unit, index))
        fail_late(unit, "the unit has no parameter with that number",
                  "number parameters from 0, in the order of accel_unit_param");
    else
        return (const char *)unit->data +
               (size_t)unit->param[index]->param->unit_offset *
                   accel_dtype_bytes(accel_unit_dtype(unit));
    return NULL;
}

/* The backward of a micro-batch begins with its first gradient, or at its end. */
static accel_status_t backward_begin(accel_t *run, accel_error_t *err)
{
    accel_status_t st;

    if (run->loop.in_backward)
        return ACCEL_OK;
    st = shard_backward_begin(run->shard, accumulate_divisor(&run->loop.group), err);
    run->loop.in_backward = st == ACCEL_OK;
    return st;
}

/* A frozen parameter has no gradient: NULL, and no error. */
accel_status_t accel_unit_gradient(accel_unit_t *unit, int index, float **out,
                                   accel_error_t *err)
{
    accel_status_t st;
    const struct residency *r;
    accel_error_t e = { 0 };
    float *base = NULL;

    ACCEL_CHECK(st, usable(unit, "accel_unit_gradient", err));
    if (!unit->run->loop.in_micro)
        return misuse(unit, "a gradient outside a micro-batch",
                      "call accel_next or accel_next_samples first", err);
    if (!out || !has(unit, index))
        return misuse(
            unit, out ? "the unit has no parameter with that number" : "out is NULL",
            "number parameters from 0, in the order of accel_unit_param", err);
    if (!unit->param[index]->needs_grad) {
        *out = NULL;
        return ACCEL_OK;
    }
    r = &unit->run->graph.residency;
    ACCEL_CHECK(st, run_trains(unit->run, "accel_unit_gradient", err));
    st = backward_begin(unit->run, &e);
    ACCEL_TRY(st, r->grad(r->user, unit->number, &base, &e));
    if (st != ACCEL_OK)
        return run_report(unit->run, st, &e, err);
    *out = base + unit->param[index]->param->unit_offset;
    return ACCEL_OK;
}

/* The shards have dropped the values already. */
void own_units_abandon(accel_t *run)
{
    for (int i = 0; i < run->own_units; i++) {
        run->own[i]->wanted = 0;
        run->own[i]->data = NULL;
    }
}

/* The end of a micro-batch, as accel_backward has it. Also without any gradient: the
 * collectives must match those of other ranks. */
static accel_status_t units_backward(accel_t *run, double loss, accel_error_t *err)
{
    accel_status_t st = own_units_done(run, err);

    if (st == ACCEL_OK && run->graph.error.code != ACCEL_OK) {
        *err = run->graph.error;
        st = err->code;
    }
    ACCEL_TRY(st, backward_begin(run, err));
    ACCEL_TRY(st, shard_backward_end(run->shard, err));
    ACCEL_TRY(st, group_reduce(run, err));
    /* The GPU is asked once per progress line, while it is busy. */
    if (accumulate_syncs(&run->loop.group) &&
        observe_due(&run->observe, run->progress.step + 1))
        throttle_check(run);
    if (st == ACCEL_OK) {
        run->loop.loss_sum += loss;
        run->loop.micro++;
        run->loop.in_micro = run->loop.in_backward = false;
    }
    return st;
}

/* A failure here is kept in the run: other ranks may be in the collective that this one
 * has left. */
accel_status_t accel_finish_backward(accel_t *run, double loss, accel_error_t *err)
{
    accel_status_t st;
    accel_error_t e = { 0 };

    ACCEL_CHECK(st, run_trains(run, "accel_finish_backward", err));
    if (run->models || !run->loop.in_micro)
        return misuse(NULL,
                      run->models ? "the job has a model"
                                  : "accel_finish_backward outside a micro-batch",
                      run->models ? "call accel_backward"
                                  : "call accel_next or accel_next_samples first",
                      err);
    return run_report(run, units_backward(run, loss, &e), &e, err);
}
