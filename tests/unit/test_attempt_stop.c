/* SPDX-License-Identifier: Apache-2.0
 *
 * libacceljob: how an attempt stops: status and text, what the history has, who asks
 * Slurm for what; and which attempts of a job may follow.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accel_ckpt.h"
#include "accel_job.h"
#include "tests/tap.h"
#include "tests/unit/attempt_world.h"

static accel_error_t err;

/* ---- stops ----------------------------------------------------------------------- */

#define JOB(more) "echo 'JobId=12 JobName=a " more "'"
#define BATCH     "Requeue=1 Restarts=0 BatchFlag=1 "
#define RUNS      JOB(BATCH "JobState=RUNNING")
#define COMES                                                                          \
    "job 12 is requeued and will resume automatically (restart 1 of at most 100)"
#define AGAIN "not a Slurm job: run the command again to resume"
#define BROKEN_OFF                                                                     \
    "not restarted: the run was interrupted; run the same command to resume"
#define CANCELLED "not restarted: the job was cancelled; submit it again to resume"
#define LIMIT                                                                          \
    "not restarted: accel.preemption.max_restarts is reached; submit the job again "   \
    "to resume"
#define OFF                                                                            \
    "not requeued: accel.preemption.requeue is false; submit the job again to resume"
#define LEFT    "the requeue request failed; srun will try"
#define SHOWN   "--oneliner show job 12"
#define ASKED   SHOWN "\nrequeue 12"
#define UNSAVED "is not saved: the program did not save it; "

static const struct row {
    const char *what;
    const char *show, *ask; /* what scontrol does; NULL: no job, "": no scontrol */
    const char *rules;
    int signal, step, saved; /* saved: -1: nothing is */
    int exit, message;
    const char *reason, *text; /* text NULL: the state of `step` is saved */
    const char *hint, *calls;
    bool marker;
} rows[] = {
    { "no job", NULL, NULL, "", SIGTERM, 7, 7, 85, 907, "signalled", NULL, AGAIN, "",
      false },
    { "no job, not saved", NULL, NULL, "", SIGTERM, 7, -1, 85, 926, "signalled",
      "step 7 " UNSAVED "this attempt saved nothing", AGAIN, "", false },
    { "no job, saved earlier", NULL, NULL, "", SIGTERM, 9, 7, 85, 926, "signalled",
      "step 9 " UNSAVED "the checkpoint of step 7 is kept", AGAIN, "", false },
    { "no job, step 0", NULL, NULL, "", SIGTERM, 0, 0, 85, 907, "signalled", NULL,
      AGAIN, "", false },
    { "no step, not saved", NULL, NULL, "", SIGTERM, -1, -1, 85, 926, "signalled",
      "the last step " UNSAVED "this attempt saved nothing", AGAIN, "", false },
    { "no step, saved earlier", NULL, NULL, "", SIGTERM, -1, 7, 85, 926, "signalled",
      "the last step " UNSAVED "the checkpoint of step 7 is kept", AGAIN, "", false },
    { "Ctrl-C", NULL, NULL, "", SIGINT, 7, 7, 75, 923, "interrupted", NULL, BROKEN_OFF,
      "", false },
    { "Ctrl-C, not saved", NULL, NULL, "", SIGINT, 7, -1, 75, 927, "interrupted",
      "step 7 " UNSAVED "this attempt saved nothing", BROKEN_OFF, "", false },
    { "Ctrl-C in a job", RUNS, "", "", SIGINT, 7, 7, 75, 923, "interrupted", NULL,
      BROKEN_OFF, "", false },
    { "warned", RUNS, "", "", SIGUSR1, 7, 7, 85, 907, "warned", NULL, COMES, ASKED,
      true },
    { "warned by USR2", RUNS, "", "signal=USR2", SIGUSR2, 7, 7, 85, 907, "warned", NULL,
      COMES, ASKED, true },
    { "warned, not saved", RUNS, "", "", SIGUSR1, 7, -1, 85, 926, "warned",
      "step 7 " UNSAVED "this attempt saved nothing", COMES, ASKED, true },
    { "preempted", JOB(BATCH "JobState=RUNNING PreemptTime=2026-01-31T12:00:00"), "",
      "", SIGTERM, 7, 7, 85, 907, "preempted", NULL, COMES, ASKED, true },
    { "at the time limit", JOB(BATCH "JobState=RUNNING EndTime=2026-01-31T12:02:00"),
      "", "", SIGTERM, 7, 7, 85, 907, "near the time limit", NULL, COMES, ASKED, true },
    { "cancelled", RUNS, "", "", SIGTERM, 7, 7, 75, 923, "cancelled", NULL, CANCELLED,
      SHOWN, false },
    { "cancelled, not saved", JOB(BATCH "JobState=CANCELLED"), "", "", SIGUSR1, 7, -1,
      75, 927, "cancelled", "step 7 " UNSAVED "this attempt saved nothing", CANCELLED,
      SHOWN, false },
    { "the limit of restarts", RUNS, "", "max_restarts=0", SIGUSR1, 7, 7, 75, 923,
      "warned", NULL, LIMIT, SHOWN, false },
    { "one less", RUNS, "", "max_restarts=1", SIGUSR1, 7, 7, 85, 907, "warned", NULL,
      "job 12 is requeued and will resume automatically (restart 1 of at most 1)",
      ASKED, true },
    { "requeue: false", RUNS, "", "requeue=false", SIGUSR1, 7, 7, 85, 907, "warned",
      NULL, OFF, SHOWN, false },
    { "the request fails", RUNS, "exit 1", "", SIGUSR1, 7, 7, 85, 907, "warned", NULL,
      LEFT, ASKED, false },
    { "not a batch job", JOB("Requeue=1 BatchFlag=0 JobState=RUNNING"), "", "", SIGUSR1,
      7, 7, 85, 907, "warned", NULL,
      "not a batch job: srun requests a new allocation if it is allowed to", SHOWN,
      false },
    { "no scontrol", "", "", "", SIGUSR1, 7, 7, 85, 907, "signalled", NULL, LEFT, "",
      false },
};

/* The words of the history for it. */
static void step_words(const struct row *r, char *buf, size_t len)
{
    if (r->step < 0)
        snprintf(buf, len, r->saved < 0 ? "" : " saved=%d", r->saved);
    else if (r->saved == r->step)
        snprintf(buf, len, " step=%d", r->step);
    else
        snprintf(buf, len, " step=%d saved=%d", r->step, r->saved);
}

static void check_row(const struct row *r)
{
    accel_attempt_t *attempt;
    accel_status_t st;
    char want[512], step[64];

    world_new();
    setenv("ACCEL_PREEMPTION", r->rules, 1);
    if (r->show)
        world_job("12", 0);
    if (r->show && *r->show)
        world_scontrol(r->show, r->ask);
    attempt = world_open(0, 1);
    if (r->saved >= 0)
        world_save(attempt, r->saved, 2);
    world_said[0] = '\0';
    world_stop(attempt, r->signal);
    st = accel_attempt_stop(attempt, r->step, &err);
    tap_ok(accel_exit_code(st) == r->exit && err.message == r->message,
           "%s: A%04d, exit code %d", r->what, err.message, accel_exit_code(st));
    snprintf(want, sizeof(want), "stopped (%s); the state of step %d is saved in %s",
             r->reason, r->step, world_ckpt(""));
    if (r->text)
        snprintf(want, sizeof(want), "stopped (%s); %s", r->reason, r->text);
    tap_is_str(err.text, want, "%s: why", r->what);
    tap_is_str(err.hint, r->hint, "%s: what comes next", r->what);
    tap_is_str(world_text(world_path("calls")), r->calls, "%s: what scontrol is asked",
               r->what);
    tap_is_int(world_has(world_ckpt("requeue.12.0")), r->marker, "%s: the marker",
               r->what);
    step_words(r, step, sizeof(step));
    snprintf(want, sizeof(want), " stop%s signal=SIG%s seconds=%.3f reason=%s", step,
             sigabbrev_np(r->signal), r->saved < 0 ? 0. : 2., r->reason);
    tap_ok(strstr(world_text(world_ckpt("history")), want), "%s: the history has%s",
           r->what, want);
    accel_attempt_close(attempt);
}

/* Without scontrol the user is told; it is asked for once, whoever stops. */
static void test_asked(void)
{
    accel_attempt_t *attempt;

    world_new();
    world_job("12", 0);
    attempt = world_open(0, 1);
    world_stop(attempt, SIGUSR1);
    accel_attempt_stop(attempt, 1, &err);
    tap_ok(strstr(world_said, "cannot read the state of job 12: cannot run scontrol: "
                              "No such file or directory"),
           "no scontrol: %s", world_said);
    accel_attempt_close(attempt);
    world_scontrol(RUNS, "");
    world_write(world_ckpt("requeue.12.0"), "");
    attempt = world_open(0, 1);
    world_stop(attempt, SIGUSR1);
    tap_is_int(accel_attempt_stop(attempt, 1, &err), ACCEL_ERESUME,
               "where the marker says that somebody has asked");
    tap_is_str(err.hint, "the job is already being requeued", "nobody asks again");
    tap_is_str(world_text(world_path("calls")), SHOWN, "indeed");
    accel_attempt_close(attempt);
    world_job("12", 1);
    accel_attempt_close(world_open(0, 1));
    tap_ok(!world_has(world_ckpt("requeue.12.0")), "the next attempt removes it");
}

/* Stops because of `sig`, then somebody presses Ctrl-C. */
static int interrupted_after(int sig)
{
    accel_attempt_t *attempt = world_open(0, 1);

    world_stop(attempt, sig);
    accel_attempt_stop(attempt, 1, &err);
    return raise(SIGINT);
}

static void test_interrupt(void)
{
    static const int stops[] = { SIGTERM, SIGINT };

    for (size_t i = 0; i < sizeof(stops) / sizeof(*stops); i++) {
        int status = 0;
        pid_t pid;

        world_new();
        pid = fork();
        if (pid == 0)
            _exit(interrupted_after(stops[i]));
        waitpid(pid, &status, 0);
        tap_ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT,
               "stopped by SIG%s, the process ends by the next Ctrl-C",
               sigabbrev_np(stops[i]));
    }
}

/* ---- attempts that follow -------------------------------------------------------- */

/* The attempts of a job so far: 's' saves, '-' does not. Then one more. */
static const struct {
    const char *what, *attempts;
    bool new_jobs;     /* each has an allocation of its own */
    const char *rules; /* of the last one */
    const char *job;   /* of the last one, NULL: the same */
    int message;
} lives[] = {
    { "the third attempt without a save", "--", false, "", NULL, 0 },
    { "the fourth", "---", false, "", NULL, 928 },
    { "in new allocations", "---", true, "", NULL, 928 },
    { "after many that saved", "ssss---", false, "", NULL, 928 },
    { "the first of them saved", "s--", false, "", NULL, 0 },
    { "the second", "-s-", false, "", NULL, 0 },
    { "the last", "--s", false, "", NULL, 0 },
    { "another job", "---", false, "", "8", 0 },
    { "where accel.preemption is off", "---", false, "enabled=false", NULL, 0 },
    { "as many restarts as allowed", "sss", false, "max_restarts=3", NULL, 0 },
    { "one more", "sss", false, "max_restarts=2", NULL, 921 },
};

static void name_job(bool own, int number)
{
    char job[16];

    snprintf(job, sizeof(job), "%d", own ? 7 + number : 7);
    world_job(job, number);
    setenv("ACCEL_FIRST_JOB_ID", "7", 1);
}

static void check_lives(size_t i)
{
    const int before = (int)strlen(lives[i].attempts);
    accel_attempt_t *attempt;
    char *history;

    world_new();
    for (int n = 0; n < before; n++) {
        name_job(lives[i].new_jobs, n);
        attempt = world_open(0, 1);
        if (lives[i].attempts[n] == 's')
            world_save(attempt, n, 1);
        accel_attempt_close(attempt);
    }
    history = strdup(world_text(world_ckpt("history")));
    name_job(lives[i].new_jobs, before);
    if (lives[i].job) {
        world_job(lives[i].job, 0);
        unsetenv("ACCEL_FIRST_JOB_ID");
    }
    setenv("ACCEL_PREEMPTION", lives[i].rules, 1);
    attempt = world_try(0, 1, &err);
    tap_ok(!attempt == (lives[i].message != 0) && err.message == lives[i].message,
           "%s: %s", lives[i].what, attempt ? "begins" : err.text);
    if (!attempt)
        tap_ok(err.code == ACCEL_ESTOPPED &&
                   strcmp(world_text(world_ckpt("history")), history) == 0,
               "%s: is stopped, and not in the history", lives[i].what);
    accel_attempt_close(attempt);
    attempt = world_try(1, 2, &err);
    tap_ok(attempt != NULL, "%s: other ranks leave that to rank 0", lives[i].what);
    accel_attempt_close(attempt);
    free(history);
}

/* Each program of a job, and of any form, adds to one history. */
static void test_forms(void)
{
#define LINE(n, words) "T job=7 of=7 restart=" n " " words "\n"
    static const struct {
        const char *what, *text;
        bool begins;
    } forms[] = {
        { "libaccel's",
          LINE("0", "start step=0") LINE("1", "start step=0") LINE("2", "start step=0"),
          false },
        { "one that saved in the background",
          LINE("0", "start step=0")
              LINE("0", "save step=1 background bytes=9 seconds=1")
                  LINE("1", "start step=1") LINE("2", "start step=1"),
          true },
        { "stops say nothing of saves",
          LINE("0", "start process=1") LINE("0", "stop step=4 signal=SIGTERM seconds=1 "
                                                 "reason=preempted")
              LINE("1", "start process=1") LINE("2", "start process=1"),
          false },
        { "lines of nobody", "garbage\n\377 start \n start of=7\n start of=7\n", true },
    };

    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        accel_attempt_t *attempt;

        world_new();
        accel_attempt_close(world_open(0, 1));
        world_write(world_ckpt("history"), forms[i].text);
        world_job("7", 3);
        attempt = world_try(0, 1, &err);
        tap_ok((attempt != NULL) == forms[i].begins, "%s: %s", forms[i].what,
               attempt ? "begins" : err.text);
        accel_attempt_close(attempt);
    }
    tap_ok(strcmp(err.text, "") == 0, "a job without a past is not refused");
#undef LINE
}

static void test_told(void)
{
    accel_attempt_t *attempt;

    world_new();
    world_job("12", 0);
    world_scontrol(RUNS, "");
    attempt = world_open(0, 1);
    tap_is_str(world_said, "", "a first attempt is no news");
    world_stop(attempt, SIGUSR1);
    accel_attempt_stop(attempt, 1, &err);
    accel_attempt_close(attempt);
    world_job("12", 1);
    accel_attempt_close(world_open(0, 1));
    tap_is_str(world_said, "restart 1 of at most 100 of job 12 (warned)",
               "a restart is");
}

/* Somebody's tool has the directory when the notice comes. */
static void test_tool(void)
{
    accel_attempt_t *attempt;
    int fd;

    world_new();
    mkdir(world_ckpt(""), 0755);
    world_write(world_ckpt(".lock"), ACCEL_CKPT_TOOL " on n2, process 5\n");
    fd = open(world_ckpt(".lock"), O_RDONLY);
    flock(fd, LOCK_EX);
    world_pause_signal = SIGTERM;
    attempt = world_try(0, 1, &err);
    world_pause_signal = 0;
    tap_ok(!attempt && err.code == ACCEL_ERESUME && err.message == 926,
           "a stop while a tool has the directory: %s", err.text);
    tap_ok(
        strstr(
            err.text,
            "before the first step: a tool is using this directory: " ACCEL_CKPT_TOOL),
        "names it");
    tap_ok(!world_has(world_ckpt("history")), "and there was no attempt");
    close(fd);
}

int main(void)
{
    world_begin();
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        check_row(&rows[i]);
    test_asked();
    test_interrupt();
    for (size_t i = 0; i < sizeof(lives) / sizeof(*lives); i++)
        check_lives(i);
    test_forms();
    test_told();
    test_tool();
    world_end();
    return tap_done();
}
