/* SPDX-License-Identifier: Apache-2.0
 *
 * libacceljob: how an attempt begins, or does not: its arguments, the directory and its
 * lock, $ACCEL_PREEMPTION.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accel_job.h"
#include "tests/tap.h"
#include "tests/unit/attempt_world.h"

static accel_error_t err;

/* ---- arguments ------------------------------------------------------------------- */

static void test_arguments(void)
{
    static const struct {
        const char *what, *directory;
        int rank, size;
    } bad[] = {
        { "no directory", NULL, 0, 1 },    { "an empty directory", "", 0, 1 },
        { "a negative rank", "x", -1, 1 }, { "a rank as large as the size", "x", 2, 2 },
        { "no ranks at all", "x", 0, 0 },
    };
    accel_attempt_t *first, *second = NULL;

    world_new();
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        memset(&err, 0, sizeof(err));
        tap_ok(accel_attempt_open(bad[i].directory, bad[i].rank, bad[i].size, 0, NULL,
                                  NULL, &second, &err) == ACCEL_EINVAL &&
                   err.message == 901 && !second,
               "%s is refused: %s", bad[i].what, err.text);
    }
    tap_is_int(accel_attempt_open("x", 0, 1, 0, NULL, NULL, NULL, &err), ACCEL_EINVAL,
               "so is no place for the result");
    accel_attempt_close(NULL);
    first = world_open(0, 1);
    second = world_try(0, 1, &err);
    tap_ok(!second && err.code == ACCEL_EINVAL &&
               strstr(err.text, "an attempt already"),
           "a second attempt of the process is refused: %s", err.text);
    tap_is_int(world_count(world_ckpt("history"), " start "), 1,
               "and leaves no trace in the history");
    accel_attempt_close(first);
    second = world_try(0, 1, &err);
    tap_ok(second != NULL, "after a close there may be another one");
    accel_attempt_close(second);
}

/* ---- the directory --------------------------------------------------------------- */

static accel_status_t open_at(const char *directory, int rank)
{
    accel_attempt_t *attempt = NULL;
    accel_status_t st;

    memset(&err, 0, sizeof(err));
    st = accel_attempt_open(directory, rank, 2, 0, NULL, NULL, &attempt, &err);
    accel_attempt_close(attempt);
    return st;
}

static void test_too_long(void)
{
    char path[2100];

    memset(path, 'a', sizeof(path));
    for (size_t i = 0; i < sizeof(path); i += 100)
        path[i] = '/';
    path[2048] = '\0';
    tap_ok(open_at(path, 1) == ACCEL_ECREATE && err.message == 803 &&
               strstr(err.text, "longer than 2047 bytes"),
           "a path of 2048 bytes is refused: %s", err.text);
    path[2047] = '\0';
    tap_is_int(open_at(path, 1), ACCEL_OK, "one of 2047 is not");
    tap_is_int(open_at(path + 1, 1), ACCEL_ECREATE,
               "with the current directory in front it is too long again");
}

/* This process, no longer root, where everybody may read and nobody write. */
static int open_as_another(void)
{
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        return 9;
    if (open_at(world_path("closed/ckpt"), 0) != ACCEL_ECREATE || err.message != 803 ||
        !strstr(err.text, "closed/ckpt: Permission denied"))
        return 1;
    if (open_at(world_path("closed"), 0) != ACCEL_ECREATE || err.message != 821 ||
        !strstr(err.text, "cannot open the checkpoint lock: Permission denied"))
        return 2;
    return open_at(world_path("closed/ckpt"), 1) == ACCEL_OK ? 0 : 3;
}

/* Runs `f` in a child: its exit code, or the signal that ended it as a negative one. */
static int child(int (*f)(void))
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        alarm(HANG_S);
        _exit(f());
    }
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void test_directory(void)
{
    char here[PATH_MAX];

    world_new();
    tap_is_int(open_at(world_path("a/b//c/"), 1), ACCEL_OK, "a rank other than 0");
    tap_ok(!world_has(world_path("a")), "makes no directory");
    tap_is_int(open_at(world_path("a/b//c/"), 0), ACCEL_OK, "rank 0");
    tap_ok(world_has(world_path("a/b/c/history")), "makes it and those above it");
    tap_ok(getcwd(here, sizeof(here)) && chdir(world_path("a")) == 0 &&
               open_at("relative/d", 0) == ACCEL_OK && chdir(here) == 0 &&
               world_has(world_path("a/relative/d/history")),
           "a relative path counts from the current directory");
    world_write(world_path("file"), "");
    tap_ok(open_at(world_path("file/b/c"), 0) == ACCEL_ECREATE && err.message == 803 &&
               strstr(err.text, "file/b: Not a directory") &&
               strstr(err.hint, "parent directories"),
           "a file in the way: %s", err.text);
    tap_ok(open_at(world_path("file"), 0) != ACCEL_OK && err.message == 821,
           "a file in its place: %s", err.text);
    test_too_long();
    mkdir(world_path("closed"), 0555);
    chmod(world_path(""), 0755);
    tap_is_int(child(open_as_another), 0, "one that may not be written to");
}

/* What cannot be written: the lock ends the attempt, the history costs its counters. */
static void test_full(void)
{
    accel_attempt_t *attempt;

    world_new();
    world_write_error = ENOSPC;
    attempt = world_try(0, 1, &err);
    world_write_error = 0;
    tap_ok(!attempt && err.code == ACCEL_EIO && err.message == 920 &&
               strstr(err.text, "cannot write the checkpoint lock: No space left"),
           "a full disk: %s", err.text);
    mkdir(world_ckpt("history"), 0755);
    attempt = world_open(0, 1);
    tap_ok(strstr(world_said, "restarts are not counted"),
           "a history that cannot be written costs a warning: %s", world_said);
    tap_is_int(world_save(attempt, 1, 2), ACCEL_OK, "and no save");
    tap_ok(!strstr(strstr(world_said, "not counted") + 1, "not counted"), "said once");
    accel_attempt_close(attempt);
}

static int hold_lock(void)
{
    accel_attempt_t *attempt = world_try(0, 1, &err);

    if (attempt)
        return 1;
    return err.code == ACCEL_EUNAVAIL && err.message == 822 ? 0 : 2;
}

static void test_lock(void)
{
    accel_attempt_t *attempt;
    char line[256];

    world_new();
    attempt = world_open(0, 1);
    snprintf(line, sizeof(line), "another run is using this directory: %s",
             world_text(world_ckpt(".lock")));
    accel_attempt_close(attempt);
    /* The same file, locked by a descriptor that is no attempt's. */
    FILE *f = fopen(world_ckpt(".lock"), "r");
    flock(fileno(f), LOCK_EX);
    attempt = world_try(0, 1, &err);
    tap_ok(!attempt && err.code == ACCEL_EUNAVAIL && err.message == 822,
           "a directory that another run has is refused");
    tap_is_str(err.text, line, "and its line is named");
    tap_is_int(child(hold_lock), 0, "in another process, too");
    tap_is_int(world_count(world_ckpt("history"), " start "), 1,
               "the history knows nothing of them");
    tap_is_int(open_at(world_ckpt(""), 1), ACCEL_OK, "other ranks need no lock");
    fclose(f);
    attempt = world_try(0, 1, &err);
    tap_ok(attempt != NULL, "it is free once that run has ended");
    accel_attempt_close(attempt);
}

/* ---- $ACCEL_PREEMPTION ----------------------------------------------------------- */

#define HUGE_NUMBER "99999999999999999999"

static const struct rules_row {
    const char *text;
    int warning, lead, max;
} rules_rows[] = {
    { NULL, SIGUSR1, 120, 100 },
    { "", SIGUSR1, 120, 100 },
    { "signal=USR1 lead_seconds=120 max_restarts=100 requeue=true", SIGUSR1, 120, 100 },
    { "signal=USR2 lead_seconds=7 max_restarts=3 requeue=false", SIGUSR2, 7, 3 },
    { "max_restarts=0 lead_seconds=1 signal=USR2", SIGUSR2, 1, 0 },
    { "enabled=true lead_seconds=60", SIGUSR1, 60, 100 },
    { "enabled=falsely", SIGUSR1, 120, 100 },
    { "enabled=", SIGUSR1, 120, 100 },
    { "disabled=false", SIGUSR1, 120, 100 },
    { "not_enabled=false enabled=true", SIGUSR1, 120, 100 },
    { "signal=USR3 lead_seconds=x max_restarts=-1", SIGUSR1, 120, 100 },
    { "signal=USR22 lead_seconds=5s max_restarts=2.5", SIGUSR1, 120, 100 },
    { "signal= lead_seconds= max_restarts=", SIGUSR1, 120, 100 },
    { "lead_seconds= 5 max_restarts=+5", SIGUSR1, 120, 100 },
    { "xlead_seconds=5 lead_seconds=6", SIGUSR1, 6, 100 },
    { "lead_seconds=" HUGE_NUMBER " max_restarts=" HUGE_NUMBER, SIGUSR1, 120, 100 },
    { "lead_seconds=65536 max_restarts=1000001", SIGUSR1, 120, 100 },
    { "lead_seconds=65535 max_restarts=99", SIGUSR1, 65535, 99 },
    { "\377\001=%s lead_seconds", SIGUSR1, 120, 100 },
};

/* The limit of restarts, as the refusal of the 102nd attempt of a job names it. */
static int refused_at(void)
{
    char text[16384] = "";
    accel_attempt_t *attempt;
    const char *at;
    size_t used = 0;

    mkdir(world_ckpt(""), 0755);
    for (int i = 0; i <= 100; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 "T job=7 of=7 restart=%d start process=1\n", i);
    world_write(world_ckpt("history"), text);
    world_job("7", 101);
    attempt = world_try(0, 1, &err);
    accel_attempt_close(attempt);
    at = strstr(err.text, "max_restarts is ");
    return at && err.message == 921 ? atoi(at + strlen("max_restarts is ")) : -1;
}

static void test_rules(void)
{
    for (size_t i = 0; i < sizeof(rules_rows) / sizeof(*rules_rows); i++) {
        const struct rules_row *r = &rules_rows[i];
        const int other = r->warning == SIGUSR1 ? SIGUSR2 : SIGUSR1;
        const char *text = r->text ? r->text : "(not set)";
        accel_attempt_t *attempt;
        struct sigaction now;

        world_new();
        if (r->text)
            setenv("ACCEL_PREEMPTION", r->text, 1);
        attempt = world_open(0, 1);
        sigaction(other, NULL, &now);
        raise(r->warning);
        tap_ok(accel_attempt_signal(attempt) == r->warning && now.sa_handler == SIG_DFL,
               "'%s': the warning is SIG%s", text, sigabbrev_np(r->warning));
        tap_is_int((int)accel_attempt_seconds_left(attempt), r->lead,
                   "'%s': lead_seconds", text);
        accel_attempt_close(attempt);
        tap_is_int(refused_at(), r->max, "'%s': max_restarts", text);
    }
}

static void test_switched_off(void)
{
    static const int all[] = { SIGTERM, SIGUSR1, SIGUSR2, SIGINT };
    accel_attempt_t *attempt;
    struct sigaction now;

    world_new();
    setenv("ACCEL_PREEMPTION", "enabled=false", 1);
    attempt = world_open(0, 1);
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        tap_ok(sigaction(all[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL,
               "enabled=false: SIG%s is left alone", sigabbrev_np(all[i]));
    tap_ok(accel_attempt_vote(attempt) == 0 &&
               isinf(accel_attempt_seconds_left(attempt)),
           "and nothing asks for a stop");
    accel_attempt_close(attempt);
    tap_is_int(refused_at(), -1, "no restart is too many");
    tap_ok(err.code == ACCEL_OK, "nor is one without a save: %s", err.text);
}

int main(void)
{
    world_begin();
    test_arguments();
    test_directory();
    test_full();
    test_lock();
    test_rules();
    test_switched_off();
    world_end();
    return tap_done();
}
