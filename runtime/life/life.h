/* SPDX-License-Identifier: Apache-2.0
 *
 * life/: how a run ends and comes back. Signals ask for a stop; all ranks agree on it;
 * the job is requeued or not; history and lease tell the next life what happened.
 */
#ifndef ACCEL_LIFE_H
#define ACCEL_LIFE_H

#include <stdbool.h>
#include <stdint.h>

#include "accel.h"

struct config;

/* Which life of a job this is: the same job after a requeue, or a later job that srun
 * asked for. All zero outside of Slurm. */
struct incarnation {
    long job; /* the present allocation */
    /* job of the first life; equal to job unless srun asked for a new allocation */
    long first_job;
    long restart; /* 0 for the first life */
};

/* What the checkpoint directory tells about earlier lives. Rank 0 only. */
struct history {
    int64_t restarts;    /* of this job so far */
    double save_seconds; /* duration of the last checkpoint; 0: unknown */
    int64_t saves;       /* checkpoints of this life */
    char reason[32];     /* why the last life stopped; empty: unknown */
    bool broken;         /* the file cannot be written; a warning was given */
};

/* The time between the notice of a preemption and the kill. Rank 0 only. */
struct notice {
    bool known;                   /* srun passed it on; false: grace is -1 */
    bool checked;                 /* notice_check has compared it once */
    char partition[64], mode[16]; /* mode: PreemptMode */
    long long grace, kill_wait;   /* seconds; grace < 0: unknown */
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
};

/* ---- signals.c: the stop flag ---------------------------------------------------- */

/* Installs handlers for SIGTERM and the config's warning signal where the disposition
 * is the default, or where accel itself had the signal ignored. A second call changes
 * nothing and keeps a signal that has arrived. */
void signals_install(const struct config *cfg);
/* Puts back the dispositions from before signals_install. */
void signals_restore(void);
/* From here until signals_leave_interrupt the first SIGINT asks for a stop and the
 * second ends the process at once, where the disposition is the default. */
void signals_take_interrupt(const struct config *cfg);
void signals_leave_interrupt(void);
/* All ranks have agreed to stop because of `sig`, which this rank may
 * not have received. */
void signals_agreed(int sig);
/* The signal that asked for a stop; 0: none. Async-signal-safe, any thread. */
int signals_pending(void);

/* ---- warning.c: the warning signal that accel requested from Slurm --------------- */

/* True if accel requested this signal and started this task with it ignored. */
bool warning_is_ours(int sig);
/* Call this once `sig` is handled. A warning that may have arrived while the signal was
 * ignored is delivered again when it was due. Idempotent. */
void warning_arm(int sig);
/* Cancels that delivery. */
void warning_disarm(void);

/* ---- stop.c ---------------------------------------------------------------------- */

/* Ends a run whose state is saved, because of `sig`. ACCEL_ERESUME: it comes back;
 * ACCEL_ESTOPPED: it does not. `err` says why and what to do. Collective. */
accel_status_t run_stop(accel_t *run, int sig, accel_error_t *err);
/* "SIGTERM"; static. For the signals that stop a run only. */
const char *stop_signal_name(int sig);
/* Answers the first Ctrl-C, once, on rank 0: what happens now, and what a
 * second one keeps. */
void stop_announce(accel_t *run, int sig);

/* ---- history.c: the lives of a job, kept beside its checkpoints ------------------ */

/* From the variables of Slurm and of the plugin. */
struct incarnation incarnation_read(void);
/* Reads the file. ACCEL_ESTOPPED when the limit of restarts is reached. */
accel_status_t history_start(accel_t *run, accel_error_t *err);
/* Appends one line; warns once if the file cannot be written. */
void history_add(accel_t *run, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Logs which restart this is and why, if it is one. */
void history_say(const accel_t *run);

/* ---- grace.c --------------------------------------------------------------------- */

/* Reads what srun knows of the partition from $ACCEL_PREEMPTION_NOTICE. */
void notice_read(accel_t *run);
/* Warns, once, when a checkpoint of `seconds` does not fit into the site's times. */
void notice_check(accel_t *run, double seconds);

/* ---- lease.c: one run at a time per checkpoint directory. Rank 0 only. ----------- */

/* Locks run->ckpt_dir, which must exist; waits some seconds for a run that is ending.
 * ACCEL_EUNAVAIL names the run that holds the lock. */
accel_status_t lease_take(accel_t *run, accel_error_t *err);
/* ACCEL_EUNAVAIL when another run took over. Rewrites a lock file that was removed,
 * emptied or overwritten; warns once about one that cannot be used. */
accel_status_t lease_keep(accel_t *run, accel_error_t *err);
/* Unlocks; the file stays and still names this run. */
void lease_drop(accel_t *run);

#endif
