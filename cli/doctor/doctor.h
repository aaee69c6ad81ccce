/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of `accel doctor` share: each finding is one row of one table.
 */
#ifndef ACCEL_DOCTOR_H
#define ACCEL_DOCTOR_H

#include "cli/cli.h"

/* GOOD: nothing to do. WARN: a run works, but not as well as it could, or a part is not
 * set up. FAIL: a run cannot work; the command then exits 69. */
enum verdict { GOOD, WARN, FAIL };

/* The table being filled, and how many of its rows are failures. */
struct doctor {
    struct cli_table *table;
    int fails;
};

/* Adds one finding about `what`. `cure` is shown only for WARN and FAIL, and
 * may be NULL for GOOD. */
void doctor_say(struct doctor *d, const char *what, enum verdict v, const char *cure,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Adds the findings about Slurm: its version, the plugin (loaded, its
 * line, its files), PMIx. */
void doctor_slurm(struct doctor *d);

#endif
