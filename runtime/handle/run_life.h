/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run keeps for preemption/: which attempt of its job this is, and how much time
 * a stop leaves and takes. A "life" in the code is an attempt.
 */
#ifndef ACCEL_HANDLE_RUN_LIFE_H
#define ACCEL_HANDLE_RUN_LIFE_H

#include <stdbool.h>
#include <stdint.h>

/* Which attempt of a job this is. A later one is the same Slurm job after a requeue, or
 * a new job that srun asked for. All zero outside Slurm. */
struct incarnation {
    long job; /* the current allocation */
    /* of the first attempt; equal to `job` unless srun asked for a new allocation */
    long first_job;
    long restart; /* 0 for the first attempt */
};

/* The kinds of saves, each with its own pace. SAVE_AT_ONCE: training waits for it.
 * SAVE_BACKGROUND: written while training continues. SAVE_LOCAL: to the nodes' own
 * disks. SAVE_COPY: from there to the checkpoint directory. */
enum save_kind { SAVE_AT_ONCE, SAVE_BACKGROUND, SAVE_LOCAL, SAVE_COPY, SAVE_KINDS };

/* What the checkpoint directory says about earlier attempts. Rank 0 only. */
struct history {
    int64_t restarts;    /* of this job so far */
    double save_seconds; /* duration of the last checkpoint; 0: unknown */
    /* checkpoints of this attempt, by enum save_kind */
    int64_t saves[SAVE_KINDS];
    char reason[32]; /* why the last attempt stopped; empty: unknown */
    bool broken;     /* the file cannot be written; a warning was given */
};

/* The time from the notice of a preemption to the kill. Rank 0 only. */
struct notice {
    bool known;                   /* srun passed it on; false: grace is -1 */
    bool checked;                 /* notice_check has compared it once */
    char partition[64], mode[16]; /* mode: PreemptMode */
    long long grace, kill_wait;   /* seconds; grace < 0: unknown */
};

/* How long saves take, in seconds per byte; 0: none was measured. Each new measurement
 * counts half. Rank 0's values are used; the other ranks know them only where saves are
 * in the background. */
struct pace {
    double at_once;
    /* of saves in the background, which take longer */
    double background;
    /* of saves to the nodes */
    double local;
    /* of copies from the nodes, without their commit */
    double copy;
};

/* What run/ keeps for this room. */
struct life {
    struct incarnation incarnation;
    struct history history;
    struct notice notice;
    int lease_fd;      /* rank 0: the lock of the checkpoint directory; -1: none */
    char lease[256];   /* rank 0: what the lock file says */
    bool lease_warned; /* the lock cannot be read or written; a warning was given */
    bool announced;    /* accel has answered the first Ctrl-C */
    struct pace pace;
    /* Why the step of the stop is not saved; rank 0's text is shown. */
    char declined[320];
};

#endif
