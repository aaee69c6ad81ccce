/* SPDX-License-Identifier: Apache-2.0
 *
 * Slurm's entry points and the options. Each call looks at the context and goes to the
 * side in charge: main_srun.c in srun, sbatch and salloc, remote.c in slurmstepd. Only
 * three calls may fail: an option in a client, local_user_init (srun, before the tasks
 * start) and task_init (as the user, in the task). A failure of any other remote call
 * would end in exit code 0 or in a drained node.
 */
#include <slurm/spank.h>

#include "common/common.h"
#include "srun_plugin/plugin.h"
#include "srun_plugin/messages.h"

/* Everything else is hidden: the plugin shares a process with Slurm and
 * other plugins. */
#define EXPORT __attribute__((visibility("default")))

#pragma GCC visibility push(default)
SPANK_PLUGIN(accel, 1)
#pragma GCC visibility pop

/* ---- the options ----------------------------------------------------------------- */

/* Slurm calls this for the command line, for #SBATCH lines and for an inherited value,
 * and in slurmstepd twice for one step. -1 refuses the option and ends the client. */
static int config_given(int val, const char *arg, int remote)
{
    (void)val;
    if (!remote)
        return client_take_config(arg);
    remote_take_config(arg);
    return 0;
}

/* The tasks get the choice in their environment. */
static int resume_given(int val, const char *arg, int remote)
{
    (void)val;
    return remote ? 0 : client_take_resume(arg);
}

/* A dry run has no tasks. */
static int dry_run_given(int val, const char *arg, int remote)
{
    (void)val;
    (void)arg;
    if (!remote)
        client_take_dry_run();
    return 0;
}

static struct spank_option options[] = {
    {
        .name = OPTION_CONFIG,
        .arginfo = "FILE",
        .usage = "[accel] launch the program as FILE (Accelerate YAML) says; 'none' "
                 "turns off an inherited file",
        .has_arg = 1,
        .cb = config_given,
    },
    {
        .name = OPTION_RESUME,
        .arginfo = "auto|none|best|PATH",
        .usage = "[accel] resume from the newest intact checkpoint (auto), from none, "
                 "from the best, or from PATH (a checkpoint, or a directory of them)",
        .has_arg = 1,
        .cb = resume_given,
    },
    {
        .name = OPTION_DRY_RUN,
        .usage = "[accel] print what would run and where each value comes from, and "
                 "queue nothing",
        .cb = dry_run_given,
    },
};

/* In slurmstepd, too: it refuses an option that comes with a step and has no name. */
static void register_options(spank_t sp)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(options); i++)
        if (spank_option_register(sp, &options[i]) != ESPANK_SUCCESS)
            plugin_error(
                A0319, "plugstack.conf",
                "ask the administrator whether another plugin defines this option",
                "cannot register --%s", options[i].name);
}

/* ---- the calls ------------------------------------------------------------------- */

EXPORT int slurm_spank_init(spank_t sp, int ac, char **av)
{
    switch (spank_context()) {
    case S_CTX_LOCAL:
    case S_CTX_ALLOCATOR:
        register_options(sp);
        client_init(ac, av);
        return 0;
    /* It reads no file, so no argument matters. */
    case S_CTX_REMOTE:
        register_options(sp);
        return 0;
    /* slurmd, prolog and epilog: nothing of ours runs there. */
    default:
        return 0;
    }
}

EXPORT int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
    (void)sp;
    (void)ac;
    (void)av;
    if (spank_context() == S_CTX_LOCAL || spank_context() == S_CTX_ALLOCATOR)
        client_after_options();
    return 0;
}

EXPORT int slurm_spank_local_user_init(spank_t sp, int ac, char **av)
{
    (void)ac;
    (void)av;
    return client_start_step(sp);
}

EXPORT int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
    (void)ac;
    (void)av;
    return remote_task_init(sp);
}

/* Must not fail: Slurm would think that the task did. */
EXPORT int slurm_spank_task_exit(spank_t sp, int ac, char **av)
{
    (void)ac;
    (void)av;
    remote_task_exit(sp);
    return 0;
}

EXPORT int slurm_spank_exit(spank_t sp, int ac, char **av)
{
    (void)sp;
    (void)ac;
    (void)av;
    if (spank_context() == S_CTX_LOCAL || spank_context() == S_CTX_ALLOCATOR)
        client_exit();
    return 0;
}
