/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors of the plugin, for the user's terminal. Runs in every context: srun, sbatch,
 * salloc, and slurmstepd as root or as the user.
 */
#ifndef ACCEL_SRUN_PLUGIN_SAY_H
#define ACCEL_SRUN_PLUGIN_SAY_H

#include "common/common.h"

/* Reports one error: "accel: error[A0301]: WHERE: TEXT", and "  cure: CURE" below it.
 * `where` and `cure` may be NULL. Returns false, as its callers do. */
bool plugin_error(enum message code, const char *where, const char *cure,
                  const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Reports an error of a stage above in the same form. Returns false. */
bool plugin_report(const accel_error_t *err);
/* Reports the lines of `text` one by one, the first after `prefix`; leaves out
 * empty ones. */
void plugin_lines(const char *prefix, const char *text);

#endif
