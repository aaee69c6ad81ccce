/* SPDX-License-Identifier: Apache-2.0
 *
 * Slurm's entry points. Each looks at the context and calls the file in charge.
 * Only two calls may fail: local_user_init (srun, before the tasks start) and task_init
 * (as the user, in the task). Every other remote failure would end in exit code 0 or a
 * drained node.
 */
#include "srun_plugin/plugin.h"

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
    case S_CTX_REMOTE: /* reads no file, so that no argument matters */
        return opts_init(sp);
    default: /* slurmd, prolog and epilog: nothing of ours runs there */
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
