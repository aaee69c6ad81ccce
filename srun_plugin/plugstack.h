/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin's line in plugstack.conf, for messages about it and for accel doctor.
 * Slurm hands the plugin the words of its line, but not where the line is.
 */
#ifndef ACCEL_SRUN_PLUGIN_PLUGSTACK_H
#define ACCEL_SRUN_PLUGIN_PLUGSTACK_H

#include <limits.h>
#include <stdbool.h>

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

#endif
