/* SPDX-License-Identifier: Apache-2.0
 *
 * preemption/: how a run is stopped and started again. Signals ask for a stop; all
 * ranks agree on it; the job is requeued or not; history and lease tell the next
 * attempt what happened.
 */
#ifndef ACCEL_PREEMPTION_H
#define ACCEL_PREEMPTION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "accel.h"
#include "handle/run_life.h"

struct config;
struct requeue_job_facts;

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

/* Installs handlers for SIGTERM and the config's warning signal, for each whose
 * disposition is the default or which accel itself had ignored. A second call changes
 * nothing and keeps a signal that has arrived. */
void signals_install(const struct config *cfg);
/* Restores the dispositions from before signals_install. */
void signals_restore(void);
/* Until signals_leave_interrupt the first SIGINT asks for a stop and the second ends
 * the process at once, provided that the disposition is the default. */
void signals_take_interrupt(const struct config *cfg);
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

/* Ends a run because of `sig`. Its state is saved, or an older checkpoint is kept.
 * ACCEL_ERESUME: it will be started again; ACCEL_ESTOPPED: it will not. `err` says why
 * and what to do. Collective. */
accel_status_t run_stop(accel_t *run, int sig, accel_error_t *err);
/* The same for a run that has not begun because it waits for a tool. */
accel_status_t run_stop_waiting(accel_t *run, accel_error_t *err);
/* The name, as "SIGTERM"; static. Only for the signals that stop a run. */
const char *stop_signal_name(int sig);
/* Answers the first Ctrl-C, once, on rank 0: what happens now, what a second keeps. */
void stop_announce(accel_t *run, int sig);
/* The same for the signal that has arrived, if any, because a handler must not log. */
void stop_announce_pending(accel_t *run);

/* ---- history.c: the attempts of a job, kept beside its checkpoints --------------- */

/* Reads the attempt from the variables of Slurm and of the plugin. */
struct incarnation incarnation_read(void);
/* Reads the file. ACCEL_ESTOPPED when the limit of restarts is reached. */
accel_status_t history_start(accel_t *run, accel_error_t *err);
/* Appends one line; warns once if the file cannot be written. */
void history_add(accel_t *run, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* If the lines of the file gave no pace, because they lack the bytes of their saves,
 * computes it from the duration of the last one and the `bytes` of a checkpoint. */
void history_pace(accel_t *run, double bytes);
/* If this is a restart, logs which one and why. */
void history_say(const accel_t *run);

/* ---- grace.c --------------------------------------------------------------------- */

/* Reads what srun knows about the partition from $ACCEL_PREEMPTION_NOTICE. */
void notice_read(accel_t *run);
/* Warns, once, if a checkpoint of `seconds` does not fit into the site's times. */
void notice_check(accel_t *run, double seconds);

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
/* Decides on rank 0, from the age of the oldest signal of all ranks. Asks the
 * controller, for at most 3 s, if the shortest time does not settle it. Collective. */
accel_status_t deadline_judge(accel_t *run, int sig, struct stop_verdict *verdict_out,
                              accel_error_t *err);

/* ---- lease.c: one run at a time per checkpoint directory. Rank 0 only. ----------- */

/* Locks run->ckpt_dir, which must exist; waits some seconds for a run that is ending,
 * and longer for a tool. ACCEL_EUNAVAIL names the run that holds the lock.
 * ACCEL_ERESUME: a stop came while a tool had it; life.declined names the tool. */
accel_status_t lease_take(accel_t *run, accel_error_t *err);
/* ACCEL_EUNAVAIL if another run has taken over. Rewrites a lock file that was removed,
 * emptied or overwritten; warns once about one that cannot be used. */
accel_status_t lease_keep(accel_t *run, accel_error_t *err);
/* Unlocks; the file stays and still names this run. */
void lease_drop(accel_t *run);

#endif
