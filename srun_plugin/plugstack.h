/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin's line in plugstack.conf: the words that Slurm hands the plugin, and, for
 * messages about it and for accel doctor, where it is. Runs in srun, sbatch and salloc,
 * and in accel doctor.
 */
#ifndef ACCEL_SRUN_PLUGIN_PLUGSTACK_H
#define ACCEL_SRUN_PLUGIN_PLUGSTACK_H

#include <limits.h>
#include <stdbool.h>

/* ---- the line -------------------------------------------------------------------- */

#define PLUGIN_FILE "accel_spank.so"

/* The first line with accel's plugin in plugstack.conf or a file that it includes. */
struct plugstack {
    /* The file that has the line. */
    char file[PATH_MAX];
    /* The path that the line loads, and the words after it. */
    char plugin[PATH_MAX], words[PATH_MAX];
    /* `found` counts the lines with the plugin; more than one loads it twice. */
    int line, found;
    bool required;
};

/* Reads `path` into *p, which is empty before. A file that cannot be opened has no
 * lines. */
void plugstack_read(struct plugstack *p, const char *path);

/* ---- its words ------------------------------------------------------------------- */

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
