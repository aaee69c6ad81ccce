/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of accel_state.h: objects, hooks, saves and loads at any moment, parts,
 * parameters by name.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/calls_world.h"

static accel_status_t save_object(void *user, accel_bytes_t *to, accel_error_t *err)
{
    (void)user;
    if (calls_now->ranks == 1)
        calls_inside(calls_now);
    if (calls_once_in(calls_now, 10))
        return accel_error_set(err, ACCEL_EIO, "a sentence of the program", NULL);
    if (calls_once_in(calls_now, 20))
        return accel_bytes_put(to, NULL, 4, err);
    return accel_bytes_put(to, "object", 6, err);
}

static accel_status_t load_object(void *user, const accel_saved_t *from,
                                  accel_error_t *err)
{
    size_t bytes = 0;
    const char *data = accel_saved_bytes(from, 0, &bytes);

    (void)user;
    (void)accel_saved_bytes(from, -1, &bytes);
    (void)accel_saved_bytes(from, accel_saved_ranks(from), NULL);
    (void)accel_saved_version(from);
    if (!data || calls_once_in(calls_now, 10))
        return accel_error_set(err, ACCEL_EIO, "a sentence of the program", NULL);
    return ACCEL_OK;
}

static accel_status_t see_state(void *user, const char *dir, accel_error_t *err)
{
    (void)user, (void)dir;
    if (calls_now->ranks == 1)
        calls_inside(calls_now);
    return calls_once_in(calls_now, 10)
               ? accel_error_set(err, ACCEL_EIO, "a sentence of the program", NULL)
               : ACCEL_OK;
}

static void call_register(struct world *w)
{
    bool bad = w->now->prepared, none = calls_once_in(w, 10);
    accel_t *run = calls_run(w, &bad);

    CALL(w, bad || none,
         accel_register(run, calls_name(w), (int)calls_number(w),
                        (accel_state_kind_t)calls_number(w), save_object,
                        none ? NULL : load_object, NULL, calls_error(w)));
}

static void call_state_hook(struct world *w)
{
    bool bad = false, none = calls_once_in(w, 10);
    accel_t *run = calls_run(w, &bad);

    if (calls_once_in(w, 2))
        CALL(w, bad || none,
             accel_on_save(run, none ? NULL : see_state, NULL, calls_error(w)));
    else
        CALL(w, bad || none,
             accel_on_load(run, none ? NULL : see_state, NULL, calls_error(w)));
}

/* A folder for a checkpoint, or with one; `buf` has room for 256. *at_out is its number;
 * -1: none of the side. */
static const char *some_dir(struct world *w, bool filled, char *buf, int *at_out)
{
    *at_out = -1;
    if (calls_once_in(w, 5))
        return NULL;
    if (calls_once_in(w, 10))
        return calls_once_in(w, 2) ? "" : "/nonexistent/dir";
    *at_out = calls_folder(w, "state", w->now->states, filled, buf);
    return buf;
}

static void call_save_state(struct world *w)
{
    bool bad = !w->now->prepared || w->inside > 0;
    accel_t *run = calls_run(w, &bad);
    char buf[256];
    const char *dir;
    int at;

    if (calls_random(w, 4))
        calls_settle(w);
    dir = some_dir(w, false, buf, &at);
    if (CALL(w, bad, accel_save_state(run, dir, calls_error(w))) && at >= 0)
        w->now->states |= 1u << at;
}

/* Mostly of what has been saved. */
static void call_load_state(struct world *w)
{
    bool bad = !w->now->prepared || w->inside > 0;
    accel_t *run = calls_run(w, &bad);
    const char *dir;
    char buf[256];
    int at;

    if (w->now->prepared && (!w->now->states || calls_once_in(w, 3)))
        call_save_state(w);
    else if (calls_random(w, 4))
        calls_settle(w);
    dir = some_dir(w, true, buf, &at);
    CALL(w, bad, accel_load_state(run, dir, calls_error(w)));
}

static void call_load_part(struct world *w)
{
    const accel_rename_t rename[] = { { calls_name(w), calls_name(w) },
                                      { "", calls_once_in(w, 4) ? NULL : "model." } };
    accel_part_t part = { sizeof(part), .match = calls_once_in(w, 2) ? NULL : "*weight",
                          .rename = calls_once_in(w, 2) ? rename : NULL,
                          .rename_count = (int)calls_number(w),
                          .strict = calls_once_in(w, 3) };
    accel_part_report_t report = { .bytes = sizeof(report) };
    bool bad = !w->now->prepared || w->inside > 0;
    accel_t *run = calls_run(w, &bad);
    const char *dir;
    char buf[256];
    int at;

    if (!w->now->states)
        call_save_state(w);
    if (calls_random(w, 4))
        calls_settle(w);
    if (part.rename_count > 2)
        part.rename_count = 2;
    dir = some_dir(w, true, buf, &at);
    CALL(w, bad || !dir,
         accel_load_part(run, dir, calls_once_in(w, 3) ? NULL : &part,
                         calls_once_in(w, 3) ? NULL : &report, calls_error(w)));
    accel_part_report_free(&report);
    accel_part_report_free(NULL);
}

static void call_one_param(struct world *w)
{
    /* of a run with one model, with several, with units */
    static const struct {
        const char *name;
        int64_t elems;
    } good[] = { { "weight", 4 }, { "bias", 2 },     { "a/weight", 4 },
                 { "b/bias", 2 }, { "u.weight", 6 }, { "weight", 6 } };
    size_t at = (w->now->unit[2] ? 4 : w->now->optim[0] ? 2 : 0) + calls_random(w, 2);
    const char *name = calls_once_in(w, 8) ? calls_name(w) : good[at].name;
    int64_t elems = calls_once_in(w, 8) ? calls_number(w) : good[at].elems;
    bool bad = !w->now->prepared || w->inside > 0 || elems < 1 || elems > 16;
    accel_t *run = calls_run(w, &bad);
    float values[16] = { 0.5f };
    int to = calls_once_in(w, 4) ? (int)calls_number(w) : ACCEL_ALL_RANKS;

    if (calls_random(w, 4))
        calls_settle(w);
    if (calls_once_in(w, 2))
        CALL(w, bad || to < -1 || to >= w->ranks,
             accel_param_read(run, name, to, calls_once_in(w, 20) ? NULL : values,
                              elems, calls_error(w)));
    else
        CALL(w, bad,
             accel_param_write(run, name, calls_once_in(w, 20) ? NULL : values, elems,
                               calls_error(w)));
}

static void call_note_metric(struct world *w)
{
    bool bad = !w->now->prepared;
    accel_t *run = calls_run(w, &bad);
    const char *name = calls_once_in(w, 10) ? NULL : "eval_loss";

    CALL(w, bad || !name, accel_note_metric(run, name, calls_real(w), calls_error(w)));
}

static void call_bytes(struct world *w)
{
    size_t bytes = 0;

    CALL(w, true, accel_bytes_put(NULL, "a", 1, calls_error(w)));
    (void)accel_saved_bytes(NULL, 0, &bytes);
    (void)accel_saved_ranks(NULL);
    (void)accel_saved_version(NULL);
}

const struct calls_action calls_of_state[] = {
    { call_register, 3, false },
    { call_state_hook, 2, false },
    { call_save_state, 3, false },
    { call_load_state, 3, false },
    { call_load_part, 2, false },
    { call_one_param, 4, false },
    { call_note_metric, 1, false },
    { call_bytes, 1, true },
    { NULL, 0, false },
};
