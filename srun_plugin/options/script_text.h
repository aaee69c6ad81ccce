/* SPDX-License-Identifier: Apache-2.0
 *
 * What a batch script or a command line starts, as far as its text shows.
 */
#ifndef ACCEL_SRUN_PLUGIN_SCRIPT_TEXT_H
#define ACCEL_SRUN_PLUGIN_SCRIPT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Is word[n] an interpreter, "/usr/bin/python3.11", or a script, "train.py"? */
bool names_python(const char *word, size_t n);
/* The first line of a shell script, counted from 1, that runs a script or a module
 * with Python, if no line of it names srun or another launcher; 0: none. Comments do
 * not count. */
int script_bare_python(const char *text);
/* The launcher that a command line runs and that makes a world of its own, such as
 * "torchrun"; NULL: it runs none, or one that is told of other nodes. Static. */
const char *script_own_world(const char *line);

#endif
