/* SPDX-License-Identifier: Apache-2.0
 *
 * Slurm's entry points. Each looks at the context and calls the file in charge. Only
 * two calls may fail: local_user_init (srun, before the tasks start) and task_init (as
 * the user, in the task). A failure of any other remote call would end in exit code 0
 * or in a drained node.
 */
#include "srun_plugin/plugin.h"

/* Everything else is hidden: the plugin shares a process with Slurm and
 * other plugins. */
#define EXPORT __attribute__((visibility("default")))

#pragma GCC visibility push(default)
SPANK_PLUGIN(accel, 1)
#pragma GCC visibility pop

EXPORT int slurm_spank_init(spank_t sp, int ac, char **av)
{
    switch (spank_context()) {
    case S_CTX_LOCAL:
    case S_CTX_ALLOCATOR:
        arguments_take(ac, av);
        return opts_init(sp);
    /* It reads no file, so no argument matters. */
    case S_CTX_REMOTE:
        return opts_init(sp);
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
    switch (spank_context()) {
    case S_CTX_LOCAL:
    case S_CTX_ALLOCATOR:
        /* After resume_export, whose choice the dry run shows. The dry run does
         * not return. */
        resume_export();
        hints_say();
        dry_run_maybe();
        opts_check_size();
        defaults_withdraw();
        return 0;
    default:
        return 0;
    }
}

EXPORT int slurm_spank_local_user_init(spank_t sp, int ac, char **av)
{
    (void)ac;
    (void)av;
    return opts_config() ? local_user_init(sp) : 0;
}

EXPORT int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
    (void)ac;
    (void)av;
    return opts_remote_active() ? remote_task_init(sp) : 0;
}

/* In srun everything is kept until on_exit, which knows the exit code. */
EXPORT int slurm_spank_exit(spank_t sp, int ac, char **av)
{
    (void)sp;
    (void)ac;
    (void)av;
    switch (spank_context()) {
    case S_CTX_LOCAL:
        resubmit_watch();
        return 0;
    case S_CTX_ALLOCATOR:
        opts_free();
        defaults_free();
        return 0;
    default:
        return 0;
    }
}
