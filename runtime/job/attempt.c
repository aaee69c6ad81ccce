/* SPDX-License-Identifier: Apache-2.0
 *
 * The beginning and the end of an attempt, and what it knows in between. In: the
 * directory, the rank, the variables of Slurm, srun and accel launch. Out: an attempt
 * that hears signals, with the directory locked and its history read on rank 0.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/env_names.h"
#include "common/path_dir.h"
#include "job/attempt.h"

/* Attempts in a row that may save nothing. */
#define BARREN_MOST 3

/* Signal handlers are the process's, and so is an attempt. */
static atomic_flag taken = ATOMIC_FLAG_INIT;

/* ---- opening --------------------------------------------------------------------- */

/* The absolute path, by its letters alone: links may lead elsewhere on another node,
 * and all ranks must name the attempt alike. */
static accel_status_t set_directory(struct accel_attempt *a, const char *directory,
                                    accel_error_t *err)
{
    char here[DIRECTORY_MOST] = "";
    int n;

    if (*directory != '/' && !getcwd(here, sizeof(here)))
        return accel_fail(err, A0803, "give an absolute path",
                          "the current directory has no path: %s", strerror(errno));
    n = snprintf(a->directory, sizeof(a->directory), "%s%s%s", here, *here ? "/" : "",
                 directory);
    return n < (int)sizeof(a->directory)
               ? ACCEL_OK
               : accel_fail(err, A0803, "use a shorter path",
                            "the path of the checkpoint directory is longer than %d "
                            "bytes",
                            DIRECTORY_MOST - 1);
}

/* "CLUSTER-JOB-HASH": the hash is that of the directory, because one job may run
 * several programs. Outside Slurm the directory is all that attempts have in
 * common. */
static void name_attempt(struct accel_attempt *a)
{
    const char *cluster = getenv("SLURM_CLUSTER_NAME");
    const unsigned hash =
        (unsigned)XXH3_64bits(a->directory, strlen(a->directory)) & 0xffffffff;

    if (a->preemption.incarnation.job > 0)
        snprintf(a->run_id, sizeof(a->run_id), "%.128s-%ld-%08x",
                 cluster && *cluster ? cluster : "slurm",
                 a->preemption.incarnation.first_job, hash);
    else
        snprintf(a->run_id, sizeof(a->run_id), "local-%08x", hash);
}

static accel_status_t make_directory(const struct accel_attempt *a, accel_error_t *err)
{
    size_t bad = 0;
    const int rc = path_make_dirs(a->directory, &bad);

    return rc == 0 ? ACCEL_OK
                   : accel_fail_at(err, A0803, a->directory,
                                   "check the path and the permissions of its parent "
                                   "directories",
                                   "cannot create the checkpoint directory %.*s: %s",
                                   (int)bad, a->directory, strerror(rc));
}

/* A job that is stopped again and again before its first save would be restarted up to
 * max_restarts times for nothing. */
static accel_status_t check_barren(const struct accel_attempt *a, accel_error_t *err)
{
    const struct preemption *p = &a->preemption;

    if (!p->rules.enabled || p->history.barren < BARREN_MOST)
        return ACCEL_OK;
    return accel_fail_at(
        err, A0928, a->directory,
        "save sooner or faster, or ask for a longer grace time; then submit the job "
        "again (a new job counts from 0)",
        "the last %lld attempts of job %ld have saved nothing",
        (long long)p->history.barren, p->incarnation.first_job);
}

/* Rank 0. What lease_take returns because a tool has the directory counts only when the
 * limits of restarts allow another attempt. */
static accel_status_t own_directory(struct accel_attempt *a, accel_error_t *err)
{
    struct preemption *p = &a->preemption;
    accel_status_t st = make_directory(a, err), counted = ACCEL_OK;

    ACCEL_TRY(st, lease_take(p, err));
    if (st != ACCEL_OK && st != ACCEL_ERESUME)
        return st;
    ACCEL_TRY(counted, history_start(p, err));
    ACCEL_TRY(counted, check_barren(a, err));
    if (counted != ACCEL_OK)
        return counted;
    if (st == ACCEL_ERESUME)
        return accel_fail_at(err, A0926, a->directory, "srun restarts the job",
                             "stopped before the first step: %s", p->declined);
    p->pace = (struct pace){ 0 }; /* per byte, of libaccel's saves */
    history_pace(p, 1);
    history_say(p);
    history_add(p, "start process=%ld", (long)getpid());
    report_attempt(p, -1);
    return ACCEL_OK;
}

static accel_status_t open_attempt(struct accel_attempt *a, const char *directory,
                                   bool interrupt, accel_error_t *err)
{
    struct preemption *p = &a->preemption;
    accel_status_t st = set_directory(a, directory, err);

    if (st != ACCEL_OK)
        return st;
    p->directory = a->directory;
    p->log = &a->log;
    p->rules = attempt_rules();
    p->incarnation = incarnation_read();
    notice_read(p);
    name_attempt(a);
    signals_install(&p->rules);
    if (p->rank == 0)
        st = own_directory(a, err);
    if (st == ACCEL_OK && interrupt)
        signals_take_interrupt(&p->rules);
    return st;
}

accel_status_t accel_attempt_open(const char *directory, int rank, int size,
                                  int interrupt, accel_log_f log, void *user,
                                  accel_attempt_t **attempt_out, accel_error_t *err)
{
    struct accel_attempt *a;
    accel_status_t st;

    if (!attempt_out || !directory || !*directory || rank < 0 || rank >= size)
        return accel_fail(err, A0901, "give a directory, and a rank of 0 to size - 1",
                          "accel_attempt_open: the directory is empty, or rank %d is "
                          "not one of %d",
                          rank, size);
    if (atomic_flag_test_and_set(&taken))
        return accel_fail(err, A0901, "close the first one",
                          "accel_attempt_open: this process has an attempt already");
    a = calloc(1, sizeof(*a));
    if (!a) {
        atomic_flag_clear(&taken);
        return accel_fail_nomem(err, "the attempt", sizeof(*a));
    }
    a->log = (struct accel_log){ log, user, rank ? ACCEL_LOG_WARN : ACCEL_LOG_INFO };
    a->preemption.rank = rank;
    a->preemption.size = size;
    a->preemption.lease.fd = -1;
    a->saved = -1;
    st = open_attempt(a, directory, interrupt != 0, err);
    if (st == ACCEL_OK)
        *attempt_out = a;
    else
        accel_attempt_close(a);
    return st;
}

void accel_attempt_close(accel_attempt_t *a)
{
    if (!a)
        return;
    signals_restore();
    lease_drop(&a->preemption);
    free(a);
    atomic_flag_clear(&taken);
}

/* ---- what it knows --------------------------------------------------------------- */

int accel_attempt_signal(const accel_attempt_t *a)
{
    (void)a; /* signals are the process's */
    return signals_pending();
}

/* As in libaccel, Ctrl-C outweighs a warning, and that a SIGTERM. */
int64_t accel_attempt_vote(const accel_attempt_t *a)
{
    const int sig = signals_pending();

    (void)a;
    return sig == 0 ? 0 : sig == SIGTERM ? 1 : sig == SIGINT ? 3 : 2;
}

int accel_attempt_agreed(accel_attempt_t *a, int64_t vote)
{
    if (vote <= 0)
        return 0;
    a->agreed = vote == 1 ? SIGTERM : vote == 2 ? a->preemption.rules.warning : SIGINT;
    signals_agreed(a->agreed);
    return a->agreed;
}

/* Slurm 23 and newer tell a job its end; before a signal nothing else is known. */
double accel_attempt_seconds_left(const accel_attempt_t *a)
{
    const struct preemption *p = &a->preemption;
    const int sig = signals_pending();
    const long end = env_long("SLURM_JOB_END_TIME", 0);
    double left = end > 0 ? (double)(end - (long)time(NULL)) : INFINITY;
    struct time_left t;

    if (sig) {
        t = stop_time_left(&p->notice, sig, p->rules.lead_seconds,
                           (double)signals_age_ns() * 1e-9, 0, NULL);
        left = t.of && t.seconds < left ? t.seconds : left;
    }
    return left > 0 ? left : 0;
}

int64_t accel_attempt_restart(const accel_attempt_t *a)
{
    return a->preemption.incarnation.restart;
}

const char *accel_attempt_run_id(const accel_attempt_t *a)
{
    return a->run_id;
}
