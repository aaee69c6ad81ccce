/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the program that run before a save or a load. In: functions. Out: one
 * outcome for all ranks. Never touches files.
 */
#include "state/state.h"
#include "handle/run.h"

/* Adds a function to list[*count]. */
static accel_status_t add_hook(const char *call, struct state_hook *list, int *count,
                               accel_state_hook_f fn, void *user, accel_error_t *err)
{
    if (!fn)
        return accel_fail(err, A0971, "pass a function", "%s: the function is NULL",
                          call);
    if (*count == STATE_MAX_HOOKS)
        return accel_fail(err, A0971, "combine several functions into one",
                          "%s: a run accepts at most %d functions", call,
                          STATE_MAX_HOOKS);
    list[(*count)++] = (struct state_hook){ fn, user };
    return ACCEL_OK;
}

accel_status_t accel_on_save(accel_t *run, accel_state_hook_f fn, void *user,
                             accel_error_t *err)
{
    accel_status_t st = run_given(run, "accel_on_save", err);

    return st ? st
              : add_hook("accel_on_save", run->program.on_save,
                         &run->program.save_hooks, fn, user, err);
}

accel_status_t accel_on_load(accel_t *run, accel_state_hook_f fn, void *user,
                             accel_error_t *err)
{
    accel_status_t st = run_given(run, "accel_on_load", err);

    return st ? st
              : add_hook("accel_on_load", run->program.on_load,
                         &run->program.load_hooks, fn, user, err);
}

/* The ranks agree once, after all functions. With a hook on one rank only they would
 * wait for each other: hooks are added alike on all ranks. */
static accel_status_t call_hooks(accel_t *run, const char *what,
                                 const struct state_hook *list, int count,
                                 const char *dir, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    if (count == 0)
        return ACCEL_OK;
    for (int i = 0; i < count && !st; i++) {
        const char *outer = graph_enter(&run->graph, "a function of accel_on_save or "
                                                     "accel_on_load");
        accel_error_t own = { 0 };

        st = list[i].fn(list[i].user, dir, &own);
        run->graph.inside = outer;
        if (st && !own.text[0])
            accel_fail(&own, A0973, "let the function fill its error",
                       "function %d before a %s returned %s", i + 1, what,
                       accel_status_name(st));
        if (st) {
            *err = own;
            err->code = st;
            run->program.function_failed = true;
        }
    }
    return run_agree(run, st, err);
}

accel_status_t state_hooks_save(accel_t *run, const char *dir, accel_error_t *err)
{
    return call_hooks(run, "save", run->program.on_save, run->program.save_hooks, dir,
                      err);
}

accel_status_t state_hooks_load(accel_t *run, const char *dir, accel_error_t *err)
{
    return call_hooks(run, "load", run->program.on_load, run->program.load_hooks, dir,
                      err);
}
