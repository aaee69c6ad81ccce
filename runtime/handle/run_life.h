/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run keeps for preemption/: which life of its job this is, and what it knows of
 * the times of a stop.
 */
#ifndef ACCEL_HANDLE_RUN_LIFE_H
#define ACCEL_HANDLE_RUN_LIFE_H

#include <stdbool.h>
#include <stdint.h>

/* Which life of a job this is: the same job after a requeue, or a later job that srun
 * asked for. All zero outside of Slurm. */
struct incarnation {
    long job; /* the present allocation */
    /* job of the first life; equal to job unless srun asked for a new allocation */
    long first_job;
    long restart; /* 0 for the first life */
};

/* Saves differ in the time that they take. SAVE_BACKGROUND: written while training goes
 * on. SAVE_LOCAL: to the nodes' own disks. SAVE_COPY: from there to the checkpoint
 * directory. */
enum save_kind { SAVE_AT_ONCE, SAVE_BACKGROUND, SAVE_LOCAL, SAVE_COPY, SAVE_KINDS };

/* What the checkpoint directory tells about earlier lives. Rank 0 only. */
struct history {
    int64_t restarts;    /* of this job so far */
    double save_seconds; /* duration of the last checkpoint; 0: unknown */
    /* checkpoints of this life, by enum save_kind */
    int64_t saves[SAVE_KINDS];
    char reason[32]; /* why the last life stopped; empty: unknown */
    bool broken;     /* the file cannot be written; a warning was given */
};

/* The time between the notice of a preemption and the kill. Rank 0 only. */
struct notice {
    bool known;                   /* srun passed it on; false: grace is -1 */
    bool checked;                 /* notice_check has compared it once */
    char partition[64], mode[16]; /* mode: PreemptMode */
    long long grace, kill_wait;   /* seconds; grace < 0: unknown */
};

/* How long saves take: seconds per byte, 0 where none was measured. Each new one counts
 * half. Rank 0's count; the others know them where saves are in the background. */
struct pace {
    double at_once;
    /* of saves that are written while training goes on, which take longer */
    double background;
    /* of those on the nodes */
    double local;
    /* of copies from there, without their commit */
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
    bool announced;    /* the first Ctrl-C has been answered */
    struct pace pace;
    /* Why the step of the stop is not saved; rank 0's is shown. */
    char declined[320];
};

#endif
