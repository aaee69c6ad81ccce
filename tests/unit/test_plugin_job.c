/* SPDX-License-Identifier: Apache-2.0
 *
 * What the plugin asks the controller about its job: preemption_grace.c (grace time,
 * warning) before the tasks start, and requeued.c (a job that RequeueExit queued once
 * more) at the end.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env_names.h"
#include "srun_plugin/step/plugin_step.h"
#include "srun_plugin/restart/restart.h"
#include "tests/tap.h"
#include "tests/unit/fake_plugin.h"

#define JOB 12u

static void test_lists(void)
{
    static const struct {
        const char *list;
        int code;
        bool want;
    } rows[] = {
        { NULL, 85, false },     { "", 85, false },         { "85", 85, true },
        { "84", 85, false },     { "86", 85, false },       { "1,85", 85, true },
        { "85,1", 85, true },    { "1-3,80-90", 85, true }, { "85-90", 85, true },
        { "80-85", 85, true },   { "86-90", 85, false },    { "1-3", 85, false },
        { "(null)", 85, false }, { "8;85", 85, false },     { "185", 85, false },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        tap_ok(requeued_lists(rows[i].list, rows[i].code) == rows[i].want,
               "%d in RequeueExit=%s: %d", rows[i].code,
               rows[i].list ? rows[i].list : "-", rows[i].want);
}

static void test_drop(void)
{
    static const struct {
        const char *what, *exits, *hold;
        int code;
        uint32_t states[4], restarts, killed;
        size_t looks;     /* further than the first */
        const char *said; /* "": Slurm does not refuse */
    } rows[] = {
        { "queued again", "85", NULL, 85, { JOB_PENDING, JOB_PENDING }, 0, JOB, 1, "" },
        { "held", NULL, "85", 85, { JOB_PENDING, JOB_PENDING }, 0, JOB, 1, "" },
        { "queued again once its nodes are free",
          "85",
          NULL,
          85,
          { JOB_FAILED | JOB_COMPLETING, JOB_FAILED | JOB_COMPLETING,
            JOB_PENDING | JOB_COMPLETING, JOB_RUNNING },
          0,
          JOB,
          3,
          "" },
        { "it runs again already", "85", NULL, 85, { JOB_RUNNING }, 1, JOB, 1, "" },
        { "it never stopped", "85", NULL, 85, { JOB_RUNNING }, 0, 0, 1, "" },
        { "Slurm did not", "85", NULL, 85, { JOB_FAILED }, 0, 0, 1, "" },
        { "the site does not", NULL, NULL, 85, { JOB_PENDING }, 0, 0, 0, "" },
        { "another code", "85", NULL, 1, { JOB_PENDING }, 0, 0, 0, "" },
        { "no failure", "0-85", NULL, 0, { JOB_PENDING }, 0, 0, 0, "" },
        { "Slurm refuses",
          "85",
          NULL,
          85,
          { JOB_PENDING },
          0,
          0,
          1,
          "A0226 Slurm requeued job 12 of this srun, and accel cannot cancel it: "
          "Access/permission denied | cancel the job with scancel when squeue shows "
          "it\n" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        fake_slurm = (struct fake_slurm){ .requeue_exit = rows[i].exits,
                                          .requeue_exit_hold = rows[i].hold,
                                          .kill_fails = rows[i].said[0] != '\0' };
        memcpy(fake_slurm.states, rows[i].states, sizeof(fake_slurm.states));
        fake_slurm.job.restart_cnt = rows[i].restarts;
        fake_said[0] = '\0';
        requeued_drop(JOB, rows[i].code);
        tap_ok(fake_slurm.killed == rows[i].killed && fake_slurm.looks == rows[i].looks,
               "%s: job %u is cancelled after %zu looks", rows[i].what,
               fake_slurm.killed, fake_slurm.looks);
        tap_is_str(fake_said, rows[i].said, "%s: said", rows[i].what);
    }
    fake_slurm = (struct fake_slurm){ .silent = true };
    requeued_drop(JOB, 85);
    tap_is_int(fake_slurm.killed, 0, "a controller that does not answer");
}

struct notice {
    const char *what;
    const char *want; /* "WARNING|NOTICE|lines" */
    const char *env, *line;
    bool off, silent;
    uint32_t limit; /* minutes; 0: 10 */
    uint32_t grace;
    uint16_t mode, part_mode; /* part_mode 0: the partition has none of its own */
};

static bool no_threads;

/* The C library's stands behind it. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*f)(void *),
                   void *arg)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

    if (no_threads)
        return EAGAIN;
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attr, f, arg);
}

#define SHORT                                                                          \
    "accel: the time limit of 120 s is not longer than accel.preemption.lead_seconds " \
    "120: the run will be told to stop as soon as it starts; use a longer --time or "  \
    "a smaller lead_seconds\n"

static const struct notice notices[] = {
    { "accel's warning", "USR1@4910|low REQUEUE 30 5|", .grace = 30,
      .mode = PREEMPT_MODE_REQUEUE },
    { "the partition's own mode", "USR1@4910|low CANCEL 30 5|", .grace = 30,
      .mode = PREEMPT_MODE_REQUEUE, .part_mode = PREEMPT_MODE_CANCEL },
    { "no grace time", "USR1@4910|low SUSPEND 0 5|", .grace = NO_VAL,
      .mode = PREEMPT_MODE_SUSPEND },
    { "no limit", "USR1@0|low OFF 0 5|", .limit = INFINITE },
    { "a limit as long as the lead", "USR1@4910|low OFF 0 5|" SHORT, .limit = 2 },
    { "a longer one", "USR1@4910|low OFF 0 5|", .limit = 3 },
    { "a short lead", "USR1@4990|low OFF 0 5|", .env = "SLURM_ACCEL_WARNING=USR1@20" },
    { "a signal of one's own", "-|low OFF 0 5|", .line = "srun --signal=USR1@9 ./a" },
    { "in a job that accel asked for", "USR2@4970|low OFF 0 5|",
      .env = "SLURM_ACCEL_WARNING=USR2@60" },
    { "the same, off for this step", "USR2@4970|-|",
      .env = "SLURM_ACCEL_WARNING=USR2@60", .off = true },
    { "a job's variable that is none of ours", "-|low OFF 0 5|",
      .env = "SLURM_ACCEL_WARNING=KILL@60" },
    { "preemption is off", "-|-|", .off = true },
    { "a controller that does not answer", "USR1@0|-|", .silent = true },
};

static void show_notice(const void *arg)
{
    struct client *c = &fake_client;
    struct config *cfg = &c->file.config;
    const struct notice *r = arg;
    struct notice_ask ask;

    clearenv();
    fake_said[0] = '\0';
    setenv("ACCEL_WARNING", "USR2@1", 1); /* of an outer task: forgotten */
    if (r->env) {
        setenv("SLURM_JOB_ID", "12", 1);
        putenv((char *)r->env);
    }
    fake_slurm = (struct fake_slurm){ .silent = r->silent,
                                      .preempt_mode = r->mode,
                                      .kill_wait = 5 };
    fake_slurm.states[0] = JOB_RUNNING;
    fake_slurm.job.time_limit = r->limit ? r->limit : 10;
    fake_slurm.job.end_time = 5000;
    fake_slurm.job.partition = (char *)"low";
    fake_slurm.partition.name = (char *)"low";
    fake_slurm.partition.preempt_mode = r->part_mode ? r->part_mode : NO_VAL16;
    fake_slurm.partition.grace_time = r->grace;
    cfg->preempt_enabled = !r->off;
    cfg->preempt_lead_seconds = 120;
    fake_split(r->line ? r->line : "srun ./a");
    user_env_keep(&c->env);
    defaults_for_srun(&c->defaults, cfg, &c->typed, &c->env);
    notice_ask(&ask, c, JOB);
    notice_export(&ask, c);
    notice_free(&ask);
    printf("%s|%s|%s", getenv(ENV_WARNING) ? getenv(ENV_WARNING) : "-",
           getenv(ENV_NOTICE) ? getenv(ENV_NOTICE) : "-", fake_said);
    user_env_free(&c->env);
}

int main(void)
{
    test_lists();
    test_drop();
    for (size_t i = 0; i < 2 * ACCEL_ARRAY_SIZE(notices); i++) {
        const struct notice *r = &notices[i / 2];

        no_threads = i % 2;
        tap_is_str(fake_child(show_notice, r), r->want, "%s%s", r->what,
                   no_threads ? ", without threads" : "");
    }
    return tap_done();
}
