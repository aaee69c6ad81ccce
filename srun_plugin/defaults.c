/* SPDX-License-Identifier: Apache-2.0
 *
 * Launch options that follow from the config, as environment inputs of srun, sbatch and
 * salloc: MPI type, number of tasks, kill on bad exit, requeue, open mode, warning
 * signal. Set only where the user gave none: an exported value stays, a script's
 * #SBATCH line stays, and in Slurm itself the command line wins over the environment.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env_names.h"
#include "srun_plugin/plugin.h"

/* One malloc: the pointers, then the text. */
static char **user_env;
/* Names to unset again after the options. */
static const char *given_back[8];
static size_t given_back_count;
/* What was set, for the dry run. */
static struct launch_default set_here[12];
static size_t set_here_count;

/* A copy, not pointers into environ: setenv may move or free those. */
void defaults_snapshot(void)
{
    size_t count = 0, bytes = 0;

    if (user_env)
        return;
    for (char **e = environ; e && *e; e++, count++)
        bytes += strlen(*e) + 1;
    user_env = malloc((count + 1) * sizeof(*user_env) + bytes);
    if (!user_env)
        return;
    char *text = (char *)(user_env + count + 1);
    for (size_t i = 0; i < count; i++) {
        user_env[i] = text;
        text = stpcpy(text, environ[i]) + 1;
    }
    user_env[count] = NULL;
}

char **defaults_user_environ(void)
{
    return user_env;
}

const char *defaults_user_env(const char *name)
{
    size_t n = strlen(name);

    for (char **e = user_env; e && *e; e++)
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
            return *e + n + 1;
    return NULL;
}

/* Sets an input unless it has a value. Out of memory: the default is missed,
 * nothing breaks. */
static bool set_default(const char *name, const char *value)
{
    if (getenv(name) || set_here_count == ACCEL_ARRAY_SIZE(set_here) ||
        setenv(name, value, 1) != 0)
        return false;
    struct launch_default *d = &set_here[set_here_count++];
    d->name = name;
    snprintf(d->value, sizeof(d->value), "%s", value);
    return true;
}

/* As set_default, for inputs that the job's own environment should not inherit: a
 * script's srun would take them for the user's. */
static bool lend_default(const char *name, const char *value)
{
    if (given_back_count == ACCEL_ARRAY_SIZE(given_back) || !set_default(name, value))
        return false;
    given_back[given_back_count++] = name;
    return true;
}

const struct launch_default *defaults_set(size_t *count_out)
{
    *count_out = set_here_count;
    return set_here;
}

void defaults_withdraw(void)
{
    while (given_back_count > 0)
        unsetenv(given_back[--given_back_count]);
}

/* Writes the warning in the form of --signal: "USR1@120". */
static void warning_signal(const struct config *cfg, char *buf, size_t len)
{
    snprintf(buf, len, "%s@%lld", cfg->preempt_signal == PREEMPT_USR2 ? "USR2" : "USR1",
             (long long)cfg->preempt_lead_seconds);
}

/* Is the option on this command line? argv may be NULL. */
static bool typed(char **argv, const char *name, size_t min_prefix)
{
    return argv && cmdline_option(argv, name, min_prefix);
}

/* The size of a step. SLURM_NPROCS is an older name of SLURM_NTASKS. */
static void default_tasks(const struct config *cfg, char **argv)
{
    int64_t tasks = cfg->num_processes, nodes = cfg->num_machines;
    char number[24];

    if (tasks <= 0)
        return;
    if (!getenv("SLURM_NTASKS") && !getenv("SLURM_NPROCS")) {
        snprintf(number, sizeof(number), "%lld", (long long)tasks);
        set_default("SLURM_NTASKS", number);
    }
    /* Slurm refuses a number per node beside one per GPU. */
    if (nodes <= 0 || tasks % nodes || getenv("SLURM_NTASKS_PER_GPU") ||
        getenv("SLURM_NTASKS_PER_TRES") || typed(argv, "ntasks-per-gpu", 12) ||
        typed(argv, "ntasks-per-tres", 12))
        return;
    snprintf(number, sizeof(number), "%lld", (long long)(tasks / nodes));
    set_default("SLURM_NTASKS_PER_NODE", number);
}

void defaults_for_srun(const struct config *cfg, char **argv)
{
    char signal[32];

    set_default("SLURM_MPI_TYPE", "pmix");
    default_tasks(cfg, argv);
    lend_default("SLURM_KILL_BAD_EXIT", "1");
    /* Ctrl-C then goes to the tasks at once, and they save. Without this the first one
     * only shows their state. */
    if (cfg->preempt_enabled)
        lend_default("SLURM_DISABLE_STATUS", "1");
    /* Inside an allocation the job has its own warning. */
    if (cfg->preempt_enabled && !defaults_user_env("SLURM_JOB_ID") &&
        !typed(argv, "signal", 3)) {
        warning_signal(cfg, signal, sizeof(signal));
        lend_default("SLURM_SIGNAL", signal);
    }
}

/* In an allocation sbatch or salloc has noted it in the job's environment; a bare srun
 * set it itself. */
const char *defaults_warning(char **argv)
{
    if (defaults_user_env("SLURM_JOB_ID"))
        return defaults_user_env(ENV_JOB_WARNING);
    for (size_t i = 0; i < set_here_count; i++)
        if (strcmp(set_here[i].name, "SLURM_SIGNAL") == 0 && !typed(argv, "signal", 3))
            return set_here[i].value;
    return NULL;
}

/* "append": a requeued job must not truncate the output of its earlier run. */
void defaults_for_allocator(const struct config *cfg, char **argv, char **script)
{
    const char *input = cmdline_is_sbatch() ? "SBATCH_SIGNAL" : "SALLOC_SIGNAL";
    char signal[32];

    if (!typed(script, "open-mode", 4))
        lend_default("SBATCH_OPEN_MODE", "append");
    if (!cfg->preempt_enabled)
        return;
    if (cfg->preempt_requeue && !getenv("SBATCH_NO_REQUEUE") &&
        !typed(script, "no-requeue", 6))
        lend_default("SBATCH_REQUEUE", "1");
    warning_signal(cfg, signal, sizeof(signal));
    /* The job's steps must know that the signal is ours: then they ignore it where no
     * program handles it. */
    if (!typed(argv, "signal", 3) && !typed(script, "signal", 3) &&
        lend_default(input, signal))
        setenv(ENV_JOB_WARNING, signal, 1);
}

void defaults_free(void)
{
    free(user_env);
    user_env = NULL;
}
