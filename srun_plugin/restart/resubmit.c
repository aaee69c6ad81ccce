/* SPDX-License-Identifier: Apache-2.0
 *
 * A step that was preempted, or that ended with 85 ("state is saved, run me again"),
 * comes back. How it ended comes in. In a batch job the job is requeued, unless rank 0
 * has done it; a bare srun runs its own command again in a new allocation; inside
 * salloc the command is printed. Counts of restarts travel in the environment, since
 * each start of a bare srun is a new process image.
 */

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env_names.h"
#include "srun_plugin/options/cmdline.h"
#include "srun_plugin/step/interrupt.h"
#include "srun_plugin/restart/restart.h"
#include "srun_plugin/messages.h"

/* After this many short runs in a row srun gives up, or a broken program would ask for
 * allocations forever. */
#define MAX_SHORT 5

/* Reports that Slurm refused the requeue. */
static void say_refused(const char *job, const char *reason, const char *error)
{
    char cure[96];

    snprintf(cure, sizeof(cure), "run scontrol requeue %s, or submit the job again",
             job);
    plugin_error(A0317, NULL, cure, "job %s %s; requeue refused: %s", job, reason,
                 error);
}

void resubmit_batch(const struct client *c, const struct outcome *o)
{
    const struct config *cfg = &c->file.config;
    char reason[128];

    outcome_text(o, reason, sizeof(reason));
    /* Rank 0, Slurm itself or another step has asked already. */
    if (!o->present)
        return;
    if (!cfg->preempt_requeue)
        slurm_info("accel: job %s %s; not requeued: accel.preemption.requeue is false",
                   o->job, reason);
    else if (!o->may_requeue)
        slurm_info("accel: job %s %s; not requeued: it was submitted with --no-requeue",
                   o->job, reason);
    else if (o->restarts >= cfg->preempt_max_restarts)
        slurm_info("accel: job %s %s; not requeued: the limit of %ld restarts is "
                   "reached (accel.preemption.max_restarts)",
                   o->job, reason, o->restarts);
    /* By number, which here is this element of an array alone, unlike in a command. */
    else if (slurm_requeue(c->job_id, 0) != SLURM_SUCCESS)
        say_refused(o->job, reason, slurm_strerror(slurm_get_errno()));
    else
        slurm_info("accel: job %s %s; requeued as restart %ld of at most %lld", o->job,
                   reason, o->restarts + 1, (long long)cfg->preempt_max_restarts);
}

/* Prints the command, for the user to run again. */
static void say_command(const char *what, char **argv)
{
    struct strbuf line = { 0 };

    for (size_t i = 0; argv && argv[i]; i++)
        strbuf_printf(&line, " %s", argv[i]);
    slurm_info("%s; to continue, run again:%s", what, line.s ? line.s : "");
    strbuf_free(&line);
}

/* Slurm's own descriptors must not stay open in the new srun. */
static void close_on_exec(void)
{
    DIR *d = opendir("/proc/self/fd");
    struct dirent *e;

    while (d && (e = readdir(d))) {
        int fd = (int)strtol(e->d_name, NULL, 10);
        if (fd > STDERR_FILENO)
            fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    if (d)
        closedir(d);
}

/* srun blocks and handles signals; the next one must start as if from a shell.
 * Signals that were ignored stay ignored, as with nohup, except SIGPIPE, which srun
 * itself ignores. */
static void reset_signals(void)
{
    struct sigaction dfl = { .sa_handler = SIG_DFL };
    sigset_t none;

    for (int s = 1; s < NSIG; s++) {
        struct sigaction now;
        if (sigaction(s, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaction(s, &dfl, NULL);
    }
    sigaction(SIGPIPE, &dfl, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

#define OWN_COUNT 3

/* The user's own environment, with `own` ("NAME=VALUE") overriding the user's values.
 * One malloc; the strings are not copied. */
static char **next_environ(char **env, char own[OWN_COUNT][48])
{
    char **next;
    size_t n = 0, k = 0;

    while (env && env[n])
        n++;
    next = malloc((n + OWN_COUNT + 1) * sizeof(*next));
    if (!next)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        /* Variables that `own` replaces are left out. */
        bool ours = false;
        for (size_t o = 0; o < OWN_COUNT; o++)
            ours |= strncmp(env[i], own[o], strcspn(own[o], "=") + 1) == 0;
        if (!ours)
            next[k++] = env[i];
    }
    for (size_t o = 0; o < OWN_COUNT; o++)
        next[k++] = own[o];
    next[k] = NULL;
    return next;
}

/* Replaces this process by a new srun. Returns only on failure. */
static void run_again(const struct client *c, char **argv, long restarts, long shorts)
{
    char own[OWN_COUNT][48];

    snprintf(own[0], sizeof(own[0]), ENV_RESTART_COUNT "=%ld", restarts);
    snprintf(own[1], sizeof(own[1]), ENV_SHORT_RUNS "=%ld", shorts);
    snprintf(own[2], sizeof(own[2]), ENV_FIRST_JOB "=%ld",
             restarts_first_job(&c->env, c->job_id));
    char **env = next_environ(c->env.vars, own);
    if (!env)
        return;
    /* "srun < file": the next run reads the file from its start, as the first
     * one did. */
    lseek(STDIN_FILENO, 0, SEEK_SET);
    close_on_exec();
    reset_signals();
    cmdline_exec(argv, env);
    plugin_error(A0316, argv[0], "run the same command again",
                 "cannot run srun again: %m");
    free(env);
}

void resubmit_bare(const struct client *c, const struct outcome *o)
{
    const struct config *cfg = &c->file.config;
    char **argv = cmdline_read();
    char reason[128], what[320];
    long restarts = restarts_count(&c->env), shorts;

    shorts = o->seconds < SHORT_SECONDS ? restarts_short(&c->env) + 1 : 0;
    outcome_text(o, reason, sizeof(reason));
    /* The first reason that applies; NULL: it is started again. */
    const char *not_again =
        user_env_get(&c->env, "SLURM_JOB_ID")    ? "srun did not create the allocation"
        : !cfg->preempt_resubmit                 ? "accel.preemption.resubmit is false"
        : argv && cmdline_option(argv, "pty", 3) ? "the step has a terminal (--pty)"
        : shorts > MAX_SHORT ? "too many consecutive runs were shorter than 10 s"
        : restarts >= cfg->preempt_max_restarts
            ? "the limit of restarts is reached (accel.preemption.max_restarts)"
            : NULL;
    if (not_again || !argv) {
        snprintf(what, sizeof(what), "accel: job %s %s; not restarted: %s", o->job,
                 reason, not_again ? not_again : "out of memory");
        say_command(what, argv);
    } else {
        slurm_info("accel: job %s %s; requesting a new allocation (restart %ld of at "
                   "most %lld)",
                   o->job, reason, restarts + 1, (long long)cfg->preempt_max_restarts);
        run_again(c, argv, restarts + 1, shorts);
    }
    free(argv);
}

/* Says that the run was ended on purpose and how to go on. Nobody else has said it: the
 * step ended without a last word of its own. */
void resubmit_say_ended(const struct outcome *o)
{
    char **argv = cmdline_read();
    char reason[128], what[256];

    outcome_text(o, reason, sizeof(reason));
    snprintf(what, sizeof(what), "accel: job %s %s; not restarted: srun received SIG%s",
             o->job, reason, sigabbrev_np(interrupt_seen()));
    say_command(what, argv);
    free(argv);
}
