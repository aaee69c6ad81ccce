/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a stopped run, by what scontrol answers: failed, late, odd. A row is one
 * stop with what a stand-in for scontrol does when it is asked for the job and when it
 * is told to requeue it; wanted are message and exit code, what the user reads, who
 * asked for what, and whether a marker is left, which keeps srun from asking. Late is
 * by this program's own clock.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preemption/preemption.h"
#include "preemption/requeue.h"
#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"

static char dir[] = "/tmp/accel-answers.XXXXXX";

/* ---- time ------------------------------------------------------------------------ */

/* Moves when scontrol hangs, by what is waited for it. */
static int64_t now_ms;

/* A file of the folder; valid until the next call. */
static const char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static bool has_file(const char *name)
{
    return access(path_of(name), F_OK) == 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    *now = (struct timespec){ .tv_sec = now_ms / 1000,
                              .tv_nsec = now_ms % 1000 * 1000000 };
    return 0;
}

/* A signal comes in every other wait for output. */
int poll(struct pollfd *fds, nfds_t n, int timeout)
{
    static bool interrupted;
    int ready;

    interrupted = fds && !interrupted;
    if (interrupted) {
        errno = EINTR;
        return -1;
    }
    for (;;) {
        const bool hangs = has_file("hanging");

        ready = (int)syscall(SYS_poll, fds, n, hangs ? 0 : 1);
        if (ready == 0 && hangs)
            now_ms += timeout;
        if (ready != 0 || hangs || !fds)
            return ready;
    }
}

/* ---- the other ranks ------------------------------------------------------------- */

static int64_t told; /* what rank 0 tells the others */
static int agreements;

__typeof__(comm_all_reduce) __wrap_comm_all_reduce;

accel_status_t __wrap_comm_all_reduce(struct comm *c, void *buf, size_t elems,
                                      accel_dtype_t dtype, enum comm_op op,
                                      accel_error_t *err)
{
    (void)c, (void)dtype, (void)op, (void)err;
    agreements++;
    if (elems == 1 && agreements == 1)
        memcpy(&told, buf, sizeof(told));
    return ACCEL_OK;
}

/* ---- rows ------------------------------------------------------------------------ */

#define JOB(more) "echo 'JobId=12 JobName=a " more "'"
#define BATCH     "Requeue=1 Restarts=0 BatchFlag=1 "
#define RUNS      JOB(BATCH "JobState=RUNNING")
#define HANGS     ": >\"${0%/*}/hanging\"; exec sleep 60"
#define CLOSES    "exec >&- 2>&-; " HANGS
#define DIES      "kill -9 $$"
#define DOWN                                                                           \
    "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect "        \
    "failure)' >&2; exit 1"

#define COMES                                                                          \
    "job 12 is requeued and will resume automatically (restart 1 of at most 9)"
#define LEFT   "the requeue request failed; srun will try"
#define OTHER  "the job is already being requeued"
#define ENDED  "not restarted: the job was cancelled; submit it again to resume"
#define BARE   "not a batch job: srun requests a new allocation if it is allowed to"
#define FORBID "not requeued: the job was submitted with --no-requeue; submit it again"
#define UNREAD "cannot read the state of job 12: "
#define REFUSE "cannot requeue job 12: "

static const struct row {
    const char *what;
    const char *show, *ask; /* what scontrol does, for sh */
    int signal;
    enum message code;
    const char *reason, *next, *warned;
    const char *asked; /* job of the requeue; NULL: none */
    bool marker;       /* is there one at the end? */
    int waits;         /* seconds of the clock */
} rows[] = {
    { "warned", RUNS, "", SIGUSR1, A0907, "warned", COMES, "", "12", true, 0 },
    { "requeue fails", RUNS, "echo 'Invalid job id specified for job 12' >&2; exit 1",
      SIGUSR1, A0907, "warned", LEFT, REFUSE "Invalid job id specified for job 12",
      "12", false, 0 },
    { "requeue fails without a word", RUNS, "exit 1", SIGUSR1, A0907, "warned", LEFT,
      REFUSE "scontrol ended without an answer", "12", false, 0 },
    { "requeue says something and succeeds", RUNS, "echo hello", SIGUSR1, A0907,
      "warned", COMES, "", "12", true, 0 },
    { "requeue is killed", RUNS, DIES, SIGUSR1, A0907, "warned", LEFT,
      REFUSE "scontrol ended without an answer", "12", false, 0 },
    { "requeue is late", RUNS, HANGS, SIGUSR1, A0907, "warned", LEFT,
      REFUSE "scontrol did not answer within 10 s", "12", false, 10 },
    { "requeue closes its output and stays", RUNS, CLOSES, SIGUSR1, A0907, "warned",
      LEFT, REFUSE "scontrol did not answer within 10 s", "12", false, 10 },
    { "the controller is down", DOWN, "", SIGUSR1, A0907, "signalled", LEFT,
      UNREAD "slurm_load_jobs error: Unable to contact slurm controller (connect "
             "failure)",
      NULL, false, 0 },
    { "the job is unknown",
      "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", "", SIGTERM,
      A0907, "signalled", LEFT,
      UNREAD "slurm_load_jobs error: Invalid job id specified", NULL, false, 0 },
    { "it answers and fails", RUNS "; exit 1", "", SIGUSR1, A0907, "signalled", LEFT,
      UNREAD "JobId=12 JobName=a Requeue=1 Restarts=0 BatchFlag=1 JobState=RUNNING",
      NULL, false, 0 },
    { "it is killed", DIES, "", SIGUSR1, A0907, "signalled", LEFT,
      UNREAD "scontrol ended without an answer", NULL, false, 0 },
    { "it is late", HANGS, "", SIGUSR1, A0907, "signalled", LEFT,
      UNREAD "scontrol did not answer within 10 s", NULL, false, 10 },
    { "it is late with the rest", RUNS "; " HANGS, "", SIGUSR1, A0907, "signalled",
      LEFT, UNREAD "scontrol did not answer within 10 s", NULL, false, 10 },
    { "it closes its output and stays", CLOSES, "", SIGUSR1, A0907, "signalled", LEFT,
      UNREAD "scontrol did not answer within 10 s", NULL, false, 10 },
    { "an empty answer", "", "", SIGUSR1, A0907, "signalled", LEFT,
      UNREAD "scontrol ended without an answer", NULL, false, 0 },
    { "garbage", "printf '\\377\\001 = = JobId\\n'", "", SIGUSR1, A0907, "signalled",
      LEFT, UNREAD "\377\001 = = JobId", NULL, false, 0 },
    { "an answer about another job", "echo 'JobId=123 " BATCH "JobState=RUNNING'", "",
      SIGUSR1, A0907, "signalled", LEFT, UNREAD "JobId=123 " BATCH "JobState=RUNNING",
      NULL, false, 0 },
    { "an answer that is cut off", "printf 'JobId=12 JobState=RUNNING Requeue=1 Res'",
      "", SIGUSR1, A0907, "signalled", LEFT,
      UNREAD "JobId=12 JobState=RUNNING Requeue=1 Res", NULL, false, 0 },
    { "without a state", JOB(BATCH), "", SIGUSR1, A0907, "signalled", LEFT,
      UNREAD "JobId=12 JobName=a " BATCH, NULL, false, 0 },
    { "new fields, in another order",
      "echo 'Accrue=1 BatchFlag=7'; echo 'JobId=12 NewBatchFlag=0 JobState=RUNNING "
      "OldRestarts=9 BatchFlag=1 New= Restarts=0 Requeue=1'",
      "", SIGUSR1, A0907, "warned", COMES, "", "12", true, 0 },
    { "more than can be kept", RUNS "; head -c 300000 /dev/zero | tr '\\0' x", "",
      SIGUSR1, A0907, "warned", COMES, "", "12", true, 0 },
    { "BatchFlag 2", JOB("Requeue=1 BatchFlag=2 JobState=RUNNING"), "", SIGUSR1, A0907,
      "warned", COMES, "", "12", true, 0 },
    { "BatchFlag 0", JOB("Requeue=1 BatchFlag=0 JobState=RUNNING"), "", SIGUSR1, A0907,
      "warned", BARE, "", NULL, false, 0 },
    { "--no-requeue", JOB("Requeue=0 BatchFlag=1 JobState=RUNNING"), "", SIGUSR1, A0907,
      "warned", FORBID, "", NULL, false, 0 },
    { "an array",
      "echo 'JobId=13 ArrayJobId=12 ArrayTaskId=1 JobState=CANCELLED BatchFlag=1'; "
      "echo 'JobId=12 ArrayJobId=12 ArrayTaskId=4 " BATCH "JobState=RUNNING'",
      "", SIGUSR1, A0907, "warned",
      "job 12_4 is requeued and will resume automatically (restart 1 of at most 9)", "",
      "12_4", true, 0 },
    { "a heterogeneous job",
      "echo 'JobId=12 HetJobId=12 HetJobOffset=0 " BATCH "JobState=RUNNING'; "
      "echo 'JobId=13 HetJobId=12 HetJobOffset=1 JobState=CANCELLED BatchFlag=0'",
      "", SIGUSR1, A0907, "warned", COMES, "", "12", true, 0 },
    { "a component of one",
      "echo 'JobId=11 HetJobId=11 HetJobOffset=0 JobState=CANCELLED BatchFlag=1'; "
      "echo 'JobId=12 HetJobId=11 HetJobOffset=1 " BATCH "JobState=RUNNING'",
      "", SIGUSR1, A0907, "warned", COMES, "", "12", true, 0 },
    { "COMPLETING, for no known reason", JOB(BATCH "JobState=COMPLETING"), "", SIGTERM,
      A0923, "cancelled", ENDED, "", NULL, false, 0 },
    { "COMPLETING, at its limit",
      JOB(BATCH "JobState=COMPLETING TimeLimit=00:01:00 StartTime=2026-01-31T12:00:00 "
                "EndTime=2026-01-31T12:01:00"),
      "", SIGTERM, A0907, "near the time limit", COMES, "", "12", true, 0 },
    { "COMPLETING, requeued",
      JOB("Requeue=1 Restarts=1 BatchFlag=1 JobState=COMPLETING"), "", SIGTERM, A0907,
      "requeued", OTHER, "", NULL, false, 0 },
    { "REQUEUE_HOLD", JOB("Requeue=1 Restarts=1 BatchFlag=1 JobState=REQUEUE_HOLD"), "",
      SIGTERM, A0907, "requeued", OTHER, "", NULL, false, 0 },
    { "requeued after a preemption",
      JOB("Requeue=1 Restarts=1 BatchFlag=1 JobState=REQUEUED "
          "PreemptTime=2026-01-31T12:00:00"),
      "", SIGTERM, A0907, "preempted", OTHER, "", NULL, false, 0 },
    { "CANCELLED", JOB(BATCH "JobState=CANCELLED"), "", SIGUSR1, A0923, "cancelled",
      ENDED, "", NULL, false, 0 },
    { "PREEMPTED", JOB(BATCH "JobState=PREEMPTED"), "", SIGTERM, A0907, "preempted",
      COMES, "", "12", true, 0 },
    { "Ctrl-C", "exit 1", "", SIGINT, A0923, "interrupted",
      "not restarted: the run was interrupted; run the same command to resume", "",
      NULL, false, 0 },
};

/* ---- one stop -------------------------------------------------------------------- */

static char said[1024];

static void keep_line(void *user, accel_log_level_t level, const char *line)
{
    (void)user;
    snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s%s",
             level == ACCEL_LOG_WARN ? "" : "not a warning: ", line);
}

/* Text of a file of the folder without its last newline; "" if there is none. */
static const char *read_file(const char *name)
{
    static char text[4096];
    FILE *f = fopen(path_of(name), "r");
    size_t n;

    n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
    text[n > 0 && text[n - 1] == '\n' ? n - 1 : n] = '\0';
    if (f)
        fclose(f);
    return text;
}

static void remove_file(const char *name)
{
    unlink(path_of(name));
}

/* A batch job's run after step 7, which is saved. */
static accel_t *new_run(void)
{
    accel_t *run = calloc(1, sizeof(*run));

    if (!run)
        abort();
    snprintf(run->ckpt_dir, sizeof(run->ckpt_dir), "%s", dir);
    run->log = (struct accel_log){ keep_line, NULL, ACCEL_LOG_INFO };
    run->config.preempt_requeue = true;
    run->config.preempt_max_restarts = 9;
    run->config.preempt_lead_seconds = 120;
    run_preemption(run);
    run->progress.step = run->progress.saved_step = 7;
    run->preemption.notice.grace = -1;
    run->preemption.incarnation = (struct incarnation){ .job = 12, .first_job = 12 };
    said[0] = '\0';
    now_ms = 1000;
    told = -1;
    agreements = 0;
    remove_file("calls");
    remove_file("history");
    remove_file("hanging");
    return run;
}

static void scontrol_does(const char *show, const char *ask)
{
    run_folder_write(path_of("show"), show);
    run_folder_write(path_of("requeue"), ask);
}

static void check_row(const struct row *r)
{
    accel_t *run = new_run();
    accel_error_t err = { 0 };
    char want[160] = "";
    const bool final = r->code == A0923;

    scontrol_does(r->show, r->ask);
    if (r->asked || r->signal != SIGINT)
        snprintf(want, sizeof(want), "--oneliner show job 12%s%s",
                 r->asked ? "\nrequeue " : "", r->asked ? r->asked : "");
    accel_status_t st = run_stop(run, r->signal, &err);
    tap_ok(st == (final ? ACCEL_ESTOPPED : ACCEL_ERESUME) &&
               message_of(&err) == r->code && accel_exit_code(st) == (final ? 75 : 85),
           "%s: A%04d, exit code %d", r->what, err.message, accel_exit_code(st));
    tap_ok(told == final && agreements == 2, "%s: and on all ranks", r->what);
    snprintf(said + 600, 400, "stopped (%s); the state of step 7 is saved in %s",
             r->reason, dir);
    tap_is_str(err.text, said + 600, "%s: why", r->what);
    tap_is_str(err.hint, r->next, "%s: what comes next", r->what);
    tap_is_str(said, r->warned, "%s: the warning", r->what);
    tap_is_str(read_file("calls"), want, "%s: what scontrol is asked", r->what);
    tap_is_int(has_file("requeue.12.0"), r->marker, "%s: the marker", r->what);
    tap_is_int((now_ms - 1000) / 1000, r->waits, "%s: waits", r->what);
    snprintf(want, sizeof(want), " stop step=7 signal=%s seconds=0.000 reason=%s",
             stop_signal_name(r->signal), r->reason);
    tap_ok(strstr(read_file("history"), want), "%s: the history has%s", r->what, want);
    remove_file("requeue.12.0");
    free(run);
}

/* ---- the marker ------------------------------------------------------------------ */

static void test_marker(void)
{
    accel_t *run = new_run();
    accel_error_t err = { 0 };
    char want[64];

    scontrol_does(RUNS, "");
    setenv("SLURM_STEP_ID", "3", 1);
    run_stop(run, SIGUSR1, &err);
    snprintf(want, sizeof(want), ", process %ld, at ", (long)getpid());
    tap_ok(strncmp(read_file("requeue.12.0"), "rank 0 of step 3 on ", 20) == 0 &&
               strstr(read_file("requeue.12.0"), want),
           "the marker says who asked: %s", read_file("requeue.12.0"));
    remove_file("calls");
    run_stop(run, SIGUSR1, &err);
    tap_is_str(err.hint, OTHER, "a marker of this life: somebody asked");
    tap_is_str(read_file("calls"), "--oneliner show job 12", "and nobody asks again");
    tap_is_int(has_file("requeue.12.0"), true, "nor takes the marker away");
    run->preemption.incarnation.restart = run->preemption.history.restarts = 1;
    scontrol_does(JOB("Requeue=1 Restarts=1 BatchFlag=1 JobState=RUNNING"), "");
    run_stop(run, SIGUSR1, &err);
    tap_is_str(err.hint,
               "job 12 is requeued and will resume automatically (restart 2 of at most "
               "9)",
               "a marker of the life before is none of this one");
    tap_is_int(has_file("requeue.12.1"), true, "which makes its own");
    remove_file("requeue.12.0");
    remove_file("requeue.12.1");
    snprintf(run->ckpt_dir, sizeof(run->ckpt_dir), "%s/none", dir);
    remove_file("calls");
    run_stop(run, SIGUSR1, &err);
    tap_is_str(read_file("calls"), "--oneliner show job 12\nrequeue 12",
               "where none can be made, the requeue is asked for all the same");
    free(run);
}

/* Which of two ends: a limit reached and a step that is not saved. */
static void test_ends(void)
{
    static const struct {
        const char *what, *show;
        int64_t saved, restarts;
        bool off;
        enum message code;
        int exit;
    } ends[] = {
        { "saved, comes back", RUNS, 7, 0, false, A0907, 85 },
        { "not saved, comes back", RUNS, 5, 0, false, A0926, 85 },
        { "saved, cancelled", JOB(BATCH "JobState=CANCELLED"), 7, 0, false, A0923, 75 },
        { "not saved, cancelled", JOB(BATCH "JobState=CANCELLED"), 5, 0, false, A0927,
          75 },
        { "as many restarts as allowed", RUNS, 7, 9, false, A0923, 75 },
        { "one less", RUNS, 7, 8, false, A0907, 85 },
        { "not saved, and no restart is left", RUNS, 5, 9, false, A0927, 75 },
        { "requeue: false, and no restart is left", RUNS, 7, 9, true, A0907, 85 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(ends); i++) {
        accel_t *run = new_run();
        accel_error_t err = { 0 };

        scontrol_does(ends[i].show, "");
        run->progress.saved_step = ends[i].saved;
        run->preemption.history.restarts = ends[i].restarts;
        run->preemption.rules.requeue = !ends[i].off;
        accel_status_t st = run_stop(run, SIGUSR1, &err);
        tap_ok(message_of(&err) == ends[i].code && accel_exit_code(st) == ends[i].exit,
               "%s: A%04d, exit code %d", ends[i].what, err.message,
               accel_exit_code(st));
        remove_file("requeue.12.0");
        free(run);
    }
}

/* Other ranks ask nobody and say nothing. */
static void test_other_rank(void)
{
    accel_t *run = new_run();
    accel_error_t err = { 0 };

    run->preemption.rank = 1;
    tap_is_int(run_stop(run, SIGUSR1, &err), ACCEL_ERESUME, "another rank ends alike");
    tap_ok(!err.text[0] && !err.hint[0] && !said[0] && !has_file("calls") &&
               !has_file("history") && agreements == 2,
           "without a word, after rank 0 has asked");
    free(run);
}

static void judge(accel_t *run, struct stop_verdict *verdict_out)
{
    const struct stop_save save = run_last_save(run);

    deadline_judge(&run->preemption, SIGTERM, &save, verdict_out, NULL);
}

/* Before a save there is less time to ask, and it is lost for the save. */
static void test_judge(void)
{
    accel_t *run = new_run();
    struct stop_verdict v;

    run->preemption.notice =
        (struct notice){ .known = true, .mode = "OFF", .kill_wait = 8 };
    run->plan.checkpoint_bytes = 1000;
    run->preemption.pace.at_once = 0.006;
    scontrol_does(HANGS, "");
    judge(run, &v);
    tap_ok(now_ms == 4000 && v.left == 5 && (int)(v.need + 0.5) == 9 && !v.save,
           "a save of 9 s in 8 s: scontrol is waited for 3 s: %lld ms, %g s",
           (long long)now_ms, v.left);
    remove_file("hanging");
    now_ms = 1000;
    scontrol_does(JOB(BATCH "JobState=RUNNING PreemptTime=2026-01-31T12:00:00"), "");
    run->preemption.notice.grace = 30;
    judge(run, &v);
    tap_ok(now_ms == 1000 && v.left == 30 && v.save,
           "in a grace time that scontrol tells of: %g s are left", v.left);
    free(run);
}

/* This program as scontrol: fails with how it was started. */
static int act_as_scontrol(void)
{
    char text[256] = "", in[64] = "";
    struct sigaction now;
    sigset_t blocked;

    sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (int sig = 1; sig < SIGSYS; sig++) {
        if (sigismember(&blocked, sig))
            strcat(strcat(text, sigabbrev_np(sig)), " blocked, ");
        if (sigaction(sig, NULL, &now) == 0 && now.sa_handler == SIG_IGN)
            strcat(strcat(text, sigabbrev_np(sig)), " ignored, ");
    }
    if (readlink("/proc/self/fd/0", in, sizeof(in) - 1) < 0)
        return 2;
    fprintf(stderr, "%sreads %s\n", text, in);
    return 1;
}

/* What ends the step must not cut off the request. */
static void test_child(void)
{
    accel_t *run = new_run();
    struct requeue_job_facts facts;
    char self[512] = "";

    remove_file("scontrol");
    signal(SIGUSR2, SIG_IGN);
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0 ||
        symlink(self, path_of("scontrol")) != 0)
        tap_diag("no scontrol: %s", strerror(errno));
    requeue_facts(&run->log, 10, &facts);
    signal(SIGUSR2, SIG_DFL);
    tap_is_str(said,
               UNREAD "INT blocked, USR1 blocked, USR2 blocked, TERM blocked, reads "
                      "/dev/null",
               "how scontrol is started");
    free(run);
}

int main(void)
{
    char path[128];

    if (strcmp(program_invocation_short_name, "scontrol") == 0)
        return act_as_scontrol();
    alarm(HANG_S);
    run_folder_new(dir);
    run_folder_write(path_of("scontrol"),
                     "#!/bin/sh\necho \"$*\" >>\"${0%/*}/calls\"\n"
                     "[ \"$1\" = requeue ] || set -- show\n. \"${0%/*}/$1\"\n");
    if (chmod(path_of("scontrol"), 0755) != 0)
        tap_skip_all("no program can be made");
    snprintf(path, sizeof(path), "%s:/usr/bin:/bin", dir);
    setenv("PATH", path, 1);
    setenv("SLURM_JOB_ID", "12", 1);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        check_row(&rows[i]);
    test_marker();
    test_ends();
    test_other_rank();
    test_judge();
    test_child();
    run_folder_remove(dir);
    return tap_done();
}
