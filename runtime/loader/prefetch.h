/* SPDX-License-Identifier: Apache-2.0
 *
 * A ring of slots that threads fill ahead of the consumer. It knows steps and slots,
 * not their contents: step s is in slot s % slots. Without threads, whoever takes a
 * step fills it. Allocates when it is opened, never later.
 */
#ifndef ACCEL_LOADER_PREFETCH_H
#define ACCEL_LOADER_PREFETCH_H

#include <pthread.h>

#include "common/common.h"

struct prefetch_ops {
    /* Notes in the slot what step `step` will be; called in the order of steps, by one
     * thread at a time. False: there is neither this step nor a later one; the slot
     * says so. */
    bool (*plan)(void *user, int slot, int64_t step);
    /* Fills the slot; several may run at once. False: read no later step. */
    bool (*fill)(void *user, int slot, int64_t step);
};

struct prefetch {
    const struct prefetch_ops *ops;
    void *user;
    int slots;
    int threads;
    pthread_t *thread; /* [threads] */
    int started;
    pthread_mutex_t lock;
    pthread_cond_t filled, freed;
    bool *ready; /* [slots] */
    /* steps below `planned` are planned, those below `released` are given back */
    int64_t planned, released;
    /* fills under way */
    int busy;
    /* threads may plan; there is nothing more to plan; threads must end */
    bool running, ended, closing;
    /* a stop has ended the wait for a step */
    bool given_up;
};

/* Starts `threads` threads (0: none), which wait for prefetch_begin. */
accel_status_t prefetch_open(struct prefetch *p, int slots, int threads,
                             const struct prefetch_ops *ops, void *user,
                             accel_error_t *err);
/* Begins with step 0. All slots are free: the first call, or after prefetch_stop. */
void prefetch_begin(struct prefetch *p);
/* Waits for step `step`, which is at most slots - 1 steps above those released. Returns
 * its slot; after the last step, the slot of the last that was planned; -1 if a stop
 * was asked for and the step does not come (preemption/sample_wait.c). */
int prefetch_take(struct prefetch *p, int64_t step);
/* Gives back all steps below `step`. */
void prefetch_release(struct prefetch *p, int64_t step);
/* Ends reading ahead and drops what was read. When it returns, the functions of the
 * program have returned; after a stop their system calls fail. */
void prefetch_stop(struct prefetch *p);
/* The same, and ends the threads; if one is slow, its system calls fail. NULL members
 * are fine. */
void prefetch_close(struct prefetch *p);

#endif
