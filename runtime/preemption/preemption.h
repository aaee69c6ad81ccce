/* SPDX-License-Identifier: Apache-2.0
 *
 * preemption/: how a program is stopped and started again. Signals ask for a stop; all
 * ranks agree on it; the job is requeued or not; history and lease tell the next
 * attempt what happened. Knows nothing of a run: struct preemption is one attempt of a
 * job in one process, which a run (handle/run.h) and libacceljob (job/) hold. Needs
 * libc only.
 */
#ifndef ACCEL_PREEMPTION_H
#define ACCEL_PREEMPTION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/common.h"

struct requeue_job_facts;

/* What accel.preemption says. */
struct preemption_rules {
    bool enabled, requeue;
    int warning; /* SIGUSR1 or SIGUSR2 */
    int64_t lead_seconds, max_restarts;
};

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
    int64_t barren;      /* of these attempts, the last in a row that saved nothing */
    double save_seconds; /* duration of the last checkpoint; 0: unknown */
    /* checkpoints of this attempt, by enum save_kind */
    int64_t saves[SAVE_KINDS];
    char reason[32]; /* why the last attempt stopped; empty: unknown */
    bool broken;     /* the file cannot be written; a warning was given */
};

/* The lock of the checkpoint directory. Rank 0 only. */
struct lease {
    int fd;         /* -1: none */
    char line[256]; /* what the lock file says of us */
    bool warned;    /* it cannot be read or written; a warning was given */
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

/* The most values of one agreement. */
#define AGREE_MOST 8

/* The longest path of a checkpoint directory, with its NUL. */
#define DIRECTORY_MOST 2048

/* One attempt of a job in this process. The first group is set by its owner. */
struct preemption {
    int rank, size;
    const char *directory; /* of the checkpoints; all attempts have the same */
    const struct accel_log *log;
    struct preemption_rules rules;
    /* Writes to values[count] the largest of each over all ranks; count is at most
     * AGREE_MOST. Collective. NULL: there is one rank. */
    accel_status_t (*agree)(void *user, int64_t *values, int count, accel_error_t *err);
    void *agree_user;
    /* Removes what an earlier attempt that still runs has begun to save in the
     * directory. NULL: nothing. */
    accel_status_t (*fence)(const char *directory, accel_error_t *err);

    struct incarnation incarnation;
    struct history history;
    struct notice notice;
    struct lease lease;
    struct pace pace;
    bool announced; /* the first Ctrl-C has been answered */
    /* why the step of the stop is not saved; rank 0's text is shown */
    char declined[320];
};

/* The largest of each value over all ranks, count at most AGREE_MOST. Collective. */
static inline accel_status_t preemption_agree(struct preemption *p, int64_t *values,
                                              int count, accel_error_t *err)
{
    return p->agree ? p->agree(p->agree_user, values, count, err) : ACCEL_OK;
}

/* The time until something ends this run. */
struct time_left {
    double seconds; /* may be negative */
    const char *of; /* what ends it, as "GraceTime"; NULL: nothing known */
};

/* The decision on the last checkpoint of a stop. The same on all ranks. */
struct stop_verdict {
    bool save;    /* as far as is known, there is time for it */
    bool local;   /* only for a save to the nodes, which takes need_local */
    bool limited; /* something will end the run, in `left` seconds */
    double need, need_local, left;
    char of[24]; /* time_left.of */
};

/* ---- signals.c: the stop flag ---------------------------------------------------- */

/* Installs handlers for SIGTERM and the warning signal of the rules, for each whose
 * disposition is the default or which accel itself had ignored. A second call changes
 * nothing and keeps a signal that has arrived. */
void signals_install(const struct preemption_rules *rules);
/* Restores the dispositions from before signals_install. */
void signals_restore(void);
/* Until signals_leave_interrupt the first SIGINT asks for a stop and the second ends
 * the process at once, provided that the disposition is the default. */
void signals_take_interrupt(const struct preemption_rules *rules);
void signals_leave_interrupt(void);
/* All ranks have agreed to stop because of `sig`, which this rank may not have got. */
void signals_agreed(int sig);
/* The signal that asked for a stop; 0: none. Async-signal-safe, any thread. */
int signals_pending(void);
/* Nanoseconds since the first such signal; 0: none. Any thread. */
int64_t signals_age_ns(void);

/* ---- sample_wait.c: a wait for samples ends when a stop is asked for ------------- */

/* How long a stop waits for a sample that is on its way. */
#define SAMPLE_PATIENCE_NS INT64_C(3000000000)

/* Must a wait that began at `begun` (clock_ns) end? It must once a stop was asked for
 * and SAMPLE_PATIENCE_NS has passed, so no sample is on its way. Any thread. */
bool sample_wait_over(int64_t begun);
/* Call this before a function of the program makes samples in this thread, which owns
 * the run. Once its wait is over, its system calls fail (EINTR) until sample_wait_end.
 * Returns clock_ns. */
int64_t sample_wait_begin(void);
void sample_wait_end(void);
/* Makes the system call that `thread` is in fail. */
void sample_wait_break(pthread_t thread);
/* For signals.c. The first two are called when its handlers are installed and removed;
 * first: no stop has been asked for yet. Its handlers call sample_wait_signal: a stop
 * was asked for at `came` (clock_ns). */
void sample_wait_install(bool first);
void sample_wait_restore(void);
void sample_wait_signal(int64_t came);

/* ---- warning.c: the warning signal that accel requested from Slurm --------------- */

/* True if accel requested this signal and started this task with it ignored. */
bool warning_is_ours(int sig);
/* Call this once `sig` is handled. A warning that may have arrived while the signal was
 * ignored is delivered again, at the time when it was due. Idempotent. */
void warning_arm(int sig);
/* Cancels that delivery. */
void warning_disarm(void);

/* ---- stop.c ---------------------------------------------------------------------- */

/* What an attempt has done when it stops. */
struct stop_state {
    bool begun;    /* false: a tool has the directory, so there was no first step */
    int64_t step;  /* done; -1: not known */
    int64_t saved; /* the last step that is saved; -1: none */
    /* where the state of `step` is, if it is saved: "DIR", "DIR on the nodes" */
    const char *where;
    /* what to say where none is saved; NULL: that there is no older checkpoint */
    const char *none;
};

/* Ends an attempt because of `sig`. Its state is saved, or an older checkpoint is kept.
 * ACCEL_ERESUME: it will be started again; ACCEL_ESTOPPED: it will not. `err` says why
 * and what to do, on rank 0 only. Collective. */
accel_status_t preemption_stop(struct preemption *p, int sig,
                               const struct stop_state *state, accel_error_t *err);
/* The name, as "SIGTERM"; static. Only for the signals that stop a run. */
const char *stop_signal_name(int sig);
/* Answers the first Ctrl-C, once, on rank 0: it is saved at the end of `step`; a second
 * Ctrl-C keeps the checkpoint of step `saved`, -1: there is none. */
void preemption_announce(struct preemption *p, int sig, int64_t step, int64_t saved);

/* ---- history.c: the attempts of a job, kept beside its checkpoints --------------- */

/* Reads the attempt from the variables of Slurm and of the plugin. */
struct incarnation incarnation_read(void);
/* Reads the file. ACCEL_ESTOPPED when the limit of restarts is reached. */
accel_status_t history_start(struct preemption *p, accel_error_t *err);
/* Appends one line; warns once if the file cannot be written. */
void history_add(struct preemption *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* If the lines of the file gave no pace, because they lack the bytes of their saves,
 * computes it from the duration of the last one and the `bytes` of a checkpoint. */
void history_pace(struct preemption *p, double bytes);
/* If this is a restart, logs which one and why. */
void history_say(const struct preemption *p);

/* ---- grace.c --------------------------------------------------------------------- */

/* Reads what srun knows about the partition from $ACCEL_PREEMPTION_NOTICE. */
void notice_read(struct preemption *p);
/* Warns, once, if a checkpoint of `seconds` does not fit into the site's times. */
void notice_check(struct preemption *p, double seconds);

/* ---- deadline.c: is there time for a checkpoint? --------------------------------- */

/* Notes that a save of `bytes` took `seconds`. Times of 0 or less are ignored. */
void pace_add(struct pace *p, enum save_kind kind, double bytes, double seconds);
/* The seconds that a blocking save may take, with a margin; 0: nothing is known. */
double pace_seconds(const struct pace *p, double bytes);
/* The seconds that a copy from the nodes may take; 0: nothing is known. */
double pace_copy_seconds(const struct pace *p, double bytes);
/* The time until the kill that follows signal `sig`, which came `age` seconds ago.
 * `facts`: the job at `now` (seconds since 1970), as the controller knows it; NULL: the
 * result is the shortest of the times that may apply. */
struct time_left stop_time_left(const struct notice *n, int sig, int64_t lead_seconds,
                                double age, int64_t now,
                                const struct requeue_job_facts *facts);
/* What the last save of a stop would be. */
struct stop_save {
    double bytes;   /* of a checkpoint */
    bool in_flight; /* one is being written */
    bool local;     /* the nodes' own disks can have it */
};
/* Decides on rank 0, from the age of the oldest signal of all ranks. Asks the
 * controller, for at most 3 s, if the shortest time does not settle it. Collective. */
accel_status_t deadline_judge(struct preemption *p, int sig,
                              const struct stop_save *save,
                              struct stop_verdict *verdict_out, accel_error_t *err);

/* ---- report.c -------------------------------------------------------------------- */

/* Tells srun or accel launch that this attempt has its directory, and that the state of
 * step `saved` is in it; -1: none that it knows of. Rank 0; others do nothing. */
void report_attempt(const struct preemption *p, int64_t saved);

/* ---- lease.c: one run at a time per checkpoint directory. Rank 0 only. ----------- */

/* Locks the directory, which must exist; waits some seconds for a run that is ending,
 * and longer for a tool. ACCEL_EUNAVAIL names the run that holds the lock.
 * ACCEL_ERESUME: a stop came while a tool had it; `declined` names the tool. */
accel_status_t lease_take(struct preemption *p, accel_error_t *err);
/* ACCEL_EUNAVAIL if another run has taken over. Rewrites a lock file that was removed,
 * emptied or overwritten; warns once about one that cannot be used. */
accel_status_t lease_keep(struct preemption *p, accel_error_t *err);
/* Unlocks; the file stays and still names this run. */
void lease_drop(struct preemption *p);

#endif
