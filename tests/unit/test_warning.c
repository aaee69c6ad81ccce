/* SPDX-License-Identifier: Apache-2.0
 *
 * The warning signal before and after a program can handle it: what is ignored by
 * accel's own doing is handled, what others ignore or handle stays, and a warning that
 * came too early is made up for. And why a life stopped, as its history tells the next
 * one.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "preemption/preemption.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"

static struct preemption_rules cfg = { .enabled = true,
                                       .warning = SIGUSR1,
                                       .max_restarts = 100 };

static volatile sig_atomic_t came;

static void own_handler(int sig)
{
    came = sig;
}

static void (*now_of(int sig))(int)
{
    struct sigaction a;

    sigaction(sig, NULL, &a);
    return a.sa_handler;
}

static void test_install(void)
{
    static const struct {
        const char *what, *variable;
        void (*before)(int);
        bool taken;
    } rows[] = {
        { "the default", NULL, SIG_DFL, true },
        { "the default, asked for", "USR1@0", SIG_DFL, true },
        { "ignored by accel", "USR1@0", SIG_IGN, true },
        { "ignored by accel, due later", "USR1@99999999999", SIG_IGN, true },
        { "ignored by somebody else", NULL, SIG_IGN, false },
        { "another signal was asked for", "USR2@0", SIG_IGN, false },
        { "a text without a time", "USR1@", SIG_IGN, false },
        { "a text that goes on", "USR1@5x", SIG_IGN, false },
        { "a time that is no time", "USR1@99999999999999999999", SIG_IGN, false },
        { "a time before all times", "USR1@-5", SIG_IGN, false },
        { "a signal that accel never asks for", "KILL@0", SIG_IGN, false },
        { "nothing", "", SIG_IGN, false },
        { "a handler of the program's", "USR1@0", own_handler, false },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        if (rows[i].variable)
            setenv("ACCEL_WARNING", rows[i].variable, 1);
        else
            unsetenv("ACCEL_WARNING");
        signal(SIGUSR1, rows[i].before);
        signals_install(&cfg);
        bool taken = now_of(SIGUSR1) != rows[i].before;
        tap_ok(taken == rows[i].taken, "%s: %s", rows[i].what,
               rows[i].taken ? "taken over" : "left alone");
        tap_is_int(signals_pending(), 0, "%s: no signal is made up", rows[i].what);
        signals_restore();
        tap_ok(now_of(SIGUSR1) == rows[i].before, "%s: as before at the end",
               rows[i].what);
    }
    signal(SIGTERM, SIG_IGN);
    setenv("ACCEL_WARNING", "USR1@0", 1);
    signals_install(&cfg);
    tap_ok(now_of(SIGTERM) == SIG_IGN, "SIGTERM that is ignored stays so");
    signals_restore();
    signal(SIGTERM, SIG_DFL);
}

/* A timer of a time that has passed goes off at once, one in the future does not. */
static void due_at(long long when, void (*before)(int))
{
    char text[40];

    snprintf(text, sizeof(text), "USR1@%lld", when);
    setenv("ACCEL_WARNING", text, 1);
    signal(SIGUSR1, before);
    signals_install(&cfg);
}

static void test_due(void)
{
    long long now = (long long)time(NULL);

    due_at(now - 1, SIG_IGN);
    for (int i = 0; i < 1000 && !signals_pending(); i++)
        usleep(10000);
    tap_is_int(signals_pending(), SIGUSR1, "a warning that was due comes at once");
    signals_restore();
    due_at(now + 40, SIG_IGN);
    tap_is_int(signals_pending(), 0, "one that is due soon has its time");
    signals_restore();
    due_at(now + 1, SIG_IGN);
    signals_restore();
    signal(SIGUSR1, own_handler);
    while (time(NULL) < now + 3)
        usleep(50000);
    tap_is_int(came, 0, "and is called off with the handler");
    cfg.enabled = false;
    due_at(now - 1, SIG_IGN);
    tap_ok(now_of(SIGUSR1) == SIG_IGN, "preemption off: it stays ignored");
    signals_restore();
    cfg.enabled = true;
    unsetenv("ACCEL_WARNING");
    signal(SIGUSR1, SIG_DFL);
}

/* ---- history --------------------------------------------------------------------- */

static char said[1024];

static void keep(void *user, accel_log_level_t level, const char *line)
{
    (void)user;
    (void)level;
    snprintf(said, sizeof(said), "%s", line);
}

static char dir[] = "/tmp/accel-history.XXXXXX";

static const struct accel_log log_kept = { .fn = keep, .level = ACCEL_LOG_INFO };

/* A life that finds this history. */
static void life_after(struct preemption *run, int restart, const char *text)
{
    char path[64];
    accel_error_t err;

    snprintf(path, sizeof(path), "%s/history", dir);
    run_folder_write(path, text);
    memset(run, 0, sizeof(*run));
    run->rules = cfg;
    run->log = &log_kept;
    run->incarnation =
        (struct incarnation){ .job = 5, .first_job = 5, .restart = restart };
    run->directory = dir;
    said[0] = '\0';
    if (history_start(run, &err) == ACCEL_OK)
        history_say(run);
}

static void test_history(void)
{
    static const struct {
        const char *reason, *want;
    } rows[] = {
        { "preempted", "preempted" },
        { "near the time limit", "near the time limit" },
        { "time-limit", "time-limit" },
        { "\033[31mpreempted", "the last run ended without a record" },
        { "preempted\033[0m", "the last run ended without a record" },
        { "", "the last run ended without a record" },
        { "a reason that is by far too long for its place",
          "the last run ended without a record" },
    };
    static struct preemption run;
    char text[512], want[256];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        snprintf(text, sizeof(text),
                 "T job=5 of=5 restart=0 start step=0\n"
                 "T job=5 of=5 restart=0 stop step=9 signal=SIGUSR1 seconds=0.500 "
                 "reason=%s\n",
                 rows[i].reason);
        life_after(&run, 1, text);
        snprintf(want, sizeof(want), "restart 1 of at most 100 of job 5 (%s)",
                 rows[i].want);
        tap_ok(strstr(said, want) != NULL, "reason %zu: %s", i, rows[i].want);
        if (!strstr(said, want))
            tap_diag("%s", said);
    }
}

/* What a next life knows of how long saves take: of every kind of line,
 * alone and behind others. */
struct times {
    double last, at_once, background, local, copy; /* the others: seconds a byte */
};

static struct times times_of(const char *text)
{
    static struct preemption run;

    life_after(&run, 0, text);
    return (struct times){ run.history.save_seconds, run.pace.at_once,
                           run.pace.background, run.pace.local, run.pace.copy };
}

static void test_times(void)
{
    static const struct {
        const char *text;
        struct times want;
    } rows[] = {
        { "", { .last = 0 } },
        { "save step=1 seconds=8.000 bytes=4", { 8, 2, 0, 0, 0 } },
        { "save step=1 seconds=8.000 bytes=4 background", { 8, 0, 2, 0, 0 } },
        { "save step=1 seconds=8.000 bytes=4 local", { 0, 0, 0, 2, 0 } },
        { "save step=1 seconds=8.000 bytes=4 copy", { 0, 0, 0, 0, 2 } },
        { "save step=1 seconds=8.000", { 8, 0, 0, 0, 0 } },
        { "save step=1 seconds=-8.000 bytes=4", { .last = 0 } },
        { "save step=1 seconds=8.000 bytes=0", { 8, 0, 0, 0, 0 } },
        { "save step=1 bytes=4", { .last = 0 } },
        { "stop step=1 signal=SIGTERM seconds=8.000 reason=preempted",
          { 8, 0, 0, 0, 0 } },
        { "start step=1", { .last = 0 } },
        { "what nobody writes", { .last = 0 } },
    };
    static const struct times first = { 6, 3, 5, 7, 9 };
    static const char before[] =
        "T job=4 of=4 restart=0 save step=1 seconds=6 bytes=2\n"
        "T job=4 of=4 restart=0 save step=2 seconds=9 bytes=1 "
        "copy\n"
        "T job=4 of=4 restart=0 save step=2 seconds=5 bytes=1 "
        "background\n"
        "T job=4 of=4 restart=0 save step=2 seconds=7 bytes=1 "
        "local\n"
        "T job=4 of=4 restart=0 save step=3 seconds=6\n";
    char text[1024];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        for (int others = 0; others < 2; others++) {
            const double *want = (const double *)&rows[i].want,
                         *old = (const double *)&first;
            const char *word[] = { "last", "at once", "background", "local", "copy" };
            struct times t;

            snprintf(text, sizeof(text), "%sT job=5 of=5 restart=0 %s\n",
                     others ? before : "", rows[i].text);
            t = times_of(text);
            for (int k = 0; k < 5; k++) {
                /* the last one counts, and of paces the mean with what was known */
                const double mean = k == 0 ? want[k] : (want[k] + old[k]) / 2;

                tap_is_close(((const double *)&t)[k],
                             !others       ? want[k]
                             : want[k] > 0 ? mean
                                           : old[k],
                             1e-12, "'%s'%s: %s", rows[i].text,
                             others ? " behind others" : "", word[k]);
            }
        }
}

int main(void)
{
    test_install();
    test_due();
    run_folder_new(dir);
    test_history();
    test_times();
    run_folder_remove(dir);
    return tap_done();
}
