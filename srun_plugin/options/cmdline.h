/* SPDX-License-Identifier: Apache-2.0
 *
 * Command lines: this process's own, and scanning any of the same shape. Keeps nothing.
 * Runs in srun, sbatch and salloc, with the user's rights.
 */
#ifndef ACCEL_SRUN_PLUGIN_CMDLINE_H
#define ACCEL_SRUN_PLUGIN_CMDLINE_H

#include <stdbool.h>
#include <stddef.h>

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

#endif
