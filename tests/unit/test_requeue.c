/* SPDX-License-Identifier: Apache-2.0
 *
 * When a stopped run asks for a requeue: the decision as a table, the parser of
 * scontrol's line on real and on cut lines, and the paths that need no Slurm.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/tap.h"
#include "preemption/requeue.h"

#define NOW 1000000

static const char real_line[] =
    "JobId=2 JobName=b.sh UserId=root(0) Requeue=1 Restarts=1 BatchFlag=1 Reboot=0 "
    "JobState=RUNNING Reason=None ExitCode=0:0 RunTime=00:00:07 TimeLimit=UNLIMITED "
    "StartTime=2026-11-21T06:38:16 EndTime=2026-11-21T07:38:16 Deadline=N/A "
    "PreemptEligibleTime=2026-11-21T06:38:16 PreemptTime=2026-11-21T06:39:01 "
    "Command=/home/u/Requeue=0 job.sh\n";

static void test_parser(void)
{
    struct requeue_job_facts f = { 0 };
    struct tm tm = { .tm_year = 126,
                     .tm_mon = 10,
                     .tm_mday = 21,
                     .tm_hour = 7,
                     .tm_min = 38,
                     .tm_sec = 16,
                     .tm_isdst = -1 };

    tap_ok(requeue_parse_job(real_line, "2", &f), "a line of scontrol is understood");
    tap_ok(f.batch && f.may_requeue && f.running && f.preempt_time && !f.cancelled &&
               f.restarts == 1,
           "batch, requeue, running, preempted");
    tap_ok(f.end_time == (int64_t)mktime(&tm), "end time, local");
    tap_ok(requeue_parse_job("JobId=3 JobState=SIGNALING BatchFlag=1", "3", &f) &&
               f.running,
           "a job that is being signalled runs");
    tap_ok(requeue_parse_job("JobId=3 JobState=CANCELLED Requeue=0 BatchFlag=0 "
                             "EndTime=Unknown PreemptTime=None",
                             "3", &f) &&
               f.cancelled && !f.preempt_time && !f.batch && !f.may_requeue &&
               !f.end_time,
           "cancelled, unknown times");
    tap_ok(
        !requeue_parse_job("slurm_load_jobs error: Invalid job id specified", "3", &f),
        "an error message is no job");
    tap_ok(!requeue_parse_job("JobId=3 JobState=RUNNING Requ", "3", &f),
           "a cut line is no job");
    tap_ok(!requeue_parse_job("", "3", &f), "nothing is no job");
}

/* Asked for an array's number, scontrol shows all elements. */
static void test_arrays(void)
{
    static const char answer[] =
        "JobId=21 ArrayJobId=10 ArrayTaskId=1 JobState=COMPLETED BatchFlag=1\n"
        "JobId=10 ArrayJobId=10 ArrayTaskId=3 JobState=RUNNING BatchFlag=1\n"
        "JobId=102 ArrayJobId=10 ArrayTaskId=2 JobState=CANCELLED Requeue=1 "
        "BatchFlag=1\n";
    struct requeue_job_facts f = { 0 };

    tap_ok(requeue_parse_job(answer, "10", &f), "the last element of an array");
    tap_ok(f.running && !f.cancelled && !f.may_requeue, "its own line, and no other's");
    tap_is_str(f.job, "10_3", "its name, not the whole array's");
    tap_ok(requeue_parse_job(answer, "21", &f), "another element");
    tap_is_str(f.job, "10_1", "as squeue shows it");
    tap_ok(!requeue_parse_job(answer, "1", &f), "a job that is not in the answer");
    tap_ok(requeue_parse_job(real_line, "2", &f), "a job that is no array");
    tap_is_str(f.job, "2", "has its number for a name");
}

#define LIMIT 5 /* restarts allowed below */

/* A job of sbatch, and a bare srun. */
#define BATCH(...)                                                                     \
    {                                                                                  \
        .batch = 1, .may_requeue = 1, __VA_ARGS__                                      \
    }
#define BARE(...)                                                                      \
    {                                                                                  \
        .may_requeue = 1, __VA_ARGS__                                                  \
    }

static const struct {
    const char *what;
    struct requeue_job_facts f;
    /* a warning comes with SIGUSR1, all others with SIGTERM */
    enum stop_reason reason;
    enum requeue_result want;
} decisions[] = {
    { "preempted, in its grace time", BATCH(.running = 1, .preempt_time = NOW),
      STOP_PREEMPTED, REQUEUE_DONE },
    { "the warning signal", BATCH(.running = 1), STOP_WARNED, REQUEUE_DONE },
    { "SIGTERM alone", BATCH(.running = 1), STOP_CANCELLED, REQUEUE_NOT_MEANT },
    { "SIGTERM long before the limit", BATCH(.running = 1, .end_time = NOW + 9999),
      STOP_CANCELLED, REQUEUE_NOT_MEANT },
    { "SIGTERM near the limit", BATCH(.running = 1, .end_time = NOW + 170),
      STOP_TIME_LIMIT, REQUEUE_DONE },
    { "scancel", BATCH(.cancelled = 1, .end_time = NOW), STOP_CANCELLED,
      REQUEUE_NOT_MEANT },
    { "scancel, seen while the job is being killed",
      BATCH(.end_time = NOW, .start_time = NOW - 9), STOP_CANCELLED,
      REQUEUE_NOT_MEANT },
    { "scancel in the grace time", BATCH(.end_time = NOW, .preempt_time = NOW - 9),
      STOP_CANCELLED, REQUEUE_NOT_MEANT },
    { "killed at the end of the grace time by PreemptMode=CANCEL",
      BATCH(.end_time = NOW, .preempt_time = NOW - 31), STOP_PREEMPTED, REQUEUE_DONE },
    { "killed at its time limit",
      BATCH(.end_time = NOW, .start_time = NOW - 61, .limit_seconds = 60),
      STOP_TIME_LIMIT, REQUEUE_DONE },
    { "--no-requeue",
      { .batch = 1, .running = 1, .preempt_time = NOW },
      STOP_PREEMPTED,
      REQUEUE_FORBIDDEN },
    { "bare srun", BARE(.running = 1, .preempt_time = NOW), STOP_PREEMPTED,
      REQUEUE_NOT_BATCH },
    { "bare srun, being killed: srun knows whether it was cancelled",
      BARE(.end_time = NOW, .preempt_time = NOW - 9), STOP_PREEMPTED,
      REQUEUE_NOT_BATCH },
    { "bare srun, cancelled", BARE(.running = 1), STOP_CANCELLED, REQUEUE_NOT_MEANT },
    { "preempted and requeued by Slurm", BATCH(.restarts = 3, .preempt_time = NOW),
      STOP_PREEMPTED, REQUEUE_BY_OTHER },
    { "requeued by hand", BATCH(.restarts = 3), STOP_REQUEUED, REQUEUE_BY_OTHER },
};

static void test_decision(void)
{
    struct requeue_request r = { .lead_seconds = 120,
                                 .grace_seconds = 30,
                                 .restart = 2,
                                 .restarts = 2,
                                 .max_restarts = LIMIT };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(decisions); i++) {
        struct requeue_job_facts f = decisions[i].f;
        enum stop_reason reason;

        r.signal = decisions[i].reason == STOP_WARNED ? SIGUSR1 : SIGTERM;
        f.restarts = f.restarts ? f.restarts : r.restart;
        reason = requeue_reason(&f, &r, NOW);
        tap_is_int(reason, decisions[i].reason, "%s: why", decisions[i].what);
        tap_is_int(requeue_decide(&f, &r, reason), decisions[i].want, "%s: what to do",
                   decisions[i].what);
    }
}

static void test_switches(void)
{
    struct requeue_job_facts f = { .batch = 1, .may_requeue = 1, .running = 1 };
    struct requeue_request r = { .restarts = LIMIT, .max_restarts = LIMIT };

    tap_is_int(requeue_decide(&f, &r, STOP_PREEMPTED), REQUEUE_LIMIT,
               "as many restarts as allowed");
    r.restarts = LIMIT - 1;
    tap_is_int(requeue_decide(&f, &r, STOP_PREEMPTED), REQUEUE_DONE, "one less");
    r.switched_off = true;
    tap_is_int(requeue_decide(&f, &r, STOP_PREEMPTED), REQUEUE_SWITCHED_OFF,
               "accel.preemption.requeue: false");
    f.batch = false;
    tap_is_int(requeue_decide(&f, &r, STOP_PREEMPTED), REQUEUE_NOT_BATCH,
               "which is about batch jobs only");
}

/* Ctrl-C ends the run, whatever becomes of the job; nobody is asked. */
static void test_interrupted(void)
{
    struct requeue_request r = { .signal = SIGINT, .max_restarts = LIMIT };
    struct requeue_ending e;

    for (int in_job = 0; in_job < 2; in_job++) {
        if (in_job)
            setenv("SLURM_JOB_ID", "1", 1);
        else
            unsetenv("SLURM_JOB_ID");
        e = requeue_look(&r, NULL);
        tap_ok(e.result == REQUEUE_STOPPED && e.reason == STOP_INTERRUPTED,
               "interrupted, %s a job: not requeued", in_job ? "in" : "without");
    }
    tap_is_str(stop_reason_text(e.reason), "interrupted", "and called so");
}

static void test_without_slurm(void)
{
    struct requeue_request r = { .signal = SIGUSR1, .max_restarts = LIMIT };
    struct requeue_ending e;

    unsetenv("SLURM_JOB_ID");
    e = requeue_look(&r, NULL);
    tap_ok(e.result == REQUEUE_NO_JOB && e.reason == STOP_SIGNAL, "no job");
    tap_ok(requeue_ask(&r, "1", NULL) == REQUEUE_NO_JOB, "nothing to ask for");
    setenv("SLURM_JOB_ID", "1;reboot", 1);
    e = requeue_look(&r, NULL);
    tap_ok(e.result == REQUEUE_NO_JOB, "a job id that is no number");
    setenv("SLURM_JOB_ID", "1", 1);
    setenv("PATH", "/nonexistent", 1);
    e = requeue_look(&r, NULL);
    tap_ok(e.result == REQUEUE_LEFT, "no scontrol: left to the plugin");
    tap_ok(requeue_ask(&r, "1", NULL) == REQUEUE_LEFT, "and cannot be asked");
}

int main(void)
{
    test_parser();
    test_arrays();
    test_decision();
    test_switches();
    test_interrupted();
    test_without_slurm();
    return tap_done();
}
