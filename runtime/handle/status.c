/* SPDX-License-Identifier: Apache-2.0
 *
 * The status of a run: its first failure, the calls that are allowed now, and one
 * outcome for all ranks.
 */
#include "handle/run.h"

/* Without a text another rank has the reason, and all know it. A stop is agreed on, and
 * closes in good order. An attempt that ran out of memory is undone. */
void run_tell(accel_t *run, accel_status_t st, const accel_error_t *why)
{
    accel_error_t told = *why;

    if (st == ACCEL_OK || !why->text[0] || st == ACCEL_ERESUME || st == ACCEL_ESTOPPED)
        return;
    if (run->attempting && st == ACCEL_ENOMEM)
        return;
    told.code = st;
    comm_abandon(run->comm, &told);
}

accel_status_t run_failed(const accel_t *run, accel_error_t *err)
{
    if (run->status != ACCEL_OK && err)
        *err = run->failure;
    return run->status;
}

/* Later failures are returned, but the run keeps the first: the others often follow
 * from it. */
accel_status_t run_report(accel_t *run, accel_status_t st, const accel_error_t *e,
                          accel_error_t *err)
{
    accel_error_t why = *e;

    if (st == ACCEL_OK)
        return ACCEL_OK;
    if (run->on_failure)
        run->on_failure(run, &why);
    if (run->status == ACCEL_OK) {
        run->status = st;
        run->failure = why;
        run->failure.code = st;
        run_tell(run, st, &run->failure);
    }
    if (err)
        *err = why;
    return st;
}

/* Calls with a NULL run follow from an accel_open whose failure was not looked at. */
accel_status_t run_given(const accel_t *run, const char *call, accel_error_t *err)
{
    if (run)
        return ACCEL_OK;
    return accel_fail(err, A0901, "check what accel_open returned",
                      "%s: the run is NULL", call);
}

accel_status_t optim_given(const accel_optim_t *o, const char *call, accel_error_t *err)
{
    if (o)
        return ACCEL_OK;
    return accel_fail(err, A0962, "check what accel_optim_add returned",
                      "%s: the optimizer is NULL", call);
}

/* The call that is at work below would be started again, or go on with what this one
 * has freed. */
accel_status_t run_outside(const accel_t *run, const char *call, accel_error_t *err)
{
    if (run_given(run, call, err) != ACCEL_OK)
        return ACCEL_EINVAL;
    if (run->graph.depth > 0)
        return accel_fail(err, A0901, "call it between forwards",
                          "%s inside the forward of a module", call);
    if (run->graph.inside)
        return accel_fail(err, A0901, "call it when the function has returned",
                          "%s inside %s", call, run->graph.inside);
    return ACCEL_OK;
}

/* A run that has failed returns its first failure from every call. */
accel_status_t run_ready(accel_t *run, const char *call, accel_error_t *err)
{
    if (run_outside(run, call, err) != ACCEL_OK)
        return ACCEL_EINVAL;
    if (run_failed(run, err) != ACCEL_OK)
        return run->status;
    if (run->prepared) {
        if (run->on_ready)
            run->on_ready(run);
        return ACCEL_OK;
    }
    return accel_fail(err, A0901, "call accel_prepare first", "%s before accel_prepare",
                      call);
}

/* One maximum of (2 * status + says) * size + (size - 1 - rank): the worst status, and
 * of the ranks that have it the lowest that says why. That rank keeps its own error. So
 * the reason outlives a second agreement about the same failure. */
accel_status_t run_agree(accel_t *run, accel_status_t st, accel_error_t *err)
{
    const int says = err && err->text[0];
    int64_t size = run->boot.size,
            worst =
                st == ACCEL_OK ? 0 : (2 * st + says) * size + size - 1 - run->boot.rank;
    int64_t mine = worst;
    accel_error_t e = { 0 };
    accel_status_t sent =
        comm_all_reduce(run->comm, &worst, 1, ACCEL_I64, COMM_MAX, &e);

    /* Without an answer the own failure counts, if there is one: it is the
     * better text. */
    if (sent != ACCEL_OK) {
        if (err && st == ACCEL_OK)
            *err = e;
        return st != ACCEL_OK ? st : sent;
    }
    if (worst == 0 || worst == mine)
        return st;
    st = (accel_status_t)(worst / size / 2);
    if (err)
        *err = (accel_error_t){ .code = st };
    return st;
}

/* Gathered values are stale after the step, so no unit may be held over the end of
 * a micro-batch. */
accel_status_t own_units_done(const accel_t *run, accel_error_t *err)
{
    for (int i = 0; i < run->own_units; i++)
        if (run->own[i]->wanted)
            return accel_fail_at(err, A0912, run->own[i]->name,
                                 "call accel_unit_done once for each accel_unit_want",
                                 "the unit is still wanted");
    return ACCEL_OK;
}
