/* SPDX-License-Identifier: Apache-2.0
 *
 * struct client: everything that srun, sbatch or salloc keeps from one call of Slurm's
 * to the next. main_srun.c owns the only one; functions get the part they need, or all
 * of it. slurmstepd has none.
 */
#ifndef ACCEL_SRUN_PLUGIN_CLIENT_H
#define ACCEL_SRUN_PLUGIN_CLIENT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "srun_plugin/plugstack.h"
#include "srun_plugin/step/defaults.h"
#include "srun_plugin/step/interrupt.h"
#include "srun_plugin/step/job_file.h"
#include "srun_plugin/options/option_values.h"

struct client {
    /* sbatch or salloc; false: srun. */
    bool allocates;
    /* The site's words in plugstack.conf. */
    struct arguments arguments;
    /* What the user typed and exported. */
    struct typed typed;
    struct user_env env;
    /* --accel-config was accepted, and it was not "none". */
    bool in_use;
    /* The file that it names, and the parser. */
    struct job_file file;
    /* The choice of --accel-resume; empty: not given. */
    char resume[PATH_MAX];
    /* --accel-dry-run was given. */
    bool dry_run;
    /* Launch options that follow from the file. */
    struct launch_defaults defaults;
    /* The job whose step runs, and when it started; 0: no step. */
    uint32_t job_id;
    time_t started_at;
    /* The directory in which its ranks report; empty: none. And how many of them are on
     * which node, "2(x3),1". */
    char reports[PATH_MAX];
    char *tasks_per_node;
    /* Until then (seconds since 1970) nothing but this srun ends its tasks: who ends
     * with 0 has finished. 0: the controller has to be asked. */
    int64_t undisturbed_until;
    /* How the end of this srun is passed on to the tasks. */
    struct interrupt interrupt;
};

#endif
