/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of accel_ranks.h: gathers, reductions, padding, broadcasts, agreement.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/calls_world.h"

enum { ROOM = 64 };

static accel_array_t some_array(struct world *w, double *room, bool *bad_out)
{
    accel_array_t a = { .dtype = calls_once_in(w, 2) ? ACCEL_F32 : ACCEL_I32,
                        .ndim = (int)calls_random(w, 3),
                        .dims = { (int64_t)calls_random(w, 4), 2 },
                        .elems = ROOM,
                        .data = room };

    if (calls_once_in(w, 30)) {
        a.data = NULL;
        *bad_out = a.ndim == 0 || (a.dims[0] > 0);
    } else if (calls_once_in(w, 30)) {
        a.ndim = calls_once_in(w, 2) ? -1 : 5;
        *bad_out = true;
    } else if (calls_once_in(w, 30)) {
        a.dtype = (accel_dtype_t)77;
        *bad_out = true;
    } else if (calls_once_in(w, 30) && a.ndim > 0) {
        a.dims[0] = calls_once_in(w, 2) ? -3 : INT64_MAX;
        *bad_out = true;
    }
    return a;
}

static void call_values_of_ranks(struct world *w)
{
    bool bad = w->inside > 0;
    accel_t *run = calls_run(w, &bad);
    accel_tensor_t *t = PICK(w, tensor, &bad), *all = NULL;
    accel_batch_end_t end = { (int)calls_random(w, 2), calls_number(w),
                              calls_once_in(w, 3), calls_number(w) };
    int how = (int)calls_number(w);

    if (calls_once_in(w, 2) && run == w->now->run) {
        calls_begin(w);
        bad = w->inside > 0;
        t = PICK(w, tensor, &bad);
    }
    calls_say(w, "a tensor of all ranks");
    switch (calls_random(w, 5)) {
    case 0:
        all = accel_gather(run, t, calls_error(w));
        break;
    case 1:
        all = accel_gather_for_metrics(run, t, calls_once_in(w, 3) ? NULL : &end,
                                       calls_error(w));
        break;
    case 2:
        bad = bad || how < 0 || how > 2;
        all =
            accel_reduce(run, t, (accel_reduction_t)how, calls_real(w), calls_error(w));
        break;
    case 3:
        bad = bad || how < 0;
        all = accel_pad_across_ranks(run, t, how, calls_real(w),
                                     (int)calls_random(w, 2), calls_error(w));
        break;
    default:
        bad = bad || how < 0 || how >= w->ranks;
        all = accel_broadcast(run, t, how, calls_error(w));
    }
    calls_made(w, "a tensor of all ranks", bad, all);
    KEEP(w, tensor, all);
}

static void call_arrays_of_ranks(struct world *w)
{
    double mine[ROOM] = { 0 }, room[ROOM * 4];
    bool bad = w->inside > 0;
    accel_t *run = calls_run(w, &bad);
    accel_array_t a = some_array(w, mine, &bad);
    accel_array_t all = { .dtype = a.dtype,
                          .elems = calls_once_in(w, 10) ? 1 : ROOM * 4,
                          .data = calls_once_in(w, 30) ? NULL : room };
    accel_batch_end_t end = { (int)calls_random(w, 2), calls_number(w),
                              calls_once_in(w, 3), calls_number(w) };
    accel_array_t *given = calls_once_in(w, 30) ? NULL : &a;
    int how = (int)calls_number(w);

    switch (calls_random(w, 5)) {
    case 0:
        CALL(w, bad || !given,
             accel_gather_array(run, given, calls_once_in(w, 40) ? NULL : &all,
                                calls_error(w)));
        break;
    case 1:
        CALL(w, bad || !given,
             accel_gather_for_metrics_array(
                 run, given, calls_once_in(w, 3) ? NULL : &end, &all, calls_error(w)));
        break;
    case 2:
        CALL(w, bad || !given || how < 0 || how > 2,
             accel_reduce_array(run, given, (accel_reduction_t)how, calls_real(w),
                                calls_error(w)));
        break;
    case 3:
        CALL(w, bad || !given || how < 0,
             accel_pad_across_ranks_array(run, given, how, calls_real(w), 0, &all,
                                          calls_error(w)));
        break;
    default:
        CALL(w, bad || !given || how < 0 || how >= w->ranks,
             accel_broadcast_array(run, given, how, calls_error(w)));
    }
}

static void call_bytes_of_ranks(struct world *w)
{
    bool bad = w->inside > 0;
    accel_t *run = calls_run(w, &bad);
    const char *mine = calls_name(w);
    size_t sizes[4], bytes = mine ? strlen(mine) : calls_random(w, 2);
    void *all = NULL;
    int from = calls_once_in(w, 4) ? (int)calls_number(w) : 0;

    if (calls_once_in(w, 2))
        CALL(w, bad || (!mine && bytes),
             accel_gather_bytes(run, mine, bytes, calls_once_in(w, 30) ? NULL : &all,
                                calls_once_in(w, 30) ? NULL : sizes, calls_error(w)));
    else
        CALL(w, bad || from < 0 || from >= w->ranks,
             accel_broadcast_bytes(
                 run, mine, bytes, from, calls_once_in(w, 30) ? NULL : &all,
                 calls_once_in(w, 30) ? NULL : sizes, calls_error(w)));
    free(all);
}

static void call_agreement(struct world *w)
{
    bool bad = w->inside > 0;
    accel_t *run = calls_run(w, &bad);
    accel_error_t own = { .text = "a sentence of the program" };
    accel_status_t st = calls_once_in(w, 3) ? ACCEL_EIO : ACCEL_OK;
    int set;

    own.code = st;
    /* with several ranks one call without the other would leave some waiting */
    if (w->ranks > 1 && calls_once_in(w, 4) && !w->inside) {
        st = accel_first_begin(w->now->run, w->rank == 0, NULL);
        accel_first_end(w->now->run, st, NULL);
        return;
    }
    switch (calls_random(w, w->ranks > 1 ? 3 : 6)) {
    case 0:
        CALL(w, bad, accel_barrier(run, calls_error(w)));
        break;
    case 1:
        CALL(w, bad || st, accel_agree(run, st, calls_once_in(w, 10) ? NULL : &own));
        break;
    case 2:
        accel_trigger_set(run);
        CALL(w, bad,
             accel_trigger_check(run, calls_once_in(w, 10) ? NULL : &set,
                                 calls_error(w)));
        break;
    case 3:
        CALL(w, bad, accel_first_begin(run, w->rank == 0, calls_error(w)));
        break;
    case 4:
        /* a status of 0 is refused; another one would end the run */
        CALL(w, true,
             accel_give_up(run, run && !calls_once_in(w, 50) ? ACCEL_OK : ACCEL_EIO,
                           calls_error(w)));
        break;
    default:
        CALL(w, bad || st,
             accel_first_end(run, st, calls_once_in(w, 10) ? NULL : &own));
    }
}

static void call_split(struct world *w)
{
    int64_t n = calls_number(w);
    int rank = (int)calls_number(w), world = (int)calls_number(w);
    accel_share_t share;
    bool bad = n < 0 || world < 1 || rank < 0 || rank >= world;

    if (CALL(w, bad,
             accel_split(n, rank, world, (int)calls_random(w, 2),
                         calls_once_in(w, 40) ? NULL : &share, calls_error(w))))
        (void)share;
}

static void call_print(struct world *w)
{
    bool none = false;
    accel_t *run = calls_run(w, &none);

    accel_print(run, "%s\n\nline %d", calls_once_in(w, 2) ? "" : "text", 3);
    accel_print(run, calls_once_in(w, 2) ? NULL : "%s", "");
    accel_trigger_set(run);
}

const struct calls_action calls_of_ranks[] = {
    { call_values_of_ranks, 4, false },
    { call_arrays_of_ranks, 4, false },
    { call_bytes_of_ranks, 2, false },
    { call_agreement, 3, false },
    { call_split, 1, true },
    { call_print, 1, true },
    { NULL, 0, false },
};
