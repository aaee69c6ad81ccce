/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of a test that opens runs: temporary, with one config file.
 */
#ifndef ACCEL_TESTS_RUN_FOLDER_H
#define ACCEL_TESTS_RUN_FOLDER_H

#include <stddef.h>

/* Makes the folder from its template, "/tmp/accel-NAME.XXXXXX". No config of the
 * caller's environment counts any more. Ends the test with a SKIP where it cannot. */
void run_folder_new(char *dir);
/* The same with `text` in its one.yaml, whose path goes to config_out[len]. */
void run_folder_make(char *dir, const char *text, char *config_out, size_t len);
/* Writes the file again, for the next run. */
void run_folder_write(const char *config, const char *text);
/* Removes the folder, as a check of the test. */
void run_folder_remove(const char *dir);

#endif
