/* SPDX-License-Identifier: Apache-2.0
 *
 * The option --accel-resume=auto|none|best|PATH: where the run resumes from. The user's
 * word comes in; ACCEL_RESUME goes out, in the environment of the step or job. A path
 * that does not exist is refused before anything is queued, unless another job may
 * still create it.
 */
#include "srun_plugin/options/plugin_options.h"

#include <stdlib.h>

#include "common/env_names.h"
#include "srun_plugin/options/cmdline.h"
#include "srun_plugin/plugin.h"
#include "srun_plugin/messages.h"

/* Does this job wait for others (--dependency)? Then its checkpoint may not
 * exist yet. */
static bool waits_for_a_job(const struct typed *t)
{
    return cmdline_gives(t->words, 'd', "dependency", 3) ||
           cmdline_gives(t->script, 'd', "dependency", 3);
}

bool resume_option_take(struct client *c, const char *arg)
{
    accel_error_t err = { 0 };
    bool inherited;

    if (!arg || !typed_is_ours(&c->typed, OPTION_RESUME, arg, &inherited))
        return true;
    if (resume_choice(arg, typed_base(inherited), c->resume, sizeof(c->resume), &err) ==
            ACCEL_OK &&
        (waits_for_a_job(&c->typed) || resume_exists(arg, c->resume, &err) == ACCEL_OK))
        return true;
    return plugin_report(&err);
}

/* Without --accel-config no task would read the variable. */
void resume_option_export(const struct client *c)
{
    if (c->resume[0])
        setenv(ENV_RESUME, c->resume, 1);
}
