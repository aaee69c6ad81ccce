/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the programs of this installation that a sub-command hands its work to, and
 * becomes one of them.
 */
#ifndef ACCEL_CLI_OWN_PROGRAM_H
#define ACCEL_CLI_OWN_PROGRAM_H

#include <limits.h>

#include "cli/cli.h"

/* The directory of this program's file, without a slash at the end. False when the
 * kernel does not say. */
bool cli_own_dir(char dir_out[PATH_MAX]);

/* The path of `name`, which `command` ("accel test") starts: next to this program, or
 * in libexec. A0060 when it is not there. */
accel_status_t cli_own_program(const char *name, const char *command,
                               char path_out[PATH_MAX], accel_error_t *err);

/* Replaces this process by `program`, so that signals and the exit code are the new
 * program's; argv ends with NULL. Returns only on failure, which it reports: the exit
 * code. */
int cli_become(const char *program, char **argv);

#endif
