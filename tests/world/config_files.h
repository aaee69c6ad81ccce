/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a test of config/: one of the site, the user and the job, in a directory
 * of their own, and all that resolving them says.
 */
#ifndef ACCEL_TESTS_CONFIG_FILES_H
#define ACCEL_TESTS_CONFIG_FILES_H

#include <stddef.h>

#include "config/config.h"

/* What a job file begins with. */
#define TYPE(type) "distributed_type: " type "\n"

/* Paths; the files are not there until config_put writes them. */
extern char config_dir[32], config_site[64], config_user[64], config_job[64];

struct config_said {
    char text[16000]; /* a line per message */
    size_t count, errors;
    size_t told; /* notes that srun tells */
    accel_error_t first;
};

/* Makes the directory, or ends the test. */
void config_files_make(void);

/* Removes files and directory. Returns what rmdir does. */
int config_files_remove(void);

/* Writes a file again, for all to read. Returns `path`; ends the test on an error. */
const char *config_put(const char *path, const char *text);
const char *config_put_bytes(const char *path, const char *text, size_t n);

accel_status_t config_say(const struct config_sources *src, struct config *cfg,
                          struct config_said *said_out);

/* Of that text as the job file alone: "A0130", or "" for a config that is accepted.
 * Valid until the next call. */
const char *config_verdict(const char *text, struct config *cfg,
                           struct config_said *said_out);

#endif
