/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run keeps for state/: how far it is, what the program has registered, and its
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

/* How far the training has come. */
struct progress {
    /* optimizer steps done */
    int64_t step;
    /* training samples consumed, by all ranks together */
    int64_t cursor;
    /* weights and progress came from a checkpoint */
    bool resumed;
    /* step of the newest checkpoint in the run's own directory; -1: none */
    int64_t saved_step;
    /* saves that failed in a row */
    int64_t failed_saves;
    /* clock_ns of the last save, also of one that failed */
    int64_t last_save_ns;
    /* What every save writes and no step changes, made once by state_identity. The
     * identity of the run: "key=value" words; must agree to resume. */
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
    /* between the check of a checkpoint and the call of `load`: what it has, in
     * program_state.blob */
    struct accel_saved found;
};

/* A function of the program around a save or a load. */
struct state_hook {
    accel_state_hook_f fn;
    void *user;
};

/* What the program has added to the state of the run. */
struct program_state {
    /* [STATE_MAX_OBJECTS], made with the first; owned */
    struct state_object *object;
    int objects;
    /* a copy of the blob that registered_find has checked; NULL: none */
    char *blob;
    struct state_hook on_save[STATE_MAX_HOOKS], on_load[STATE_MAX_HOOKS];
    int save_hooks, load_hooks;
    /* a load has begun to write into the run, on this rank */
    bool overwritten;
    /* this rank's function was the one that failed */
    bool function_failed;
};

struct retention {
    /* as the config says */
    accel_ckpt_rule_t rule;
    /* of the metric, after `step`, which is not saved yet; step -1: none */
    double value;
    int64_t step;
    /* rank 0 has written a value; saves without one; it has warned of them */
    bool noted, warned;
    int saves;
};

/* A save that is written while training goes on (state/save/background.c). */
struct background {
    /* there is a pool; the same on all ranks */
    bool on;
    /* a save at once has been timed, so that a stop knows how long one takes; the same
     * on all ranks */
    bool timed;
    /* [pool_bytes]: the copy of the tensors */
    char *pool;
    size_t pool_bytes;
    /* the device has not yet made the copy; the same on all ranks */
    bool copying;
    /* being copied or written, or waiting for its commit; the same on all ranks */
    bool in_flight;
    int64_t step;
    /* NULL: none; it outlives in_flight while older checkpoints are deleted */
    accel_ckpt_saving_t *saving;
    pthread_t thread;
    bool running;
    /* it goes to the nodes' own disks */
    bool local;
    /* of background_do */
    accel_t *run;
    void (*work)(accel_t *run);
    /* this rank's file is complete, or failed */
    atomic_bool written, failed;
    /* when its thread began and ended; clock_ns, 0: never */
    int64_t begun;
    _Atomic int64_t ended;
    /* what the blobs of `saving` point to, owned */
    char *state, *objects;
    /* seconds that the training waited for the copy, the begin and the commit */
    double stall;
    /* a periodic save came before in this life: the time between two is known */
    bool regular;
    /* saves that were due since it began and left out */
    int64_t skipped;
};

/* A drop each by a save and by a copy, and all that there is: more are not between two
 * saves to the nodes. */
#define STAGING_GONE 8

/* Checkpoints that go to the nodes first (state/save/staging.c). */
struct staging {
    /* checkpoints are staged; false after a failure, for the rest of this life */
    bool on;
    /* what is on the nodes and not yet copied, newest first; step -1: nothing */
    accel_ckpt_staged_t held[2];
    /* what is being copied, where drain.in_flight */
    accel_ckpt_staged_t copied;
    struct background drain;
    /* parts on this rank's node that a thread of its own is to remove; `lock` guards
     * them and whether it is at it */
    struct {
        pthread_mutex_t lock;
        char name[STAGING_GONE][sizeof(((accel_ckpt_staged_t *)NULL)->name)];
        int count;
        bool works;
        struct background thread;
    } sweep;
    /* the copy of held[0] was tried and failed */
    bool failed;
    /* the newest step in the checkpoint directory, while held[0] has one */
    int64_t shared;
};

/* Is the newest checkpoint of this life on the nodes alone? */
static inline bool staging_holds(const struct staging *s)
{
    return s->held[0].name[0] != '\0';
}
/* ... and is it that of `step`? */
static inline bool staging_has(const struct staging *s, int64_t step)
{
    return staging_holds(s) && s->held[0].step == step;
}

#endif
