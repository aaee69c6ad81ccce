/* SPDX-License-Identifier: Apache-2.0
 *
 * libacceljob: what an attempt knows: the signals that ask for a stop, the time that is
 * left, the names of runs.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel_job.h"
#include "tests/tap.h"
#include "tests/unit/attempt_world.h"

static accel_error_t err;

/* ---- signals --------------------------------------------------------------------- */

static volatile sig_atomic_t own_seen;

static void own(int sig)
{
    own_seen = sig;
}

static void test_handlers(void)
{
    accel_attempt_t *attempt;
    struct sigaction now;

    world_new();
    signal(SIGTERM, own);
    signal(SIGINT, SIG_IGN);
    attempt = world_open(0, 1);
    raise(SIGTERM);
    raise(SIGINT);
    tap_ok(own_seen == SIGTERM && accel_attempt_signal(attempt) == 0,
           "a handler of the program's stays, and so does an ignored signal");
    raise(SIGUSR1);
    tap_is_int(accel_attempt_signal(attempt), SIGUSR1, "the others are heard");
    accel_attempt_close(attempt);
    sigaction(SIGUSR1, NULL, &now);
    tap_ok(now.sa_handler == SIG_DFL, "the close restores what was there");
    sigaction(SIGTERM, NULL, &now);
    tap_ok(now.sa_handler == own, "and leaves the program's handler");
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    accel_attempt_open(world_ckpt(""), 0, 1, 0, NULL, NULL, &attempt, &err);
    sigaction(SIGINT, NULL, &now);
    tap_ok(now.sa_handler == SIG_DFL, "SIGINT is taken only where that is asked for");
    accel_attempt_close(attempt);
    world_new();
    world_write(world_ckpt(""), "");
    tap_ok(!world_try(0, 1, &err) && sigaction(SIGTERM, NULL, &now) == 0 &&
               now.sa_handler == SIG_DFL,
           "an attempt that cannot begin leaves no handler");
}

static void test_votes(void)
{
    static const struct {
        const char *what;
        int sent[3], wins;
    } rows[] = {
        { "none", { 0 }, 0 },
        { "SIGTERM", { SIGTERM }, SIGTERM },
        { "a warning", { SIGUSR2 }, SIGUSR2 },
        { "Ctrl-C", { SIGINT }, SIGINT },
        { "a warning, then SIGTERM", { SIGUSR2, SIGTERM }, SIGUSR2 },
        { "SIGTERM, then a warning", { SIGTERM, SIGUSR2 }, SIGUSR2 },
        { "all three", { SIGTERM, SIGINT, SIGUSR2 }, SIGINT },
    };
    accel_attempt_t *attempt;
    int64_t last = -1;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        int64_t vote;

        world_new();
        setenv("ACCEL_PREEMPTION", "signal=USR2", 1);
        attempt = world_open(0, 1);
        for (int j = 0; j < 3 && rows[i].sent[j]; j++)
            raise(rows[i].sent[j]);
        vote = accel_attempt_vote(attempt);
        tap_is_int(accel_attempt_signal(attempt), rows[i].wins, "%s: the signal",
                   rows[i].what);
        tap_is_int(accel_attempt_agreed(attempt, vote), rows[i].wins,
                   "%s: what the ranks agree on", rows[i].what);
        if (i < 4)
            tap_ok(vote > last, "%s: its vote is the largest so far", rows[i].what);
        last = vote;
        accel_attempt_close(attempt);
    }
    attempt = world_open(0, 1);
    tap_ok(accel_attempt_agreed(attempt, 2) == SIGUSR2 &&
               accel_attempt_signal(attempt) == 0,
           "another rank's vote counts without a signal of one's own");
    accel_attempt_close(attempt);
    raise(SIGTERM);
    tap_ok(true, "after an agreed stop a late SIGTERM ends nothing");
}

static void test_seconds_left(void)
{
    static const struct {
        const char *what, *notice;
        int end; /* of the job, seconds from now; 0: not known */
        int signal, later;
        double left;
    } rows[] = {
        { "nothing is known", NULL, 0, 0, 0, INFINITY },
        { "a notice without a signal", "p REQUEUE 60 30", 0, 0, 0, INFINITY },
        { "the end of the job", NULL, 500, 0, 0, 500 },
        { "after the end of the job", NULL, 500, 0, 501, 0 },
        { "a SIGTERM that nobody explains", NULL, 0, SIGTERM, 5, INFINITY },
        { "GraceTime is shorter than KillWait", "p REQUEUE 10 30", 0, SIGTERM, 4, 6 },
        { "KillWait is shorter", "p REQUEUE 60 30", 0, SIGTERM, 4, 26 },
        { "no GraceTime", "p REQUEUE 0 30", 0, SIGTERM, 4, 26 },
        { "no preemption", "p OFF 10 30", 0, SIGTERM, 4, 26 },
        { "a warning", "p OFF 0 30", 0, SIGUSR1, 4, 116 },
        { "a warning may be a preemption", "p REQUEUE 60 30", 0, SIGUSR1, 4, 56 },
        { "the job ends first", "p REQUEUE 60 30", 20, SIGTERM, 4, 16 },
        { "the kill comes first", "p REQUEUE 60 30", 50, SIGTERM, 4, 26 },
        { "after the kill was due", "p REQUEUE 60 30", 0, SIGTERM, 99, 0 },
        { "Ctrl-C", "p REQUEUE 60 30", 0, SIGINT, 4, INFINITY },
        { "a notice that is damaged", "p REQUEUE sixty", 0, SIGTERM, 4, INFINITY },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        accel_attempt_t *attempt;
        char end[32];
        double left;

        world_new();
        snprintf(end, sizeof(end), "%lld",
                 (long long)(world_ns / WORLD_SECOND) + rows[i].end);
        if (rows[i].notice)
            setenv("ACCEL_PREEMPTION_NOTICE", rows[i].notice, 1);
        if (rows[i].end)
            setenv("SLURM_JOB_END_TIME", end, 1);
        attempt = world_open(1, 2);
        if (rows[i].signal)
            raise(rows[i].signal);
        WORLD_SECONDS(rows[i].later);
        left = accel_attempt_seconds_left(attempt);
        tap_ok(isinf(left) ? isinf(rows[i].left) && left > 0 : left == rows[i].left,
               "%s: %g s are left", rows[i].what, left);
        accel_attempt_close(attempt);
    }
}

/* ---- names ----------------------------------------------------------------------- */

/* The name of an attempt of `rank` in directory `name`. */
static const char *run_id(const char *name, int rank)
{
    static char ids[4][256];
    static int next;
    char *id = ids[next++ % 4];
    accel_attempt_t *attempt = NULL;

    *id = '\0';
    if (accel_attempt_open(world_path(name), rank, 2, 0, NULL, NULL, &attempt, &err) ==
        ACCEL_OK)
        snprintf(id, sizeof(ids[0]), "%s", accel_attempt_run_id(attempt));
    accel_attempt_close(attempt);
    return id;
}

static void test_names(void)
{
    char first[256], huge[2000];
    accel_attempt_t *attempt;

    world_new();
    snprintf(first, sizeof(first), "%s", run_id("one", 0));
    tap_ok(strncmp(first, "local-", 6) == 0 && strlen(first) == 14, "outside a job: %s",
           first);
    tap_is_str(run_id("one", 1), first, "the same on another rank");
    tap_ok(strcmp(run_id("two", 0), first) != 0, "another one in another directory");
    world_job("12", 0);
    setenv("SLURM_CLUSTER_NAME", "alps", 1);
    snprintf(first, sizeof(first), "%s", run_id("one", 0));
    tap_ok(strncmp(first, "alps-12-", 8) == 0 && strlen(first) == 16, "in a job: %s",
           first);
    tap_is_str(run_id("one", 1), first, "the same on another rank");
    world_job("12", 1);
    tap_is_str(run_id("one", 0), first, "and after a requeue");
    world_job("13", 2);
    setenv("ACCEL_FIRST_JOB_ID", "12", 1);
    tap_is_str(run_id("one", 1), first, "and in the new job of a restart");
    tap_ok(strcmp(run_id("two", 1), first) != 0, "another one in another directory");
    unsetenv("ACCEL_FIRST_JOB_ID");
    tap_ok(strcmp(run_id("one", 1), first) != 0, "and in another job");
    setenv("SLURM_CLUSTER_NAME", "", 1);
    tap_ok(strncmp(run_id("one", 1), "slurm-13-", 9) == 0, "a cluster without a name");
    memset(huge, 'c', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = '\0';
    setenv("SLURM_CLUSTER_NAME", huge, 1);
    snprintf(first, sizeof(first), "%s", run_id("one", 1));
    tap_ok(strlen(first) == 128 + strlen("-13-01234567") &&
               strncmp(first + 128, "-13-", 4) == 0,
           "a name without end is cut: %zu bytes", strlen(first));
    attempt = world_open(1, 2);
    tap_is_int(accel_attempt_restart(attempt), 2, "the number of the attempt");
    accel_attempt_close(attempt);
    setenv("ACCEL_RESTART_COUNT", "many", 1);
    attempt = world_open(1, 2);
    tap_is_int(accel_attempt_restart(attempt), 0, "is 0 where it makes no sense");
    accel_attempt_close(attempt);
}

int main(void)
{
    world_begin();
    test_handlers();
    test_votes();
    test_seconds_left();
    test_names();
    world_end();
    return tap_done();
}
