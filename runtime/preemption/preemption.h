/* SPDX-License-Identifier: Apache-2.0
 *
 * preemption/: how a run ends and comes back. Signals ask for a stop; all ranks agree
 * on it; the job is requeued or not; history and lease tell the next life what
 * happened.
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
    double seconds; /* may be below 0 */
    const char *of; /* "GraceTime"; NULL: nothing is known to end it */
};

/* What becomes of the last checkpoint of a stop. The same on all ranks. */
struct stop_verdict {
    bool save;    /* there is time for it, as far as is known */
    bool local;   /* only for one on the nodes, which takes need_local */
    bool limited; /* something will end the run, in `left` seconds */
    double need, need_local, left;
    char of[24]; /* time_left.of */
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
/* Nanoseconds since the first such signal; 0: none. Any thread. */
int64_t signals_age_ns(void);

/* ---- sample_wait.c: a wait for samples ends when a stop is asked for ------------- */

/* How long a sample that is on its way is waited for. */
#define SAMPLE_PATIENCE_NS INT64_C(3000000000)

/* Has a wait since `begun` (clock_ns) to end? A stop was asked for, and the time in
 * which a sample that is on its way would have come has passed. Any thread. */
bool sample_wait_over(int64_t begun);
/* A function of the program that makes samples is about to run in this thread, which
 * owns the run. Once its wait is over its system calls fail (EINTR), until
 * sample_wait_end. Returns clock_ns. */
int64_t sample_wait_begin(void);
void sample_wait_end(void);
/* The system call that `thread` is in fails. */
void sample_wait_break(pthread_t thread);
/* For signals.c: with its handlers; before the first one no stop has been asked for.
 * Then in them: a stop was asked for at `came` (clock_ns). */
void sample_wait_install(bool first);
void sample_wait_restore(void);
void sample_wait_signal(int64_t came);

/* ---- warning.c: the warning signal that accel requested from Slurm --------------- */

/* True if accel requested this signal and started this task with it ignored. */
bool warning_is_ours(int sig);
/* Call this once `sig` is handled. A warning that may have arrived while the signal was
 * ignored is delivered again when it was due. Idempotent. */
void warning_arm(int sig);
/* Cancels that delivery. */
void warning_disarm(void);

/* ---- stop.c ---------------------------------------------------------------------- */

/* Ends a run because of `sig`. Its state is saved, or an older checkpoint is kept.
 * ACCEL_ERESUME: it comes back; ACCEL_ESTOPPED: it does not. `err` says why and what to
 * do. Collective. */
accel_status_t run_stop(accel_t *run, int sig, accel_error_t *err);
/* The same for a run that has not begun, since it waits for a tool. */
accel_status_t run_stop_waiting(accel_t *run, accel_error_t *err);
/* "SIGTERM"; static. For the signals that stop a run only. */
const char *stop_signal_name(int sig);
/* Answers the first Ctrl-C, once, on rank 0: what happens now, and what a
 * second one keeps. */
void stop_announce(accel_t *run, int sig);
/* The same for the signal that has come, if one has: a handler must not log. */
void stop_announce_pending(accel_t *run);

/* ---- history.c: the lives of a job, kept beside its checkpoints ------------------ */

/* From the variables of Slurm and of the plugin. */
struct incarnation incarnation_read(void);
/* Reads the file. ACCEL_ESTOPPED when the limit of restarts is reached. */
accel_status_t history_start(accel_t *run, accel_error_t *err);
/* Appends one line; warns once if the file cannot be written. */
void history_add(accel_t *run, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Measures by what the file says, where its lines lack the bytes, for a checkpoint of
 * `bytes`. */
void history_pace(accel_t *run, double bytes);
/* Logs which restart this is and why, if it is one. */
void history_say(const accel_t *run);

/* ---- grace.c --------------------------------------------------------------------- */

/* Reads what srun knows of the partition from $ACCEL_PREEMPTION_NOTICE. */
void notice_read(accel_t *run);
/* Warns, once, when a checkpoint of `seconds` does not fit into the site's times. */
void notice_check(accel_t *run, double seconds);

/* ---- deadline.c: is there time for a checkpoint? --------------------------------- */

/* Notes that a save of `bytes` took `seconds`. Times of 0 and less are passed
 * over. */
void pace_add(struct pace *p, enum save_kind kind, double bytes, double seconds);
/* What a save at once may take, with a margin; 0: nothing is known. */
double pace_seconds(const struct pace *p, double bytes);
/* The same for one on the nodes. */
double pace_local_seconds(const struct pace *p, double bytes);
/* What a copy from the nodes may take; 0: nothing is known. */
double pace_copy_seconds(const struct pace *p, double bytes);
/* The time until the kill that follows signal `sig`, which came `age` seconds ago.
 * `facts`: the job at `now` (since 1970), as the controller knows it. NULL: the
 * shortest of the times that may apply. */
struct time_left stop_time_left(const struct notice *n, int sig, int64_t lead_seconds,
                                double age, int64_t now,
                                const struct requeue_job_facts *facts);
/* Judges on rank 0, from the age of the oldest signal of all ranks. Asks the
 * controller, for at most 3 s, where the shortest time does not settle it.
 * Collective. */
accel_status_t deadline_judge(accel_t *run, int sig, struct stop_verdict *verdict_out,
                              accel_error_t *err);

/* ---- lease.c: one run at a time per checkpoint directory. Rank 0 only. ----------- */

/* Locks run->ckpt_dir, which must exist; waits some seconds for a run that is ending,
 * and longer for a tool. ACCEL_EUNAVAIL names the run that holds the lock.
 * ACCEL_ERESUME: a stop came while a tool had it; life.declined names the tool. */
accel_status_t lease_take(accel_t *run, accel_error_t *err);
/* ACCEL_EUNAVAIL when another run took over. Rewrites a lock file that was removed,
 * emptied or overwritten; warns once about one that cannot be used. */
accel_status_t lease_keep(accel_t *run, accel_error_t *err);
/* Unlocks; the file stays and still names this run. */
void lease_drop(accel_t *run);

#endif
