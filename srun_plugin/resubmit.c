/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of srun: a step that was preempted, or that ended with 85 ("state is saved,
 * run me again"), comes back. In a batch job the job is requeued, unless rank 0 has
 * done it; a bare srun runs its own command again in a new allocation; inside salloc
 * the command is printed. A run that the warning, a preemption or the time limit ended
 * unsaved is told what would have saved it. Works from on_exit, where srun's exit code
 * is known and the allocation is over.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/env_names.h"
#include "srun_plugin/plugin.h"

/* A run shorter than this made no progress. After so many in a row srun gives up, or a
 * broken program would ask for allocations forever. */
#define SHORT_SECONDS 10
#define MAX_SHORT     5

/* The job whose step runs, and when it started; 0: no step. */
static uint32_t armed_job;
static time_t armed_at;

/* What is known at the end of the step. */
struct outcome {
    int exit_code;
    bool batch, may_requeue;
    /* Ended by its time limit. */
    bool timed_out;
    /* Still the same start of the job: running, or ended and not requeued. */
    bool present;
    bool preempted, node_failed;
    /* Ended by one of those two; srun may exit with 0 then. */
    bool killed;
    /* scancel, or Ctrl-C, which srun passes to Slurm. Overrides everything
     * before it. */
    bool cancelled;
    /* Ended by the warning signal before the program could handle it. */
    bool early;
    long restarts;
    /* How long the step took. */
    long seconds;
};

/* A number >= 0 of the user's own environment, else `otherwise`. */
static long user_long(const char *name, long otherwise)
{
    const char *v = defaults_user_env(name);
    char *end;
    long n = v ? strtol(v, &end, 10) : otherwise;

    return v && (end == v || *end || n < 0) ? otherwise : n;
}

/* Slurm counts requeues itself. Only a bare srun uses our own count; inside a job that
 * variable would be the one of an outer run. */
long resubmit_count(void)
{
    long requeued = user_long("SLURM_RESTART_COUNT", 0);

    return requeued > 0 || defaults_user_env("SLURM_JOB_ID")
               ? requeued
               : user_long(ENV_RESTART_COUNT, 0);
}

long resubmit_first_job(void)
{
    return defaults_user_env("SLURM_JOB_ID") ? (long)armed_job
                                             : user_long(ENV_FIRST_JOB, armed_job);
}

void resubmit_arm(uint32_t job_id)
{
    armed_job = job_id;
    armed_at = time(NULL);
}

/* Fills *o from what the controller knows of the job. Without an answer only the exit
 * code counts. */
static void read_job(struct outcome *o)
{
    job_info_msg_t *msg = NULL;
    uint32_t base;

    if (slurm_load_job(&msg, armed_job, JOB_FLAGS) != SLURM_SUCCESS || !msg)
        return;
    for (uint32_t i = 0; i < msg->record_count; i++) {
        const slurm_job_info_t *j = &msg->job_array[i];
        if (j->job_id != armed_job)
            continue;
        base = j->job_state & JOB_STATE_BASE;
        o->batch = j->batch_flag;
        o->may_requeue = j->requeue;
        o->restarts = j->restart_cnt;
        o->present = base != JOB_PENDING && o->restarts == resubmit_count();
        o->preempted = j->preempt_time > 0 || base == JOB_PREEMPTED;
        o->node_failed = base == JOB_NODE_FAIL;
        o->timed_out = base == JOB_TIMEOUT;
        o->killed = base == JOB_PREEMPTED || base == JOB_NODE_FAIL;
        o->cancelled = base == JOB_CANCELLED;
    }
    slurm_free_job_info_msg(msg);
}

/* Writes what happened, for all messages below. Returns buf. */
static const char *why(const struct outcome *o, char *buf, size_t len)
{
    const char *what = o->preempted     ? "was preempted"
                       : o->node_failed ? "lost a node"
                       : o->early       ? "was told to stop as it started"
                                        : "stopped";

    if (o->exit_code == EXIT_RESUME)
        snprintf(buf, len, "%s with its state saved (exit 85)", what);
    else
        snprintf(buf, len, "%s (exit %d; the last complete checkpoint counts)", what,
                 o->exit_code);
    return buf;
}

/* Reports that Slurm refused the requeue. */
static void say_refused(const char *reason, const char *error)
{
    char cure[96];

    snprintf(cure, sizeof(cure), "scontrol requeue %u, or submit it again", armed_job);
    plugin_error(A0317, NULL, cure, "job %u %s; requeue refused: %s", armed_job, reason,
                 error);
}

/* Requeues the batch job, or says why not. */
static void requeue_batch(const struct outcome *o, const struct config *cfg)
{
    char reason[128];

    why(o, reason, sizeof(reason));
    /* Rank 0, Slurm itself or another step has asked already. */
    if (!o->present)
        return;
    if (!cfg->preempt_requeue)
        slurm_info("accel: job %u %s; not requeued: accel.preemption.requeue is false",
                   armed_job, reason);
    else if (!o->may_requeue)
        slurm_info("accel: job %u %s; not requeued: it was submitted with --no-requeue",
                   armed_job, reason);
    else if (o->restarts >= cfg->preempt_max_restarts)
        slurm_info("accel: job %u %s; not requeued: %ld restarts are the limit "
                   "(accel.preemption.max_restarts)",
                   armed_job, reason, o->restarts);
    else if (slurm_requeue(armed_job, 0) != SLURM_SUCCESS)
        say_refused(reason, slurm_strerror(slurm_get_errno()));
    else
        slurm_info("accel: job %u %s; requeued as restart %ld of at most %lld",
                   armed_job, reason, o->restarts + 1,
                   (long long)cfg->preempt_max_restarts);
}

/* What was not saved at the warning, or at SIGTERM, is lost, whoever restarts the run.
 * So this is told even to jobs that do not come back. */
static void say_unsaved(const struct outcome *o, const char *signal, int warning)
{
    const char *what = o->timed_out ? "the time limit ended it"
                       : o->preempted && (o->exit_code || o->killed)
                           ? "it was preempted"
                       : o->exit_code == 128 + warning ? "the warning signal ended it"
                                                       : NULL;

    if (what && o->exit_code != EXIT_RESUME && o->exit_code != EXIT_STOPPED &&
        !o->cancelled)
        slurm_info(
            "accel: job %u: %s with exit code %d; a program that saves on %s and "
            "SIGTERM and then ends with 85 comes back and goes on from there "
            "(libaccel does; other programs: doc/python.md)",
            armed_job, what, o->exit_code, signal);
}

/* Prints the command, for the user to run again. */
static void say_command(const char *what, char **argv)
{
    struct strbuf line = { 0 };

    for (size_t i = 0; argv && argv[i]; i++)
        strbuf_printf(&line, " %s", argv[i]);
    slurm_info("%s; to go on run again:%s", what, line.s ? line.s : "");
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
static char **next_environ(char own[OWN_COUNT][48])
{
    char **env = defaults_user_environ(), **next;
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
static void run_again(char **argv, long restarts, long shorts)
{
    char own[OWN_COUNT][48];

    snprintf(own[0], sizeof(own[0]), ENV_RESTART_COUNT "=%ld", restarts);
    snprintf(own[1], sizeof(own[1]), ENV_SHORT_RUNS "=%ld", shorts);
    snprintf(own[2], sizeof(own[2]), ENV_FIRST_JOB "=%ld", resubmit_first_job());
    char **env = next_environ(own);
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

/* Asks for a new allocation, or says why not and how to go on. */
static void resubmit_bare(const struct outcome *o, const struct config *cfg)
{
    char **argv = cmdline_read();
    char reason[128], what[320];
    long restarts = resubmit_count(), shorts;

    shorts = o->seconds < SHORT_SECONDS ? user_long(ENV_SHORT_RUNS, 0) + 1 : 0;
    why(o, reason, sizeof(reason));
    /* The first reason that applies; NULL: it is started again. */
    const char *not_again =
        defaults_user_env("SLURM_JOB_ID")        ? "the allocation is not ours"
        : !cfg->preempt_resubmit                 ? "accel.preemption.resubmit is false"
        : argv && cmdline_option(argv, "pty", 3) ? "it has a terminal (--pty)"
        : shorts > MAX_SHORT ? "too many runs in a row were shorter than 10 s"
        : restarts >= cfg->preempt_max_restarts
            ? "the limit of restarts is reached (accel.preemption.max_restarts)"
            : NULL;
    if (not_again || !argv) {
        snprintf(what, sizeof(what), "accel: job %u %s; not started again: %s",
                 armed_job, reason, not_again ? not_again : "out of memory");
        say_command(what, argv);
    } else {
        slurm_info("accel: job %u %s; asking for a new allocation (restart %ld of at "
                   "most %lld)",
                   armed_job, reason, restarts + 1,
                   (long long)cfg->preempt_max_restarts);
        run_again(argv, restarts + 1, shorts);
    }
    free(argv);
}

/* Does somebody want the run to end? In a batch job only Ctrl-C says so: there Slurm
 * itself sends SIGTERM to srun, whatever comes next. */
static bool is_told_to_end(const struct outcome *o)
{
    return interrupt_seen() == SIGINT || (interrupt_seen() && !o->batch);
}

/* Says that the run was ended on purpose and how to go on. Nobody else has said it: the
 * step ended without a last word of its own. */
static void say_ended(const struct outcome *o)
{
    char **argv = cmdline_read();
    char reason[128], what[256];

    why(o, reason, sizeof(reason));
    snprintf(what, sizeof(what), "accel: job %u %s; not started again: srun got SIG%s",
             armed_job, reason, sigabbrev_np(interrupt_seen()));
    say_command(what, argv);
    free(argv);
}

/* Exit code 0 means finished, unless Slurm killed the step. A step that failed by
 * itself (any other code) does not come back: it would fail again. */
static bool comes_back(const struct outcome *o)
{
    if (o->cancelled || o->exit_code == EXIT_STOPPED || is_told_to_end(o))
        return false;
    if (o->exit_code == 0)
        return o->killed;
    return o->exit_code == EXIT_RESUME || o->preempted || o->node_failed || o->early;
}

/* The message about what was lost comes first, then what happens next. */
static void bring_back(struct outcome *o, const struct config *cfg)
{
    bool usr2 = cfg->preempt_signal == PREEMPT_USR2;
    int warning = usr2 ? SIGUSR2 : SIGUSR1;

    o->seconds = (long)(time(NULL) - armed_at);
    /* Only in the first seconds: later the program has had its chance to handle
     * the signal. */
    o->early = o->exit_code == 128 + warning && o->seconds < SHORT_SECONDS;
    say_unsaved(o, usr2 ? "SIGUSR2" : "SIGUSR1", warning);
    if (comes_back(o) && o->batch)
        requeue_batch(o, cfg);
    else if (comes_back(o))
        resubmit_bare(o, cfg);
    else if (is_told_to_end(o) && o->exit_code != 0 && o->exit_code != EXIT_STOPPED)
        say_ended(o);
}

/* Runs inside exit(); `status` is srun's exit code. */
static void at_end(int status, void *unused)
{
    const struct config *cfg = opts_config();
    struct outcome o = { .exit_code = status & 0xff };

    (void)unused;
    if (cfg) {
        read_job(&o);
        if (!o.batch && !defaults_user_env("SLURM_JOB_ID"))
            requeued_drop(armed_job, o.exit_code);
    }
    if (cfg && cfg->preempt_enabled)
        bring_back(&o, cfg);
    opts_free();
    defaults_free();
}

/* Without a step (job 0) there is nothing to watch, and everything can be freed. */
void resubmit_watch(void)
{
    Dl_info self = { 0 };

    if (armed_job == 0) {
        opts_free();
        defaults_free();
        return;
    }
    /* Slurm may close the plugin before exit() calls us; this keeps it mapped. */
    if (!dladdr((void *)at_end, &self) || !self.dli_fname ||
        !dlopen(self.dli_fname, RTLD_NOW | RTLD_NODELETE)) {
        plugin_error(A0318, self.dli_fname,
                     "after a preemption run the same command again",
                     "cannot watch the end of the step: %s", dlerror());
        return;
    }
    on_exit(at_end, NULL);
}
