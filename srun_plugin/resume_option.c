/* SPDX-License-Identifier: Apache-2.0
 *
 * The option --accel-resume=auto|none|PATH: where the run resumes from. The user's word
 * comes in; ACCEL_RESUME goes out, in the environment of the step or job. A path that
 * does not exist is refused before anything is queued, unless another job may still
 * create it.
 */
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <limits.h>

#include "common/env_names.h"
#include "srun_plugin/plugin.h"

/* Empty: the option is not in use. */
static char choice[PATH_MAX];

/* Does this job wait for others (--dependency)? Then its checkpoint may not
 * exist yet. */
static bool waits_for_a_job(void)
{
    char **argv = opts_words(), **script = opts_script();

    return (argv &&
            (cmdline_option(argv, "dependency", 3) || cmdline_letter(argv, 'd'))) ||
           (script &&
            (cmdline_option(script, "dependency", 3) || cmdline_letter(script, 'd')));
}

/* Slurm's callback; -1 refuses the option and ends the client. */
static int resume_callback(int val, const char *arg, int remote)
{
    accel_error_t err = { 0 };
    bool inherited;

    (void)val;
    if (remote || !arg || !opts_is_ours(OPTION_RESUME, arg, &inherited))
        return 0;
    if (resume_choice(arg, opts_base(inherited), choice, sizeof(choice), &err) ==
            ACCEL_OK &&
        (waits_for_a_job() || resume_exists(arg, choice, &err) == ACCEL_OK))
        return 0;
    plugin_report(&err);
    return -1;
}

static struct spank_option option = {
    .name = OPTION_RESUME,
    .arginfo = "auto|none|PATH",
    .usage =
        "[accel] go on from the newest intact checkpoint (auto), from none, or from "
        "PATH (a checkpoint, or a directory of them)",
    .has_arg = 1,
    .val = 0,
    .cb = resume_callback,
};

void resume_register(spank_t sp)
{
    opts_register(sp, &option);
}

/* Only with --accel-config: without it no task would read the variable. */
void resume_export(void)
{
    if (choice[0] && opts_config())
        setenv(ENV_RESUME, choice, 1);
}
