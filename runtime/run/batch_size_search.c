/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials that may run out of memory, and the release of memory. In: a function of the
 * program and a first batch size. Out: a size that fits, and the run as it was before.
 * Undoes only what accel_backward and the forward have changed.
 */
#include "loop/loop.h"
#include "loader/loader.h"
#include "training/fp8_scaling.h"
#include "run/run_impl.h"
#include "backend/device.h"
#include "handle/run.h"

/* Between steps: nothing of a step is under way. */
static accel_status_t between_steps(accel_t *run, const char *call, accel_error_t *err)
{
    accel_status_t st = run_ready(run, call, err);

    if (st == ACCEL_OK && (run->loop.micro > 0 || run->loop.in_micro))
        return accel_fail(err, A0901, "call it before accel_next or after accel_step",
                          "%s in the middle of a step", call);
    return st;
}

/* Takes back what an attempt has done. The recording of a device ends first, then its
 * failure is forgotten: until then it does nothing of what follows. */
static accel_status_t attempt_undo(accel_t *run, accel_error_t *err)
{
    const struct backend *be = run->backend;
    accel_status_t st;

    be->step_end(be);
    graph_reset(&run->graph);
    ACCEL_CHECK(st, be->recover(be, err));
    shard_abandon(run->shard);
    fp8_scales_forget(run);
    for (int i = 0; i < run->optims; i++)
        run->optim[i].overflowed = false;
    own_units_abandon(run);
    run->loop.micro = run->loop.loss_count = 0;
    run->loop.loss_sum = 0;
    run->loop.in_backward = false;
    group_restart(run);
    if (run->status == ACCEL_ENOMEM) {
        run->status = ACCEL_OK;
        run->failure = (accel_error_t){ 0 };
    }
    return be->check(be, err);
}

/* Steps of the run and of all its optimizers, none of which can be undone. */
static int64_t steps_of_all(const accel_t *run)
{
    int64_t steps = run->progress.step;

    for (int i = 0; i < run->optims; i++)
        steps += run->optim[i].t;
    return steps;
}

/* One attempt on this rank: what the function says, or what it has not said of its
 * forward or of the run. */
static accel_status_t attempt_run(accel_t *run, int batch, accel_attempt_f attempt,
                                  void *user, accel_error_t *err)
{
    const int64_t steps = steps_of_all(run);
    const accel_error_t *why = &run->failure;
    accel_status_t st, hidden;

    run->attempting = true;
    st = attempt(user, batch, err);
    run->attempting = false;
    hidden = run->status;
    if (hidden == ACCEL_OK) {
        hidden = run->graph.error.code;
        why = &run->graph.error;
    }
    if (st == ACCEL_OK && hidden != ACCEL_OK) {
        *err = *why;
        st = hidden;
    }
    if (steps_of_all(run) != steps)
        return accel_fail(err, A0953, "let it do one forward and backward",
                          "the attempt of accel_find_batch_size steps an optimizer");
    return st;
}

/* Collective. Any failure but out of memory first: it is the one to report. */
static accel_status_t attempt_agree(accel_t *run, accel_status_t st, accel_error_t *err)
{
    accel_status_t other = run_agree(run, st == ACCEL_ENOMEM ? ACCEL_OK : st, err);

    return other != ACCEL_OK ? other : run_agree(run, st, err);
}

/* Collective. ACCEL_OK: that size fits, or *smaller_out is true. */
static accel_status_t attempt_size(accel_t *run, int batch, accel_attempt_f attempt,
                                   void *user, bool *smaller_out, accel_error_t *err)
{
    accel_error_t e = { 0 }, left = { 0 };
    struct strbuf places = { 0 };
    accel_status_t st, undone;

    loaders_encode(run, &places);
    st = places.failed ? accel_fail_nomem(&e, "the places of the loaders", 0)
                       : attempt_run(run, batch, attempt, user, &e);
    undone = attempt_undo(run, &left);
    if (!places.failed)
        loaders_back(run, places.s);
    strbuf_free(&places);
    if (undone != ACCEL_OK && (st == ACCEL_OK || st == ACCEL_ENOMEM)) {
        st = undone;
        e = left;
    }
    st = attempt_agree(run, st, &e);
    *smaller_out = st == ACCEL_ENOMEM;
    if (st == ACCEL_ENOMEM && run->boot.rank == 0)
        accel_logf(&run->log, ACCEL_LOG_INFO, "a batch of %d does not fit: %s", batch,
                   e.text[0] ? e.text : "another rank is out of memory");
    if (st == ACCEL_OK || st == ACCEL_ENOMEM)
        return ACCEL_OK;
    if (err)
        *err = e;
    return st;
}

accel_status_t accel_find_batch_size(accel_t *run, int first, accel_attempt_f attempt,
                                     void *user, int *batch_out, accel_error_t *err)
{
    accel_status_t st;
    bool smaller = true;

    ACCEL_CHECK(st, between_steps(run, "accel_find_batch_size", err));
    if (run->attempting)
        return accel_fail(err, A0953, "let it do one forward and backward",
                          "the attempt of accel_find_batch_size calls it again");
    if (first < 1 || !attempt || !batch_out)
        return accel_fail(err, A0953, "pass a size of 1 or more, and a function",
                          "accel_find_batch_size: first is %d%s%s", first,
                          attempt ? "" : ", the function is NULL",
                          batch_out ? "" : ", batch_out is NULL");
    for (int batch = first; batch > 0; batch /= 2) {
        ACCEL_CHECK(st, attempt_size(run, batch, attempt, user, &smaller, err));
        if (smaller)
            continue;
        *batch_out = batch;
        return ACCEL_OK;
    }
    return accel_fail(err, A0954, "use a smaller model, more ranks or FULL_SHARD",
                      "no batch size from %d down to 1 fits into memory", first);
}

accel_status_t accel_free_memory(accel_t *run, int64_t *bytes_out, accel_error_t *err)
{
    accel_status_t st;
    int64_t bytes;

    ACCEL_CHECK(st, between_steps(run, "accel_free_memory", err));
    graph_reset(&run->graph);
    bytes = (int64_t)arena_trim(run->graph.arena);
    if (bytes_out)
        *bytes_out = bytes;
    return run->backend->check(run->backend, err);
}
