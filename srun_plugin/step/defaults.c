/* SPDX-License-Identifier: Apache-2.0
 *
 * Launch options that follow from the config, as environment inputs of srun, sbatch and
 * salloc: MPI type, number of tasks, kill on bad exit, requeue, open mode, warning
 * signal. Set only where the user gave none: an exported value stays, a script's
 * #SBATCH line stays, and in Slurm itself the command line wins over the environment.
 */
#include "srun_plugin/step/defaults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/common.h"
#include "common/env_names.h"
#include "srun_plugin/options/cmdline.h"

/* Sets an input unless it has a value. Out of memory: the default is missed,
 * nothing breaks. */
static bool set_default(struct launch_defaults *d, const char *name, const char *value)
{
    if (getenv(name) || d->set_count == ACCEL_ARRAY_SIZE(d->set) ||
        setenv(name, value, 1) != 0)
        return false;
    struct launch_default *made = &d->set[d->set_count++];
    made->name = name;
    snprintf(made->value, sizeof(made->value), "%s", value);
    return true;
}

/* As set_default, for inputs that the job's own environment should not inherit: a
 * script's srun would take them for the user's. */
static bool lend_default(struct launch_defaults *d, const char *name, const char *value)
{
    if (d->lent_count == ACCEL_ARRAY_SIZE(d->lent) || !set_default(d, name, value))
        return false;
    d->lent[d->lent_count++] = name;
    return true;
}

void defaults_withdraw(struct launch_defaults *d)
{
    while (d->lent_count > 0)
        unsetenv(d->lent[--d->lent_count]);
}

/* Writes the warning in the form of --signal: "USR1@120". */
static void warning_signal(const struct config *cfg, char *buf, size_t len)
{
    snprintf(buf, len, "%s@%lld", cfg->preempt_signal == PREEMPT_USR2 ? "USR2" : "USR1",
             (long long)cfg->preempt_lead_seconds);
}

/* The size of a step. SLURM_NPROCS is an older name of SLURM_NTASKS. */
static void default_tasks(struct launch_defaults *d, const struct config *cfg,
                          char **argv)
{
    int64_t tasks = cfg->num_processes, nodes = cfg->num_machines;
    char number[24];

    if (tasks <= 0)
        return;
    if (!getenv("SLURM_NTASKS") && !getenv("SLURM_NPROCS")) {
        snprintf(number, sizeof(number), "%lld", (long long)tasks);
        set_default(d, "SLURM_NTASKS", number);
    }
    /* Slurm refuses a number per node beside one per GPU, and takes it as a demand for
     * as many CPUs, whatever --overcommit says. */
    if (nodes <= 0 || tasks % nodes || getenv("SLURM_NTASKS_PER_GPU") ||
        getenv("SLURM_NTASKS_PER_TRES") || getenv("SLURM_OVERCOMMIT") ||
        cmdline_gives(argv, 0, "ntasks-per-gpu", 12) ||
        cmdline_gives(argv, 0, "ntasks-per-tres", 12) ||
        cmdline_gives(argv, 'O', "overcommit", 4))
        return;
    snprintf(number, sizeof(number), "%lld", (long long)(tasks / nodes));
    set_default(d, "SLURM_NTASKS_PER_NODE", number);
}

void defaults_for_srun(struct launch_defaults *d, const struct config *cfg,
                       const struct typed *t, const struct user_env *env)
{
    char signal[32];

    set_default(d, "SLURM_MPI_TYPE", "pmix");
    default_tasks(d, cfg, t->words);
    lend_default(d, "SLURM_KILL_BAD_EXIT", "1");
    /* Ctrl-C then goes to the tasks at once, and they save. Without this the first one
     * only shows their state. */
    if (cfg->preempt_enabled)
        lend_default(d, "SLURM_DISABLE_STATUS", "1");
    /* Inside an allocation the job has its own warning. */
    if (cfg->preempt_enabled && !user_env_get(env, "SLURM_JOB_ID") &&
        !cmdline_gives(t->words, 0, "signal", 3)) {
        warning_signal(cfg, signal, sizeof(signal));
        lend_default(d, "SLURM_SIGNAL", signal);
    }
}

/* In an allocation sbatch or salloc has noted it in the job's environment; a bare srun
 * set it itself. */
const char *defaults_warning(const struct launch_defaults *d, const struct typed *t,
                             const struct user_env *env)
{
    if (user_env_get(env, "SLURM_JOB_ID"))
        return user_env_get(env, ENV_JOB_WARNING);
    for (size_t i = 0; i < d->set_count; i++)
        if (strcmp(d->set[i].name, "SLURM_SIGNAL") == 0 &&
            !cmdline_gives(t->words, 0, "signal", 3))
            return d->set[i].value;
    return NULL;
}

/* "append": a requeued job must not truncate the output of its earlier run. */
void defaults_for_allocator(struct launch_defaults *d, const struct config *cfg,
                            const struct typed *t)
{
    const char *input = cmdline_is_sbatch() ? "SBATCH_SIGNAL" : "SALLOC_SIGNAL";
    char signal[32];

    if (!cmdline_gives(t->script, 0, "open-mode", 4))
        lend_default(d, "SBATCH_OPEN_MODE", "append");
    if (!cfg->preempt_enabled)
        return;
    if (cfg->preempt_requeue && !getenv("SBATCH_NO_REQUEUE") &&
        !cmdline_gives(t->script, 0, "no-requeue", 6))
        lend_default(d, "SBATCH_REQUEUE", "1");
    warning_signal(cfg, signal, sizeof(signal));
    /* The job's steps must know that the signal is ours: then they ignore it where no
     * program handles it. */
    if (!cmdline_gives(t->words, 0, "signal", 3) &&
        !cmdline_gives(t->script, 0, "signal", 3) && lend_default(d, input, signal))
        setenv(ENV_JOB_WARNING, signal, 1);
}
