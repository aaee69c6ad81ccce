/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run keeps for state/: its progress, what the program has registered, and its
 * saves.
 */
#ifndef ACCEL_HANDLE_RUN_CHECKPOINTS_H
#define ACCEL_HANDLE_RUN_CHECKPOINTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "accel.h"
#include "accel_ckpt.h"

/* The progress of the training. */
struct progress {
    /* optimizer steps done */
    int64_t step;
    /* training samples consumed by all ranks together */
    int64_t cursor;
    /* weights and progress came from a checkpoint */
    bool resumed;
    /* step of the newest checkpoint in the run's own directory; -1: none */
    int64_t saved_step;
    /* how many saves have failed in a row */
    int64_t failed_saves;
    /* clock_ns of the last save, even if it failed */
    int64_t last_save_ns;
    /* Every save writes the next three, and no step changes them; state_identity makes
     * them once. run_id is the identity of the run, "key=value" words: it must agree
     * for a resume. */
    char run_id[512];
    /* lines "key=value": optimizer, trained parameters and settings; owned */
    char *settings;
    /* sharding strategy, as a checkpoint names it */
    const char *sharding;
};

#define STATE_MAX_OBJECTS 64
#define STATE_MAX_HOOKS   8
#define STATE_NAME_BYTES  64

/* What a load function of the program gets: a blob of a checkpoint, or its copy. */
struct accel_saved {
    int version, ranks;
    enum accel_state_kind kind;
    /* [ranks]: bytes of each rank, one after the other in `data` */
    size_t *bytes;
    const char *data;
};

/* An object that the program has registered (registered.c). */
struct state_object {
    char name[STATE_NAME_BYTES];
    int version;
    enum accel_state_kind kind;
    accel_state_save_f save;
    accel_state_load_f load;
    void *user;
    /* between the check of a checkpoint and the call of `load`: what the checkpoint has
     * for this object, in program_state.blob */
    struct accel_saved found;
};

/* A function of the program around a save or a load. */
struct state_hook {
    accel_state_hook_f fn;
    void *user;
};

/* What the program has added to the state of the run. */
struct program_state {
    /* [STATE_MAX_OBJECTS], allocated with the first object; owned */
    struct state_object *object;
    int objects;
    /* a copy of the blob that registered_find has checked; NULL: none */
    char *blob;
    struct state_hook on_save[STATE_MAX_HOOKS], on_load[STATE_MAX_HOOKS];
    int save_hooks, load_hooks;
    /* on this rank, a load has begun to write into the run */
    bool overwritten;
    /* the function that failed was this rank's */
    bool function_failed;
};

struct retention {
    /* as the config says */
    accel_ckpt_rule_t rule;
    /* of the metric after `step`, not saved yet; step -1: none */
    double value;
    int64_t step;
    /* rank 0: a value was written; it has warned that none was; saves without one */
    bool noted, warned;
    int saves;
};

/* A save that is written while training continues (state/save/background.c). */
struct background {
    /* there is a pool, so saves are in the background; the same on all ranks */
    bool on;
    /* a save that training waits for has been timed, so that a stop knows how long one
     * takes; the same on all ranks */
    bool timed;
    /* [pool_bytes]: the copy of the tensors */
    char *pool;
    size_t pool_bytes;
    /* the device has not yet finished the copy; the same on all ranks */
    bool copying;
    /* being copied or written, or waiting for its commit; the same on all ranks */
    bool in_flight;
    int64_t step;
    /* NULL: none; it outlives in_flight while older checkpoints are deleted */
    accel_ckpt_saving_t *saving;
    pthread_t thread;
    bool running;
    /* the save goes to the nodes' own disks */
    bool local;
    /* the arguments of background_do */
    accel_t *run;
    void (*work)(accel_t *run);
    /* this rank's file is complete, or failed */
    atomic_bool written, failed;
    /* when its thread began and ended, as clock_ns; 0: never */
    int64_t begun;
    _Atomic int64_t ended;
    /* the data that the blobs of `saving` point to, owned */
    char *state, *objects;
    /* seconds that training waited for the copy, the begin and the commit */
    double stall;
    /* this attempt has made a periodic save, so the time between two is known */
    bool regular;
    /* saves that fell due after it began, and were left out */
    int64_t skipped;
};

/* How many parts may wait for removal. A save and a copy drop one each, and no more
 * parts than this exist between two saves to the nodes. */
#define STAGING_GONE 8

/* Checkpoints that go to the nodes first (state/save/staging.c). */
struct staging {
    /* checkpoints are staged; false after a failure, for the rest of this attempt */
    bool on;
    /* checkpoints on the nodes that are not yet copied, newest first; step -1: none */
    accel_ckpt_staged_t held[2];
    /* the checkpoint that is being copied, while drain.in_flight */
    accel_ckpt_staged_t copied;
    struct background drain;
    /* parts on this rank's node that a separate thread is to remove; `lock` guards them
     * and `works`: that thread is running */
    struct {
        pthread_mutex_t lock;
        char name[STAGING_GONE][sizeof(((accel_ckpt_staged_t *)NULL)->name)];
        int count;
        bool works;
        struct background thread;
    } sweep;
    /* the copy of held[0] was tried and failed */
    bool failed;
    /* the newest step in the checkpoint directory, while held[0] has a checkpoint */
    int64_t shared;
};

/* Is the newest checkpoint of this attempt only on the nodes? */
static inline bool staging_holds(const struct staging *s)
{
    return s->held[0].name[0] != '\0';
}
/* The same, for the checkpoint of `step`. */
static inline bool staging_has(const struct staging *s, int64_t step)
{
    return staging_holds(s) && s->held[0].step == step;
}

#endif
