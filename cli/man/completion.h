/* SPDX-License-Identifier: Apache-2.0
 *
 * Completion scripts of shells, made from the tables that the parsers use.
 */
#ifndef ACCEL_COMPLETION_H
#define ACCEL_COMPLETION_H

/* Prints the script for bash on stdout. Output errors are left to cli_finish. */
void completion_bash(void);

#endif
