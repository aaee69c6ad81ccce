/* SPDX-License-Identifier: Apache-2.0
 *
 * For campaigns against the saves of whole runs: lives of one training, in which every
 * weight of step N is START - N and each step is saved, at once or in the background;
 * and a check of all that they leave.
 */
#ifndef TESTS_SAVES_WORLD_H
#define TESTS_SAVES_WORLD_H

#include "handle/run.h"

#define SAVES_START 2000
#define SAVES_RANKS 4

/* What a life says while it lasts, to the parent of its ranks. */
struct saves_said {
    /* the newest step that it reported as saved, and where it began; -1: none */
    volatile int64_t saved, begun;
    /* process of each rank, once it has prepared */
    volatile pid_t pid[SAVES_RANKS];
    /* how the last call of rank 0 ended, with its error */
    volatile accel_status_t end;
    accel_error_t err;
    /* warnings that a checkpoint could not be saved, or copied, and the last one */
    volatile int failures;
    char failure[400];
};

/* A life of `ranks`; forked. */
struct saves_life {
    int ranks;
    /* the step that it ends with */
    int64_t steps;
    /* rows of the weights, of 40 columns */
    int64_t rows;
    bool background;
    /* they go to the nodes first, to saves_dir/node */
    bool local;
    int keep;
    /* steps between two saves; 0: as 1 */
    int every;
    /* called in each rank before it opens its run and once it has prepared (NULL: not),
     * and after each of its steps, which it may end by a status */
    void (*open)(int rank);
    void (*ready)(int rank);
    accel_status_t (*after)(int rank, accel_t *run, accel_error_t *err);
};

/* A new folder for all lives; false where there can be none. `saves_root` is where they
 * save. The second one takes one that is there. */
extern char saves_dir[128], saves_root[160];
bool saves_new(void);
void saves_use(const char *dir);
/* Removes every checkpoint, for a training that begins again. */
void saves_forget(void);
/* Removes the folder. */
void saves_end(void);

/* Shared memory of all lives, made by saves_new. */
extern struct saves_said *saves_said;
/* Lives it. The first status by rank, as fork_world has it. */
int saves_live(const struct saves_life *life, int timeout_s);
/* The same in this process, one rank: its status. */
accel_status_t saves_live_here(const struct saves_life *life, accel_error_t *err);
/* The newest complete checkpoint below `root`: its step, -1 when there is none, -2 when
 * some complete one has damage, a wrong weight, or cannot be read. */
int64_t saves_newest(const char *root, int64_t rows);
/* Directories in progress, half-deleted ones and whatever else begins with a dot. */
int saves_leftovers(const char *root);
/* Parts of checkpoints below saves_dir/node. */
int saves_parts(void);

#endif
