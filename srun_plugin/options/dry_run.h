/* SPDX-License-Identifier: Apache-2.0
 *
 * --accel-dry-run. Runs in srun, sbatch and salloc.
 */
#ifndef ACCEL_SRUN_PLUGIN_DRY_RUN_H
#define ACCEL_SRUN_PLUGIN_DRY_RUN_H

#include "srun_plugin/client.h"

/* After all options: prints the plan and ends this client before anything is queued. */
__attribute__((noreturn)) void dry_run_show(const struct client *c);
/* The same without --accel-config: reports that there is no plan, and ends
 * this client. */
__attribute__((noreturn)) void dry_run_refuse(void);

#endif
