/* SPDX-License-Identifier: Apache-2.0
 *
 * What the sub-commands of `accel` share: entry points, argument parsing with an example
 * first, errors as exit codes, tables as text or JSON.
 */
#ifndef ACCEL_CLI_H
#define ACCEL_CLI_H

#include <argp.h>

#include "common/common.h"

/* Each gets its own argv ("accel check", ...) and returns the exit code. */
int cmd_check(int argc, char **argv);
int cmd_env(int argc, char **argv);
int cmd_launch(int argc, char **argv);
int cmd_ckpt(int argc, char **argv);

/* Prints the error to stderr as "error: WHERE: TEXT" and "  cure: HINT"; returns its exit
 * code. */
int cli_fail(const accel_error_t *err);

/* As argp_parse with ARGP_IN_ORDER. --help prints `example` (one or more lines, each
 * "accel ..."), then argp's help, to stdout and exits 0; wrong usage exits 64. */
void cli_parse(const struct argp *argp, const char *example, int argc, char **argv,
               void *input);

/* A table with fixed columns, printed by libsmartcols. */
struct cli_table;
/* `name` is the key of the rows in JSON; `columns` is NULL-terminated, "#X" holds numbers
 * (right-aligned, unquoted in JSON). NULL: no memory. */
struct cli_table *cli_table_new(const char *name, const char *const *columns);
/* Adds a row of as many texts as there are columns; NULL stands for an empty cell. */
void cli_table_row(struct cli_table *t, const char *const *cells);
/* Prints to stdout, as JSON when asked, and frees. Returns the exit code. */
int cli_table_print(struct cli_table *t, bool json);

/* Absolute or relative path of `name` as execvp would find it, or NULL; malloc'ed. */
char *cli_find_program(const char *name);

#endif
