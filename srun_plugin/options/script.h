/* SPDX-License-Identifier: Apache-2.0
 *
 * The batch script that a command line names. Keeps nothing. Runs in sbatch, with the
 * user's rights.
 */
#ifndef ACCEL_SRUN_PLUGIN_SCRIPT_H
#define ACCEL_SRUN_PLUGIN_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>

/* Larger scripts are not looked into. */
#define SCRIPT_MAX (256u << 10)

/* Words of the #SBATCH lines of the script that argv names, after its name,
 * NULL-terminated, in one malloc; to be scanned with cmdline_*. NULL: there is no
 * script to look into. */
char **script_read(char **argv);
/* Path of the script that argv names, as sbatch finds it; false: there is no script to
 * look into. */
bool script_find(char **argv, char *out, size_t len);

#endif
