/* SPDX-License-Identifier: Apache-2.0
 *
 * libacceljob: saves: what the history has of them, who may make one, whether there is
 * time for one in a stop, and the same verdict on both of two ranks.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accel_job.h"
#include "tests/tap.h"
#include "tests/unit/attempt_world.h"

#define LATER "job 7 (restart 1) on n1, process 5, since 2026-01-31 12:00:00\n"

#define JOB_7 "job=7 of=7 restart=0 "

static accel_error_t err;

/* ---- one rank -------------------------------------------------------------------- */

static void test_history(void)
{
    accel_attempt_t *attempt;
    char want[320];
    int save = 0;

    world_new();
    world_job("7", 0);
    attempt = world_open(0, 1);
    tap_is_int(accel_attempt_save_begin(attempt, 10, &save, &err), ACCEL_OK, "a save");
    tap_is_int(save, 1, "may be made where no stop is near");
    world_ns += WORLD_SECOND * 5 / 2;
    tap_is_int(accel_attempt_note_save(attempt, 10, &err), ACCEL_OK, "and is noted");
    world_save(attempt, 20, 4);
    world_stop(attempt, SIGINT);
    accel_attempt_stop(attempt, 20, &err);
    snprintf(want, sizeof(want),
             "2026-01-31T12:00:00Z " JOB_7 "start process=%ld\n"
             "2026-01-31T12:00:02Z " JOB_7 "save step=10 seconds=2.500\n"
             "2026-01-31T12:00:06Z " JOB_7 "stop step=20 signal=SIGINT seconds=4.000 "
             "reason=interrupted",
             (long)getpid());
    tap_is_str(world_text(world_ckpt("history")), want,
               "the history has the start, the first save and the stop");
    accel_attempt_close(attempt);
}

/* What srun reads, from its own directory, which it may have lost. */
static void test_report(void)
{
    accel_attempt_t *attempt;
    char job[320], want[320];

    world_new();
    snprintf(job, sizeof(job), "%s/job", world_path("above/step"));
    setenv("ACCEL_STEP_REPORTS", world_path("above/step"), 1);
    attempt = world_open(0, 1);
    snprintf(want, sizeof(want), "opened %s", world_ckpt(""));
    tap_is_str(world_text(job), want, "srun is told which directory it is");
    world_save(attempt, 10, 1);
    world_save(attempt, 20, 1);
    strcat(want, "\nsaved 20");
    tap_is_str(world_text(job), want, "and the last step that is saved");
    tap_ok(!world_has(world_path("above/step/job.new")), "nothing else is there");
    unlink(job);
    mkdir(job, 0700);
    world_save(attempt, 30, 1);
    tap_ok(world_has(world_path("above/step/job")) &&
               !world_has(world_path("above/step/job.new")),
           "what cannot be written is left out");
    accel_attempt_close(attempt);
    rmdir(job);
    attempt = world_open(1, 2);
    tap_ok(!world_has(job), "rank 1 tells nothing");
    accel_attempt_close(attempt);
    unsetenv("ACCEL_STEP_REPORTS");
}

static void test_order(void)
{
    accel_attempt_t *attempt;

    world_new();
    attempt = world_open(0, 1);
    tap_ok(accel_attempt_note_save(attempt, 1, &err) == ACCEL_EINVAL &&
               err.message == 901 && strstr(err.hint, "accel_attempt_save_begin"),
           "a save that has not begun is not noted: %s", err.text);
    world_save(attempt, 1, 1);
    tap_is_int(accel_attempt_note_save(attempt, 1, &err), ACCEL_EINVAL,
               "nor is one noted twice");
    tap_ok(accel_attempt_stop(attempt, 1, &err) == ACCEL_EINVAL && err.message == 901 &&
               strstr(err.hint, "accel_attempt_agreed"),
           "a stop before all have agreed is refused: %s", err.text);
    raise(SIGTERM);
    tap_is_int(accel_attempt_stop(attempt, 1, &err), ACCEL_EINVAL,
               "even where a signal has come");
    accel_attempt_close(attempt);
}

static accel_status_t alone(void *user, int64_t *values, int count)
{
    (void)user, (void)values, (void)count;
    return ACCEL_OK;
}

/* With more ranks than one and no way to them nothing is collective. */
static void test_no_agreement(void)
{
    accel_attempt_t *attempt;
    int save = 1;

    world_new();
    attempt = world_open(0, 2);
    tap_ok(accel_attempt_save_begin(attempt, 1, &save, &err) == ACCEL_EINVAL && !save &&
               strstr(err.text, "accel_attempt_save_begin: 2 ranks have no way"),
           "a save is refused: %s", err.text);
    accel_attempt_agree_by(attempt, alone, NULL);
    tap_is_int(accel_attempt_save_begin(attempt, 1, &save, &err), ACCEL_OK,
               "with one it begins");
    accel_attempt_agree_by(attempt, NULL, NULL);
    tap_ok(accel_attempt_note_save(attempt, 1, &err) == ACCEL_EINVAL &&
               strstr(err.text, "accel_attempt_note_save: 2 ranks have no way"),
           "it is not noted without: %s", err.text);
    world_stop(attempt, SIGTERM);
    tap_ok(accel_attempt_stop(attempt, 1, &err) == ACCEL_EINVAL && err.message == 901 &&
               strstr(err.hint, "accel_attempt_agree_by") &&
               world_count(world_ckpt("history"), " stop ") == 0,
           "a stop is refused: %s", err.text);
    accel_attempt_close(attempt);
}

static accel_attempt_t *lost;

/* The next attempt of the job, while the first one still runs. */
static int take_over(void)
{
    accel_attempt_t *attempt;

    accel_attempt_close(lost); /* this process's copy of it */
    world_job("7", 1);
    attempt = world_try(0, 1, &err);
    return attempt && strstr(world_said, "an earlier attempt of this job is still "
                                         "running (job 7 (restart 0)")
               ? 0
               : 1;
}

static void test_taken_over(void)
{
    int save = 1, status = 1;
    pid_t pid;

    world_new();
    world_job("7", 0);
    lost = world_open(0, 1);
    tap_is_int(world_save(lost, 1, 1), ACCEL_OK, "the first attempt saves");
    tap_is_int(accel_attempt_save_begin(lost, 2, &save, &err), ACCEL_OK,
               "and begins a save that the program gives up");
    pid = fork();
    if (pid == 0)
        _exit(take_over());
    waitpid(pid, &status, 0);
    tap_is_int(status, 0, "the next one begins although it still runs");
    tap_ok(accel_attempt_save_begin(lost, 2, &save, &err) == ACCEL_EUNAVAIL && !save &&
               err.message == 823 &&
               strstr(err.text,
                      "a later attempt of this job took over: job 7 (restart 1)"),
           "the first one saves no more: %s", err.text);
    tap_is_int(accel_attempt_note_save(lost, 2, &err), ACCEL_EINVAL, "nor notes one");
    accel_attempt_close(lost);
}

/* ---- time ------------------------------------------------------------------------ */

#define OWN_FORM   "T " JOB_7 "save step=5 seconds="
#define OTHER_FORM "T " JOB_7 "save step=5 bytes=1000000 seconds="
#define TOO_LONG(need, left, of)                                                       \
    "step 7 is not saved: a checkpoint takes about " need " s, and " left              \
    " s are left of " of

/* The next attempt, which is stopped at step 7. `past`: the history. */
static const struct time_row {
    const char *what, *past, *notice;
    int signal, later; /* seconds after the signal */
    const char *declined;
} time_rows[] = {
    { "20 s in 30", OWN_FORM "20", "p REQUEUE 0 30", SIGTERM, 0, NULL },
    { "20 s in 29", OWN_FORM "20", "p REQUEUE 0 30", SIGTERM, 1,
      TOO_LONG("30.0", "29.0", "KillWait") },
    { "21 s in 30", OWN_FORM "21", "p REQUEUE 0 30", SIGTERM, 0,
      TOO_LONG("31.5", "30.0", "KillWait") },
    { "the last save counts", OWN_FORM "90\n" OWN_FORM "2", "p REQUEUE 0 30", SIGTERM,
      0, NULL },
    { "so does another job's", "T job=3 of=3 restart=0 save step=5 seconds=40",
      "p REQUEUE 0 30", SIGTERM, 0, TOO_LONG("60.0", "30.0", "KillWait") },
    { "and libaccel's", OTHER_FORM "40", "p REQUEUE 0 30", SIGTERM, 0,
      TOO_LONG("60.0", "30.0", "KillWait") },
    { "of a stop, too", "T " JOB_7 "stop step=5 signal=SIGTERM seconds=40",
      "p REQUEUE 0 30", SIGTERM, 0, TOO_LONG("60.0", "30.0", "KillWait") },
    { "in a grace time", OWN_FORM "20", "p REQUEUE 25 30", SIGTERM, 0,
      TOO_LONG("30.0", "25.0", "GraceTime") },
    { "after a warning", OWN_FORM "90", "p REQUEUE 600 30", SIGUSR1, 0,
      TOO_LONG("135.0", "120.0", "lead_seconds") },
    { "after a warning, in time", OWN_FORM "80", "p REQUEUE 600 30", SIGUSR1, 0, NULL },
    { "no time at all", OWN_FORM "1", "p REQUEUE 0 30", SIGTERM, 99,
      TOO_LONG("1.5", "0.0", "KillWait") },
    { "nobody knows how long it takes", "", "p REQUEUE 0 1", SIGTERM, 0, NULL },
    { "nobody knows the time", OWN_FORM "500", NULL, SIGTERM, 9, NULL },
    { "Ctrl-C", OWN_FORM "500", "p REQUEUE 0 30", SIGINT, 9, NULL },
};

static void check_time(const struct time_row *r)
{
    char want[512];
    accel_attempt_t *attempt;
    int save = -1;

    world_new();
    accel_attempt_close(world_open(0, 1)); /* makes the directory */
    world_write(world_ckpt("history"), r->past);
    if (r->notice)
        setenv("ACCEL_PREEMPTION_NOTICE", r->notice, 1);
    world_job("7", 1);
    attempt = world_open(0, 1);
    world_said[0] = '\0';
    world_stop(attempt, r->signal);
    WORLD_SECONDS(r->later);
    memset(&err, 0, sizeof(err));
    tap_ok(accel_attempt_save_begin(attempt, 7, &save, &err) == ACCEL_OK &&
               save == !r->declined,
           "%s: %s", r->what, r->declined ? "left out" : "saved");
    snprintf(want, sizeof(want), "received SIG%s: %s", sigabbrev_np(r->signal),
             r->declined ? r->declined : "saving step 7");
    tap_ok(strstr(world_said, want), "%s: the log has %s", r->what, want);
    if (!r->declined)
        tap_is_int(accel_attempt_note_save(attempt, 7, &err), ACCEL_OK, "%s: noted",
                   r->what);
    else
        tap_is_int(accel_attempt_note_save(attempt, 7, &err), ACCEL_EINVAL,
                   "%s: what was left out is not noted", r->what);
    snprintf(want, sizeof(want), "%s; this attempt saved nothing",
             r->declined ? r->declined : "");
    accel_attempt_stop(attempt, 7, &err);
    tap_ok(strstr(err.text, r->declined ? want : "the state of step 7 is saved in "),
           "%s: the stop says so: %s", r->what, err.text);
    accel_attempt_close(attempt);
}

/* What this attempt has measured counts before anything is read. */
static void test_own_pace(void)
{
    accel_attempt_t *attempt;
    int save = 1;

    world_new();
    setenv("ACCEL_PREEMPTION_NOTICE", "p REQUEUE 0 30", 1);
    attempt = world_open(0, 1);
    world_save(attempt, 5, 22);
    world_stop(attempt, SIGTERM);
    tap_ok(accel_attempt_save_begin(attempt, 7, &save, &err) == ACCEL_OK && !save,
           "an attempt learns from its own saves");
    accel_attempt_stop(attempt, 7, &err);
    tap_ok(strstr(err.text, TOO_LONG("33.0", "30.0", "KillWait") "; the checkpoint of "
                                                                 "step 5 is kept"),
           "and keeps the last one: %s", err.text);
    accel_attempt_close(attempt);
}

/* The site is told once that its times are too short. */
static void test_short_times(void)
{
    accel_attempt_t *attempt;

    world_new();
    setenv("ACCEL_PREEMPTION_NOTICE", "night REQUEUE 10 30", 1);
    attempt = world_open(0, 1);
    world_save(attempt, 1, 10);
    tap_ok(!strstr(world_said, "GraceTime"), "a save as long as GraceTime is no news");
    accel_attempt_close(attempt);
    attempt = world_open(0, 1);
    world_save(attempt, 1, 11);
    tap_ok(strstr(world_said, "a checkpoint takes 11.0 s, but partition night has "
                              "GraceTime 10 s"),
           "a longer one is: %s", world_said);
    accel_attempt_close(attempt);
}

/* ---- agreements that fail -------------------------------------------------------- */

static int calls, fails_at;

static accel_status_t agree_for_a_while(void *user, int64_t *values, int count)
{
    (void)user, (void)values, (void)count;
    return ++calls == fails_at ? ACCEL_EIO : ACCEL_OK;
}

static void test_agreement_fails(void)
{
    static const char *const places[] = { NULL, "whether rank 0 may save",
                                          "the age of the signal", "the verdict" };

    for (int at = 1; at <= 4; at++) {
        accel_attempt_t *attempt;
        int save = 1;

        world_new();
        attempt = world_open(0, 2);
        accel_attempt_agree_by(attempt, agree_for_a_while, NULL);
        world_stop(attempt, SIGTERM);
        calls = 0;
        fails_at = at;
        memset(&err, 0, sizeof(err));
        if (at < 4)
            tap_ok(accel_attempt_save_begin(attempt, 1, &save, &err) == ACCEL_EPEER &&
                       err.message == 929 && !save &&
                       strstr(err.text, "the ranks cannot agree: ACCEL_EIO"),
                   "no agreement on %s: %s", places[at], err.text);
        else
            tap_ok(accel_attempt_save_begin(attempt, 1, &save, &err) == ACCEL_OK &&
                       save,
                   "a save that begins");
        tap_is_int(accel_attempt_note_save(attempt, 1, &err),
                   at < 4 ? ACCEL_EINVAL : ACCEL_EPEER, "no save is noted");
        tap_is_int(world_count(world_ckpt("history"), " save "), 0, "nowhere");
        fails_at = calls + 1;
        tap_is_int(accel_attempt_stop(attempt, 1, &err), ACCEL_ERESUME,
                   "a stop ends as rank 0 says, whether or not the others hear of it");
        tap_ok(strstr(err.text, "step 1 is not saved"), "and tells: %s", err.text);
        accel_attempt_close(attempt);
    }
}

/* ---- two ranks ------------------------------------------------------------------- */

/* What a rank has seen. */
struct seen {
    int signal, agreed, save;
    accel_status_t began, noted, stopped;
    accel_error_t of_begin, of_stop;
};

/* Rank 1's goes to the other process. */
static struct seen *seen;

/* The largest of both ranks; `user`: a socket to the other one. */
static accel_status_t agree_over_socket(void *user, int64_t *values, int count)
{
    const int fd = *(int *)user;
    const size_t bytes = (size_t)count * sizeof(*values);
    int64_t theirs[8];

    if (count > 8 || send(fd, values, bytes, MSG_NOSIGNAL) != (ssize_t)bytes ||
        recv(fd, theirs, bytes, MSG_WAITALL) != (ssize_t)bytes)
        return ACCEL_EPEER;
    for (int i = 0; i < count; i++)
        values[i] = theirs[i] > values[i] ? theirs[i] : values[i];
    return ACCEL_OK;
}

/* What both do. Rank 1 gets the signal, `age` seconds before they agree; its save takes
 * `seconds`, rank 0's takes none. */
static void be_rank(int rank, int fd, int age, double seconds, bool lose)
{
    accel_attempt_t *attempt = world_open(rank, 2);
    struct seen *s = &seen[rank];
    int64_t vote;

    memset(s, 0, sizeof(*s));
    accel_attempt_agree_by(attempt, agree_over_socket, &fd);
    if (rank == 1) {
        raise(SIGTERM);
        WORLD_SECONDS(age);
    }
    vote = accel_attempt_vote(attempt);
    if (agree_over_socket(&fd, &vote, 1) == ACCEL_OK)
        s->agreed = accel_attempt_agreed(attempt, vote);
    s->signal = accel_attempt_signal(attempt);
    if (lose && rank == 0)
        world_write(world_ckpt(".lock"), LATER);
    s->began = accel_attempt_save_begin(attempt, 7, &s->save, &s->of_begin);
    if (s->save) {
        world_ns += rank == 1 ? (int64_t)(seconds * 1e9) : 0;
        s->noted = accel_attempt_note_save(attempt, 7, &err);
    }
    if (s->began == ACCEL_OK)
        s->stopped = accel_attempt_stop(attempt, 7, &s->of_stop);
    accel_attempt_close(attempt);
}

static void both_ranks(int age, double seconds, bool lose)
{
    int fd[2], status = -1;
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0)
        tap_skip_all("no socketpair");
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        alarm(HANG_S);
        close(fd[0]);
        be_rank(1, fd[1], age, seconds, lose);
        _exit(world_said[0] ? 1 : 0);
    }
    close(fd[1]);
    be_rank(0, fd[0], age, seconds, lose);
    close(fd[0]);
    waitpid(pid, &status, 0);
    tap_is_int(status, 0, "rank 1 ends, and logs nothing");
}

static void test_two_saved(void)
{
    world_new();
    both_ranks(0, 3, false);
    tap_ok(seen[0].signal == 0 && seen[1].signal == SIGTERM,
           "a signal that only rank 1 has got");
    tap_ok(seen[0].agreed == SIGTERM && seen[1].agreed == SIGTERM, "stops both");
    tap_ok(seen[0].save && seen[1].save && !seen[0].noted && !seen[1].noted,
           "both save");
    tap_is_int(world_count(world_ckpt("history"), " save step=7 seconds=3.000"), 1,
               "the slower one's time counts");
    tap_ok(seen[0].stopped == ACCEL_ERESUME && seen[1].stopped == ACCEL_ERESUME,
           "and both are to come back");
    tap_is_str(seen[0].of_stop.hint, "not a Slurm job: run the command again to resume",
               "rank 0 says how");
    tap_ok(!seen[1].of_stop.text[0] && !seen[1].of_stop.hint[0], "rank 1 says nothing");
}

static void test_two_no_time(void)
{
    world_new();
    accel_attempt_close(world_open(0, 1));
    world_write(world_ckpt("history"), OWN_FORM "14");
    setenv("ACCEL_PREEMPTION_NOTICE", "p REQUEUE 0 30", 1);
    world_job("7", 1);
    world_scontrol("echo 'JobId=7 Requeue=1 Restarts=1 BatchFlag=1 JobState=CANCELLED'",
                   "");
    both_ranks(10, 0, false);
    tap_ok(seen[0].began == ACCEL_OK && seen[1].began == ACCEL_OK && !seen[0].save &&
               !seen[1].save,
           "rank 0's verdict of no time is rank 1's, too");
    tap_ok(strstr(seen[0].of_stop.text,
                  "stopped (cancelled); " TOO_LONG("21.0", "20.0", "KillWait")),
           "the time counts from the signal of rank 1: %s", seen[0].of_stop.text);
    tap_ok(seen[0].stopped == ACCEL_ESTOPPED && seen[1].stopped == ACCEL_ESTOPPED &&
               seen[0].of_stop.message == 927,
           "and both learn that the job was cancelled");
    tap_is_int(world_count(world_path("calls"), "show job 7"), 2,
               "which rank 0 alone has asked for, before the save and at the end");
}

static void test_two_lost(void)
{
    world_new();
    world_job("7", 0);
    both_ranks(0, 0, true);
    tap_ok(seen[0].began == ACCEL_EUNAVAIL && seen[0].of_begin.message == 823,
           "rank 0 has lost the directory");
    tap_ok(seen[1].began == ACCEL_EPEER && !seen[1].save &&
               strstr(seen[1].of_begin.text, "rank 0 has failed: ACCEL_EUNAVAIL"),
           "rank 1 hears of it: %s", seen[1].of_begin.text);
}

int main(void)
{
    seen = mmap(NULL, 2 * sizeof(*seen), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED)
        tap_skip_all("no shared memory");
    world_begin();
    test_history();
    test_report();
    test_order();
    test_no_agreement();
    test_taken_over();
    for (size_t i = 0; i < sizeof(time_rows) / sizeof(*time_rows); i++)
        check_time(&time_rows[i]);
    test_own_pace();
    test_short_times();
    test_agreement_fails();
    test_two_saved();
    test_two_no_time();
    test_two_lost();
    world_end();
    return tap_done();
}
