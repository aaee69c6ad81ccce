/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of `accel doctor` share: verdicts as rows of one table.
 */
#ifndef ACCEL_DOCTOR_H
#define ACCEL_DOCTOR_H

#include "cli/cli.h"

enum verdict { GOOD, WARN, FAIL };

struct doctor {
    struct cli_table *table;
    int fails;
};

/* One finding about `what`; `cure` is not shown for a good one. */
void doctor_say(struct doctor *d, const char *what, enum verdict v, const char *cure,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Slurm and its version, the plugin: loaded, its line, its files; PMIx. */
void doctor_slurm(struct doctor *d);

#endif
