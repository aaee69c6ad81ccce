/* SPDX-License-Identifier: Apache-2.0
 *
 * When a stopped run asks for a requeue: the decision as a table, the parser of scontrol's
 * line on real and on cut lines, and the paths that need no Slurm.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/tap.h"
#include "train/requeue.h"

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

    tap_ok(requeue_parse_job(real_line, &f), "a line of scontrol is understood");
    tap_ok(f.batch && f.may_requeue && f.running && f.preempted && !f.cancelled,
           "batch, requeue, running, preempted");
    tap_ok(f.end_time == (int64_t)mktime(&tm), "end time, local");
    tap_ok(requeue_parse_job("JobId=3 JobState=CANCELLED Requeue=0 BatchFlag=0 "
                             "EndTime=Unknown PreemptTime=None",
                             &f) &&
               f.cancelled && !f.preempted && !f.batch && !f.may_requeue && !f.end_time,
           "cancelled, unknown times");
    tap_ok(!requeue_parse_job("slurm_load_jobs error: Invalid job id specified", &f),
           "an error message is no job");
    tap_ok(!requeue_parse_job("JobId=3 JobState=RUNNING Requ", &f),
           "a cut line is no job");
    tap_ok(!requeue_parse_job("", &f), "nothing is no job");
}

static void test_decision(void)
{
    static const struct {
        const char *what;
        struct requeue_job_facts f;
        int signal;
        enum requeue_result want;
    } cases[] = {
        { "preempted by SIGTERM", { 1, 1, 1, 0, 1, 0 }, SIGTERM, REQUEUE_DONE },
        { "warning signal", { 1, 1, 1, 0, 0, 0 }, SIGUSR1, REQUEUE_DONE },
        { "SIGTERM alone", { 1, 1, 1, 0, 0, 0 }, SIGTERM, REQUEUE_NOT_MEANT },
        { "SIGTERM long before the limit",
          { 1, 1, 1, 0, 0, NOW + 9999 },
          SIGTERM,
          REQUEUE_NOT_MEANT },
        { "SIGTERM near the limit",
          { 1, 1, 1, 0, 0, NOW + 170 },
          SIGTERM,
          REQUEUE_DONE },
        { "scancel", { 1, 1, 0, 1, 0, NOW }, SIGTERM, REQUEUE_NOT_MEANT },
        { "--no-requeue", { 1, 0, 1, 0, 1, 0 }, SIGTERM, REQUEUE_FORBIDDEN },
        { "bare srun", { 0, 1, 1, 0, 1, 0 }, SIGTERM, REQUEUE_NOT_BATCH },
        { "requeued already", { 1, 1, 0, 0, 1, 0 }, SIGTERM, REQUEUE_BY_OTHER },
    };
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        struct requeue_request r = { .signal = cases[i].signal, .lead_seconds = 120 };
        tap_is_int(requeue_decide(&cases[i].f, &r, NOW), cases[i].want, "%s",
                   cases[i].what);
    }
}

static void test_without_slurm(void)
{
    struct requeue_request r = { .signal = SIGUSR1, .lead_seconds = 120 };
    enum requeue_result result = REQUEUE_DONE;

    unsetenv("SLURM_JOB_ID");
    tap_ok(requeue_job(&r, NULL, &result, NULL) == ACCEL_OK && result == REQUEUE_NO_JOB,
           "no job");
    setenv("SLURM_JOB_ID", "1;reboot", 1);
    tap_ok(requeue_job(&r, NULL, &result, NULL) == ACCEL_OK && result == REQUEUE_NO_JOB,
           "a job id that is no number");
    setenv("SLURM_JOB_ID", "1", 1);
    setenv("PATH", "/nonexistent", 1);
    tap_ok(requeue_job(&r, NULL, &result, NULL) == ACCEL_OK && result == REQUEUE_LEFT,
           "no scontrol: left to the plugin");
}

int main(void)
{
    test_parser();
    test_decision();
    test_without_slurm();
    return tap_done();
}
