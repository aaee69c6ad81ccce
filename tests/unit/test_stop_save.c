/* SPDX-License-Identifier: Apache-2.0
 *
 * Is there time for the last checkpoint? The rule as a table, and runs that are told to
 * stop with more and with less time than a save takes, one in flight or none.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preemption/preemption.h"
#include "state/save/save.h"
#include "checkpoint/accel_ckpt.h"
#include "preemption/requeue.h"
#include "tests/tap.h"
#include "tests/unit/disk_shim.h"
#include "tests/world/held_run.h"
#include "tests/world/loader_world.h"
#include "tests/world/open_world.h"
#include "tests/world/run_folder.h"

/* ---- the rule -------------------------------------------------------------------- */

#define NOW  1000000
#define LEAD 120
#define NONE -1000000.0

static const struct requeue_job_facts runs = { .running = true },
                                      graced = { .running = true,
                                                 .preempt_time = NOW - 2,
                                                 .end_time = NOW + 90 },
                                      killed = { .end_time = NOW - 1 },
                                      ends = { .running = true, .end_time = NOW + 50 };

static const struct {
    const char *what, *mode; /* NULL: the site is not known */
    long long grace, kill_wait;
    int signal;
    const struct requeue_job_facts *facts;
    double left; /* 5 s after the signal; NONE: no end is known */
    const char *of;
} rows[] = {
    { "Ctrl-C", "REQUEUE", 60, 30, SIGINT, NULL, NONE, NULL },
    { "SIGTERM outside of Slurm", NULL, 0, 0, SIGTERM, NULL, NONE, NULL },
    { "SIGTERM, unexplained", "REQUEUE", 60, 30, SIGTERM, NULL, 25, "KillWait" },
    { "the same, short grace", "REQUEUE", 20, 30, SIGTERM, NULL, 15, "GraceTime" },
    { "the same, no preemption", "OFF", 20, 30, SIGTERM, NULL, 25, "KillWait" },
    { "warned, unexplained", "OFF", 0, 30, SIGUSR1, NULL, 115, "lead_seconds" },
    { "the same, preemption", "CANCEL", 60, 30, SIGUSR1, NULL, 55, "GraceTime" },
    { "the same, no grace", "REQUEUE", 0, 30, SIGUSR1, NULL, 25, "KillWait" },
    { "warned, site not known", NULL, 0, 0, SIGUSR2, NULL, 115, "lead_seconds" },
    { "in its grace time", "REQUEUE", 60, 30, SIGTERM, &graced, 55, "GraceTime" },
    { "the same, warned", "REQUEUE", 60, 30, SIGUSR1, &graced, 55, "GraceTime" },
    { "long grace, near the end", "REQUEUE", 99, 3, SIGUSR1, &graced, 90,
      "the job's time" },
    { "preempted, no grace", "REQUEUE", 0, 30, SIGUSR1, &graced, 25, "KillWait" },
    { "preempted, site not known", NULL, 0, 0, SIGTERM, &graced, 90, "the job's time" },
    { "being killed", "REQUEUE", 60, 30, SIGTERM, &killed, 25, "KillWait" },
    { "warned, being killed", "OFF", 0, 30, SIGUSR1, &killed, 25, "KillWait" },
    { "srun was told to end", "OFF", 0, 30, SIGTERM, &ends, 25, "KillWait" },
    { "warned of the limit", "OFF", 0, 30, SIGUSR1, &ends, 50, "the job's time" },
    { "limit nearer than KillWait", "OFF", 0, 99, SIGTERM, &ends, 50,
      "the job's time" },
    { "warned by hand, no limit", "OFF", 0, 30, SIGUSR1, &runs, NONE, NULL },
};

static void test_rule(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        struct notice n = { .known = rows[i].mode,
                            .grace = rows[i].mode ? rows[i].grace : -1,
                            .kill_wait = rows[i].kill_wait };
        struct time_left t;

        snprintf(n.mode, sizeof(n.mode), "%s", rows[i].mode ? rows[i].mode : "");
        t = stop_time_left(&n, rows[i].signal, LEAD, 5, NOW, rows[i].facts);
        if (rows[i].of)
            tap_ok(t.of && t.seconds == rows[i].left && strcmp(t.of, rows[i].of) == 0,
                   "%s: %g s of %s (%g, %s)", rows[i].what, rows[i].left, rows[i].of,
                   t.seconds, t.of ? t.of : "none");
        else
            tap_ok(!t.of, "%s: no end is known", rows[i].what);
    }
}

static void test_pace(void)
{
    struct pace p = { 0 };

    tap_ok(pace_seconds(&p, 1e9) == 0, "nothing is known");
    pace_add(&p, SAVE_BACKGROUND, 1000, 4);
    tap_ok(pace_seconds(&p, 500) == 2, "from saves in the background alone: as they");
    pace_add(&p, SAVE_AT_ONCE, 1000, 1);
    tap_ok(pace_seconds(&p, 1000) == 1.5, "from one at once: half as much again");
    pace_add(&p, SAVE_AT_ONCE, 1000, 3);
    tap_ok(pace_seconds(&p, 1000) == 3, "the next one counts half");
    pace_add(&p, SAVE_AT_ONCE, 0, 9);
    pace_add(&p, SAVE_AT_ONCE, 1000, 0);
    tap_ok(pace_seconds(&p, 1000) == 3, "neither bytes nor time of nothing");
}

/* ---- runs ------------------------------------------------------------------------ */

static char root[] = "/tmp/accel-stop-save.XXXXXX";
static bool judge_opens; /* the first verdict opens the gate */
#define LATE "    async: true\n"
static accel_status_t last_write;
/* how often a writer was told that somebody waits, in all and before the last verdict */
static int hurries, judged_hurries;

static accel_status_t note_write(accel_ckpt_saving_t *g, accel_error_t *err)
{
    return last_write = __real_accel_ckpt_save_write(g, err);
}

__typeof__(accel_ckpt_save_hurry) __real_accel_ckpt_save_hurry,
    __wrap_accel_ckpt_save_hurry;
__typeof__(deadline_judge) __real_deadline_judge, __wrap_deadline_judge;

void __wrap_accel_ckpt_save_hurry(accel_ckpt_saving_t *g)
{
    hurries++;
    __real_accel_ckpt_save_hurry(g);
}

accel_status_t __wrap_deadline_judge(struct preemption *p, int sig,
                                     const struct stop_save *save,
                                     struct stop_verdict *v, accel_error_t *err)
{
    const accel_status_t st = __real_deadline_judge(p, sig, save, v, err);

    if (save->in_flight)
        judged_hurries = hurries;
    if (judge_opens)
        gate(false);
    return st;
}

/* The site kills after `kill_wait` seconds; a save takes `seconds`, with its margin. */
static void set_times(accel_t *run, int kill_wait, double seconds)
{
    run->preemption.notice =
        (struct notice){ .known = true, .mode = "OFF", .kill_wait = kill_wait };
    run->preemption.pace =
        (struct pace){ .at_once = seconds / 1.5 / (double)run->plan.checkpoint_bytes };
}

/* Complete checkpoints; *newest_out: the step of the newest, -1. */
static size_t checkpoints(int64_t *newest_out)
{
    accel_ckpt_info_t *list = NULL;
    char dir[sizeof(out_dir) + 20];
    size_t n = 0, complete = 0;

    *newest_out = -1;
    snprintf(dir, sizeof(dir), "%s/checkpoints", out_dir);
    accel_ckpt_list(dir, &list, &n, NULL);
    for (size_t i = 0; i < n; i++) {
        complete += list[i].complete != 0;
        if (list[i].complete && list[i].step > *newest_out)
            *newest_out = list[i].step;
    }
    free(list);
    return complete;
}

static bool has_said(const struct boot *b, const char *text)
{
    return b->rank != 0 || strstr(said, text);
}

/* Does this file of the output directory have a line with this text? */
static bool has_line(const char *file, const char *text)
{
    char path[sizeof(out_dir) + 40], line[256];
    bool found = false;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", out_dir, file);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f))
        found = found || strstr(line, text);
    if (f)
        fclose(f);
    return found;
}

static bool in_history(const char *text)
{
    return has_line("checkpoints/history", text);
}

/* In a job; what scontrol says of it. */
static int in_job(const char *answer)
{
    char path[sizeof(root) + 20];
    FILE *f;

    snprintf(path, sizeof(path), "%s/scontrol", root);
    f = fopen(path, "w");
    if (!f || fprintf(f, "#!/bin/sh\necho '%s'\n", answer) < 0 || fclose(f) ||
        chmod(path, 0755))
        return 1;
    return setenv("PATH", root, 1) || setenv("SLURM_JOB_ID", "1", 1);
}

/* The time is over before the second try. */
static accel_t *failing;

static int full(const char *call, const char *name, int fd)
{
    (void)fd;
    if (strcmp(call, "renameat2") != 0 || strncmp(name, "step_", 5) != 0)
        return 0;
    set_times(failing, 60, 90);
    return ENOSPC;
}

/* A run that is told to stop, by one rank, in the step after `steps`. The newest
 * checkpoint is that of step 2 or step 3; one is kept. */
struct stop_case {
    const char *name, *keys; /* lines of accel.checkpoint */
    const char *job;         /* what scontrol says of it; NULL: it is none */
    int steps, signal;
    int kill_wait, grace; /* of the site, in seconds; grace 0: it preempts nobody */
    double seconds;       /* that a save takes, with its margin; 0: not known */
    bool by_first;        /* rank 0 gets the signal, else the last rank */
    bool late;            /* the step goes on for a while after the signal */
    bool held;            /* the save in flight ends when the time is judged */
    bool full;            /* one try of a save fails, and takes all the time */
    accel_status_t status;
    enum message message; /* 0: any */
    size_t complete;      /* checkpoints there afterwards */
    int64_t newest;
    /* in the error; in the log, and not in it; in the history. NULL: any */
    const char *tells[2], *says[2], *unsaid, *noted;
};

#define TOLD_AT_2 .steps = 2, .signal = SIGTERM, .status = ACCEL_ERESUME

static const struct stop_case cases[] = {
    /* step 2 is not deleted */
    { "fits", "", TOLD_AT_2, .kill_wait = 60, .seconds = 10, .message = A0907,
      .complete = 2, .newest = 3, .tells = { "state of step 3 is saved" },
      .says = { "saving step 3 (about 10.0 s; ", " s are left of KillWait)" },
      .noted = "stop step=3 signal=SIGTERM" },
    { "declines", "", TOLD_AT_2, .kill_wait = 60, .seconds = 90, .message = A0926,
      .complete = 1, .newest = 2,
      .tells = { "step 3 is not saved: a checkpoint takes about 90.0 s, and ",
                 "; the checkpoint of step 2 is kept" },
      .says = { "step 3 is not saved: a checkpoint takes about 90.0 s" },
      .unsaid = "saving step 3", .noted = "stop step=3 saved=2 signal=SIGTERM" },
    /* the time runs from the first signal of any rank */
    { "late", "", TOLD_AT_2, .kill_wait = 30, .seconds = 29.5, .late = true,
      .complete = 1, .newest = 2 },
    { "cancelled", "", .job = "JobId=1 JobState=CANCELLED BatchFlag=1", .steps = 2,
      .signal = SIGTERM, .kill_wait = 60, .seconds = 90, .status = ACCEL_ESTOPPED,
      .message = A0927, .complete = 1, .newest = 2,
      .tells = { "; the checkpoint of step 2 is kept" } },
    /* KillWait is too short, but it is not what counts */
    { "asks", "", TOLD_AT_2,
      .job = "JobId=1 JobState=RUNNING BatchFlag=0 PreemptTime=2026-11-21T06:39:01",
      .kill_wait = 5, .grace = 60, .seconds = 10, .complete = 2, .newest = 3,
      .says = { " s are left of GraceTime)" } },
    /* nothing was measured: there is nothing that speaks against it */
    { "unknown", "", TOLD_AT_2, .complete = 2, .newest = 3,
      .says = { "saving step 3\n" } },
    /* Ctrl-C has all the time */
    { "interrupted", "", .steps = 1, .signal = SIGINT, .by_first = true, .kill_wait = 1,
      .seconds = 1e6, .status = ACCEL_ESTOPPED, .complete = 1, .newest = 2,
      .says = { "saving step 2\n" } },
    /* the save in flight is finished, hurried as soon as it is known, and its time noted
     * apart; a new one is declined */
    { "finishes", LATE, TOLD_AT_2, .kill_wait = 60, .seconds = 90, .held = true,
      .complete = 1, .newest = 2, .tells = { "the checkpoint of step 2 is kept" },
      .says = { "received SIGTERM: finishing the checkpoint of step 2",
                "step 3 is not saved" },
      .noted = " background\n" },
    { "runs out", "", TOLD_AT_2, .by_first = true, .kill_wait = 60, .seconds = 10,
      .full = true, .complete = 1, .newest = 2,
      .says = { "attempt 1 of 4", "step 3 is not saved" } },
};

static int stops(struct boot *b, void *arg)
{
    const struct stop_case *c = arg;
    const int told = c->by_first ? 0 : b->size - 1;
    struct number_run k;
    int64_t newest;

    EXPECT(!c->job || b->rank != 0 || !in_job(c->job), "a job");
    gate(c->held);
    judge_opens = c->held;
    EXPECT(!begin(&k, 100) && !steps(&k, c->steps), "steps: %s", k.err.text);
    set_times(k.run, c->kill_wait, c->seconds);
    if (c->grace) {
        k.run->preemption.notice.grace = c->grace;
        snprintf(k.run->preemption.notice.mode, sizeof(k.run->preemption.notice.mode),
                 "REQUEUE");
    }
    failing = k.run;
    disk_hook = c->full ? full : NULL;
    if (b->rank == told)
        raise(c->signal);
    if (b->rank == told && c->late)
        usleep(600000);
    EXPECT(c->signal != SIGINT ||
               (!number_begin(&k) && k.run->preemption.announced == (b->rank == 0)),
           "rank 0 answers Ctrl-C in the next call, not at the end of the step");
    EXPECT(step(&k) == c->status, "stopped: %s", k.err.text);
    disk_hook = NULL;
    EXPECT(checkpoints(&newest) == c->complete && newest == c->newest, "saved: %s",
           said);
    EXPECT(!c->message || message_of(&k.err) == c->message, "%s", k.err.text);
    for (int i = 0; i < 2; i++) {
        EXPECT(!c->tells[i] || tells(b, &k.err, c->tells[i]), "%s", k.err.text);
        EXPECT(!c->says[i] || has_said(b, c->says[i]), "said: %s", said);
    }
    EXPECT(!c->unsaid || !strstr(said, c->unsaid), "said: %s", said);
    EXPECT(!c->noted || in_history(c->noted), "the history has %s", c->noted);
    EXPECT(!c->held || judged_hurries > 0, "hurried");
    accel_close(k.run, NULL);
    judge_opens = false;
    return 0;
}

/* Nor does the thread of the save in flight delete older ones. */
static int keeps(struct boot *b, void *arg)
{
    struct number_run k;
    int64_t newest;

    (void)arg;
    EXPECT(!begin(&k, 100) && !steps(&k, 2), "two steps: %s", k.err.text);
    EXPECT(!save_finish(k.run, &k.err), "step 2 is there: %s", k.err.text);
    gate(true);
    judge_opens = true;
    EXPECT(!steps(&k, 2), "two more: %s", k.err.text);
    set_times(k.run, 60, 90);
    if (b->rank == 0)
        raise(SIGTERM);
    EXPECT(step(&k) == ACCEL_ERESUME, "stopped: %s", k.err.text);
    accel_close(k.run, NULL);
    EXPECT(checkpoints(&newest) == 2 && newest == 4, "step 4, and step 2 (keep: 1)");
    judge_opens = false;
    return 0;
}

/* One rank does not come to its end in time: all of them give it up. */
static int gives_up(struct boot *b, void *arg)
{
    struct number_run k;
    int64_t newest;

    (void)arg;
    gate(b->rank == b->size - 1);
    EXPECT(!begin(&k, 100) && !steps(&k, 2), "two steps: %s", k.err.text);
    set_times(k.run, 1, 0.001);
    if (b->rank == b->size - 1)
        raise(SIGTERM);
    EXPECT(step(&k) == ACCEL_ERESUME, "stopped: %s", k.err.text);
    EXPECT(checkpoints(&newest) == 0, "nothing is visible");
    EXPECT(has_said(b, "the checkpoint of step 2 was not written by the end of "
                       "KillWait"),
           "and said: %s", said);
    EXPECT(message_of(&k.err) == A0926 &&
               tells(b, &k.err, "there is no older checkpoint"),
           "%s", k.err.text);
    EXPECT(in_history("stop step=3 saved=-1 signal=SIGTERM"), "the history has it");
    last_write = ACCEL_OK;
    gate(false);
    accel_close(k.run, NULL);
    /* of more ranks the last one has nothing to write */
    EXPECT(b->size > 1 || last_write == ACCEL_EIO, "its writer leaves without writing");
    return 0;
}

/* What a life has measured is known to the next one. */
static void unlink_report(const char *reports)
{
    char path[sizeof(out_dir) + 32];

    snprintf(path, sizeof(path), "%s/job", reports);
    unlink(path);
}

static int measures(struct boot *b, void *arg)
{
    char reports[sizeof(out_dir) + 16];
    struct number_run k;
    int64_t newest;

    (void)arg;
    snprintf(reports, sizeof(reports), "%s/reports", out_dir);
    setenv("ACCEL_STEP_REPORTS", reports, 1);
    EXPECT(!begin(&k, 100) && !steps(&k, 6), "six steps: %s", k.err.text);
    EXPECT(k.run->preemption.pace.at_once > 0, "a save is measured");
    accel_close(k.run, NULL);
    EXPECT(b->rank != 0 || (checkpoints(&newest) == 2 && newest == 6),
           "of three two are kept (keep: 1, but two always stay)");
    EXPECT(b->rank != 0 ||
               (in_history("save step=2 seconds=") && in_history(" bytes=")),
           "and noted");
    EXPECT(b->rank != 0 || has_line("reports/job", "saved 6\n"), "srun is told");
    if (b->rank == 0)
        unlink_report(reports);
    EXPECT(!begin(&k, 100), "resumed: %s", k.err.text);
    EXPECT(b->rank != 0 || has_line("reports/job", "saved 6\n"),
           "also of what the run resumes from");
    accel_close(k.run, NULL);
    unsetenv("ACCEL_STEP_REPORTS");
    return 0;
}

static int knows(struct boot *b, void *arg)
{
    struct number_run k;

    (void)arg;
    EXPECT(!begin(&k, 100), "prepared: %s", k.err.text);
    EXPECT((k.run->preemption.pace.at_once > 0) == (b->rank == 0) &&
               k.run->preemption.pace.background == 0,
           "the next life knows it");
    accel_close(k.run, NULL);
    return 0;
}

/* A save in the history that took 4 s, by what else its line has. An older one lacks the
 * bytes: a checkpoint takes as long as then. */
static const struct known_case {
    const char *name, *line;
    double bytes; /* how long these take; 0: a checkpoint */
    double seconds;
} known[] = {
    { "knows an old history", "", 0, 6 },
    { "knows the background", " bytes=1000 background", 500, 2 },
};

static int knows_of(struct boot *b, void *arg)
{
    const struct known_case *c = arg;
    struct number_run k;
    char path[sizeof(out_dir) + 40], line[160];
    double seconds;

    snprintf(path, sizeof(path), "%s/checkpoints/history", out_dir);
    snprintf(line, sizeof(line), "T job=0 of=0 restart=0 save step=2 seconds=4.000%s\n",
             c->line);
    if (b->rank == 0)
        run_folder_write(path, line);
    EXPECT(!begin(&k, 100), "prepared: %s", k.err.text);
    seconds =
        pace_seconds(&k.run->preemption.pace,
                     c->bytes > 0 ? c->bytes : (double)k.run->plan.checkpoint_bytes);
    EXPECT(b->rank != 0 || fabs(seconds - c->seconds) < 0.001, "%g s", seconds);
    accel_close(k.run, NULL);
    return 0;
}

static void run_case(int world, const char *name, const char *more,
                     int (*fn)(struct boot *, void *), const void *arg)
{
    char keys[512];

    if (more) {
        snprintf(out_dir, sizeof(out_dir), "%s/%s-%d", root, name, world);
        snprintf(keys, sizeof(keys), "    keep: 1\n%s",
                 more[0] ? more : "    async: false\n");
        held_config(world, keys);
    }
    tap_is_int(open_world(world, 1, fn, (void *)arg, HANG_S), 0, "%s on %d ranks", name,
               world);
}

int main(void)
{
    test_rule();
    test_pace();
    held_write = note_write;
    unsetenv("SLURM_JOB_ID");
    signal(SIGINT, SIG_DFL); /* a shell's background job ignores it */
    run_folder_new(root);
    snprintf(config, sizeof(config), "%s/a.yaml", root);
    for (int world = 1 + TAP_SANITIZED; world <= 3 - TAP_SANITIZED; world++) {
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++)
            run_case(world, cases[i].name, cases[i].keys, stops, &cases[i]);
        run_case(world, "keeps", LATE, keeps, NULL);
        run_case(world, "gives up", LATE, gives_up, NULL);
        run_case(world, "measures", "", measures, NULL);
        run_case(world, "knows", NULL, knows, NULL);
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(known); i++)
            run_case(world, known[i].name, NULL, knows_of, &known[i]);
    }
    run_folder_remove(root);
    return tap_done();
}
