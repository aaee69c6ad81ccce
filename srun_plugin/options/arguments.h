/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands after the plugin in plugstack.conf. Runs in srun, sbatch and salloc, and
 * in accel doctor.
 */
#ifndef ACCEL_SRUN_PLUGIN_ARGUMENTS_H
#define ACCEL_SRUN_PLUGIN_ARGUMENTS_H

#include <limits.h>

struct arguments {
    /* Path of the site file; empty: the one that was compiled in. */
    char site[PATH_MAX];
    /* The first word that is none of ours; empty: all are. */
    char wrong[128];
    /* How many lines load the plugin. Two would share its variables. */
    int lines;
};

/* Takes the words of a line, such as site=/etc/accel/site.yaml. */
void arguments_take(struct arguments *a, int ac, char **av);

#endif
