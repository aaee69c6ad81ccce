/* SPDX-License-Identifier: Apache-2.0
 *
 * Command lines: this process's own, and scanning any of the same shape; the batch
 * script that one names, and what its text starts. Keeps nothing. Runs in srun, sbatch
 * and salloc, with the user's rights.
 */
#ifndef ACCEL_SRUN_PLUGIN_CMDLINE_H
#define ACCEL_SRUN_PLUGIN_CMDLINE_H

#include <stdbool.h>
#include <stddef.h>

/* ---- cmdline.c ------------------------------------------------------------------- */

/* Words of /proc/self/cmdline, NULL-terminated, in one malloc. NULL when it cannot
 * be read. */
char **cmdline_read(void);
/* Value of the last --NAME=VALUE or --NAME VALUE ("" if it has none) among the client's
 * own options; NULL when absent. Prefixes of at least min_prefix characters count, as
 * for getopt. */
const char *cmdline_option(char **argv, const char *name, size_t min_prefix);
/* Value of the last -LETTER ("" if it takes none) among the client's own options, also
 * as in "-Qn4"; NULL when absent. */
const char *cmdline_letter(char **argv, char letter);
/* Is the option among them, as --NAME or as -LETTER (0: it has none)? argv may
 * be NULL. */
bool cmdline_gives(char **argv, char letter, const char *name, size_t min_prefix);
/* Index of the command or script; the length of argv when there is none. */
size_t cmdline_command(char **argv);
/* The bytes of `path`, NUL-terminated, in one malloc; NULL on failure, or when it has
 * more than about `max` bytes. */
char *cmdline_read_file(const char *path, size_t max, size_t *len_out);
/* Runs this program again with these words. Returns only on failure. */
void cmdline_exec(char **argv, char **env);
/* Is this process sbatch? Slurm has one context for sbatch and salloc. */
bool cmdline_is_sbatch(void);

/* ---- script.c -------------------------------------------------------------------- */

/* Larger scripts are not looked into. */
#define SCRIPT_MAX (256u << 10)

/* Words of the #SBATCH lines of the script that argv names, after its name,
 * NULL-terminated, in one malloc; to be scanned with cmdline_*. NULL: there is no
 * script to look into. */
char **script_read(char **argv);
/* Path of the script that argv names, as sbatch finds it; false: there is no script to
 * look into. */
bool script_find(char **argv, char *out, size_t len);

/* ---- script_text.c --------------------------------------------------------------- */

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
