/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the programs of this installation that a sub-command hands its work to, and
 * becomes one of them; finds and prints the files that are made when accel is built.
 */
#ifndef ACCEL_CLI_OWN_PROGRAM_H
#define ACCEL_CLI_OWN_PROGRAM_H

#include <limits.h>

#include "cli/cli.h"

/* The directory of this program's file, without a slash at the end. False when the
 * kernel does not say. */
bool cli_own_dir(char dir_out[PATH_MAX]);

/* The path of `name` in the first of `roots` where access() grants `mode`. Roots are
 * relative to this program (a build, an installation that was moved) or absolute; each
 * ends with a slash or is empty, and NULL ends them. The last is absolute: where accel
 * was installed. False: none has it, and path_out is in the last. */
bool cli_own_file(const char *const *roots, const char *name, int mode,
                  char path_out[PATH_MAX]);

/* Prints the file. A0017 when it cannot be read. Returns the exit code. */
int cli_print_file(const char *path);

/* The path of `name`, which `command` ("accel test") starts: next to this program, or
 * in libexec. A0060 when it is not there. */
accel_status_t cli_own_program(const char *name, const char *command,
                               char path_out[PATH_MAX], accel_error_t *err);

/* Replaces this process by `program`, so that signals and the exit code are the new
 * program's; argv ends with NULL. Returns only on failure, which it reports: the exit
 * code. */
int cli_become(const char *program, char **argv);

#endif
