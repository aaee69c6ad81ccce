/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the program that get each reduced gradient before it is clipped. In:
 * glob patterns and functions. Never communicates: every rank calls them for its own
 * pieces.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "loop/loop.h"
#include "handle/run.h"

/* The pattern is copied. Hooks are called in the order in which they were added; each
 * sees what the one before it has changed. */
accel_status_t accel_on_gradient(accel_t *run, const char *match, accel_gradient_f fn,
                                 void *user, accel_error_t *err)
{
    struct gradient_hook hook = { .fn = fn, .user = user };
    accel_status_t st;

    ACCEL_CHECK(st, run_given(run, "accel_on_gradient", err));
    if (!fn)
        return accel_fail(err, A0902, "pass a function",
                          "accel_on_gradient: the function is NULL");
    if (run->hooks == RUN_MAX_HOOKS)
        return accel_fail(err, A0902, "combine several functions into one",
                          "a run accepts at most %d gradient functions", RUN_MAX_HOOKS);
    if (match) {
        hook.match = strdup(match);
        if (!hook.match)
            return accel_fail_nomem(err, "a pattern", strlen(match));
    }
    run->hook[run->hooks++] = hook;
    return ACCEL_OK;
}

/* user is the hook. */
static void call_one(void *user, const char *name, float *gradient, int64_t first,
                     int64_t count)
{
    const struct gradient_hook *h = user;

    if (!h->match || fnmatch(h->match, name, 0) == 0)
        h->fn(h->user, name, gradient, first, count);
}

/* Between the last reduction and the norm, so clipping sees what the hooks wrote. */
accel_status_t hooks_call(accel_t *run, int optim, accel_error_t *err)
{
    const char *outer = graph_enter(&run->graph, "a gradient function");
    accel_status_t st = ACCEL_OK;

    /* one that gives up fails the reduction that follows */
    for (int i = 0; i < run->hooks && !st; i++)
        st = shard_each_gradient(run->shard, optim, call_one, &run->hook[i], err);
    run->graph.inside = outer;
    return st;
}

void hooks_free(accel_t *run)
{
    for (int i = 0; i < run->hooks; i++)
        free(run->hook[i].match);
    run->hooks = 0;
}
