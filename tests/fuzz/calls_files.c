/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that write and read weights in Hugging Face's format: of the run, and of one of
 * its models.
 */
#include <stdlib.h>

#include "tests/fuzz/calls_world.h"

/* Mostly the one that trains. */
static accel_module_t *some_model(struct world *w, bool *none_out)
{
    return w->now->model && calls_random(w, 4) ? w->now->model
                                               : PICK(w, module, none_out);
}

static bool write_weights(struct world *w, bool whole)
{
    bool bad = !w->now->prepared || w->inside > 0, none = false;
    accel_t *run = calls_run(w, &bad);
    const char *dtype = calls_once_in(w, 5) ? calls_name(w) : "float32";
    int64_t shard_bytes = calls_number(w);
    char dir[256], *to = calls_once_in(w, 20) ? NULL : dir;
    accel_module_t *m = some_model(w, &none);
    int at = calls_folder(w, "weights", w->now->weights, false, dir);
    bool good;

    good = whole
               ? CALL(w, bad || !to,
                      accel_save_weights(run, to, dtype, shard_bytes, calls_error(w)))
               : CALL(w, bad || !to || none,
                      accel_model_save(run, m, to, dtype, shard_bytes, calls_error(w)));
    if (good)
        w->now->weights |= 1u << at;
    return good;
}

static void read_weights(struct world *w, bool whole)
{
    bool bad = !w->now->prepared || w->inside > 0, none = false;
    accel_t *run = calls_run(w, &bad);
    char dir[256], *from = calls_once_in(w, 20) ? NULL : dir;
    accel_module_t *m = some_model(w, &none);

    calls_folder(w, "weights", w->now->weights, true, dir);
    if (whole)
        CALL(w, bad || !from, accel_load_weights(run, from, calls_error(w)));
    else
        CALL(w, bad || !from || none, accel_model_load(run, m, from, calls_error(w)));
}

/* A run of several models has no whole. */
static bool is_whole(struct world *w)
{
    return calls_once_in(w, w->now->optim[0] ? 8 : 2);
}

/* A folder that is not there ends the run. */
void calls_weights(struct world *w)
{
    bool whole = is_whole(w);

    if (write_weights(w, whole) || calls_once_in(w, 8))
        read_weights(w, whole);
}

static void call_write(struct world *w)
{
    if (calls_random(w, 4))
        calls_settle(w);
    write_weights(w, is_whole(w));
}

/* As does one that comes after the first step. */
static void call_read(struct world *w)
{
    if (calls_once_in(w, 20) || (w->now->weights && !accel_steps_done(w->now->run)))
        read_weights(w, is_whole(w));
}

const struct calls_action calls_of_files[] = {
    { calls_weights, 2, false }, { call_write, 1, false }, { call_read, 1, false },
    { calls_train, 2, false },   { NULL, 0, false },
};
