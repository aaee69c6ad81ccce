/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_job.h: preemption for programs that train without libaccel. Not part of accel.h.
 */
#ifndef ACCEL_JOB_H
#define ACCEL_JOB_H

#include <stdint.h>

#include "accel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The library exports only what is declared here. */
#pragma GCC visibility push(default)

/* ---- attempts: preemption without libaccel --------------------------------------------
 * For programs that train with something else: link with -lacceljob, which needs libc
 * only, and can be loaded beside any framework (python/accel_slurm does). All ranks stop
 * at one step, the state is saved where there is time for it, the job is requeued, and
 * its next attempt knows that it is one. The same code serves libaccel.
 *
 * One process has at most one attempt. One thread uses it; the calls that say "any
 * thread" may come from others. */

/* One attempt of a job, in one of its processes. */
typedef struct accel_attempt accel_attempt_t;

/* Writes to values[count] the largest of each over all ranks. count is at most 8.
 * Collective. A status other than ACCEL_OK ends the call that needed the agreement. */
typedef accel_status_t (*accel_agree_f)(void *user, int64_t *values, int count);

/* Begins this process's part of the job. `directory`: where the program keeps its
 * checkpoints, the same for all attempts; rank 0 makes it. rank in [0, size). Restarts
 * and rules of accel.preemption come from the variables that srun and accel launch set;
 * without them the defaults hold. `log` may be NULL; it is called by the thread that
 * calls the library. interrupt: whether the first SIGINT asks for a stop as well.
 *
 * Installs handlers for SIGTERM and the warning signal, unless the program has its own.
 * Rank 0 locks the directory and reads its history; the other ranks do neither, and
 * nothing here is collective. The result is closed by accel_attempt_close.
 *
 * ACCEL_EUNAVAIL: another run uses the directory. ACCEL_ESTOPPED: accel.preemption.
 * max_restarts is reached, or three attempts in a row have saved nothing.
 * ACCEL_ERESUME: a stop came first. ACCEL_EINVAL: there is an attempt already. */
accel_status_t accel_attempt_open(const char *directory, int rank, int size,
                                  int interrupt, accel_log_f log, void *user,
                                  accel_attempt_t **attempt_out, accel_error_t *err);
/* Unlocks the directory and restores the handlers. NULL is allowed. */
void accel_attempt_close(accel_attempt_t *attempt);

/* How the ranks agree, from now on; with more than one rank, needed before the calls
 * below that are collective. NULL: this process is alone. `user` must stay valid. */
void accel_attempt_agree_by(accel_attempt_t *attempt, accel_agree_f agree, void *user);

/* The signal that asked this process for a stop; 0: none. Any thread. */
int accel_attempt_signal(const accel_attempt_t *attempt);
/* The same as a number that is larger for the signal that says more; 0: none. Its
 * largest over all ranks is what accel_attempt_agreed takes. Any thread. */
int64_t accel_attempt_vote(const accel_attempt_t *attempt);
/* All ranks have the vote `vote`, and stop unless it is 0. Returns its signal. */
int accel_attempt_agreed(accel_attempt_t *attempt, int64_t vote);
/* Seconds until something ends this process, as far as is known; infinite if nothing
 * is. Not negative. */
double accel_attempt_seconds_left(const accel_attempt_t *attempt);
/* 0 in the first attempt, and one more after each restart. */
int64_t accel_attempt_restart(const accel_attempt_t *attempt);
/* A name that is the same in all attempts of the job, and in all of its ranks: for
 * trackers. Owned by the attempt. */
const char *accel_attempt_run_id(const accel_attempt_t *attempt);

/* Before the program saves the state of `step`. Rank 0 checks that the directory is
 * still its own. *save_out: 0 if this is a stop and there is no time for a save, which
 * the log then says. ACCEL_EUNAVAIL: another run has taken over. Collective. */
accel_status_t accel_attempt_save_begin(accel_attempt_t *attempt, int64_t step,
                                        int *save_out, accel_error_t *err);
/* After every rank has saved: notes how long it took since accel_attempt_save_begin.
 * Collective. */
accel_status_t accel_attempt_note_save(accel_attempt_t *attempt, int64_t step,
                                       accel_error_t *err);
/* Ends the attempt after an agreed stop at `step` (-1: not known): notes it, and rank 0
 * asks Slurm for a requeue where the job is one that comes back. ACCEL_ERESUME: it
 * does, exit with 85; ACCEL_ESTOPPED: exit with 75. On rank 0 *err says why and what
 * comes next. Collective; the process should end soon after. */
accel_status_t accel_attempt_stop(accel_attempt_t *attempt, int64_t step,
                                  accel_error_t *err);

/* In a worker process of a data loader: from now on only a SIGTERM from process `owner`
 * ends it (0: from its parent), the warning signals are ignored, and it ends when its
 * parent does. Unblocks these signals. 0, or errno. */
int accel_shield_worker(int owner);
/* The size in bytes and the 64-bit XXH3 of a file, which must not be a link. ACCEL_EIO:
 * it cannot be read. */
accel_status_t accel_hash_file(const char *path, int64_t *bytes_out, uint64_t *hash_out,
                               accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
