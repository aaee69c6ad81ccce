/* SPDX-License-Identifier: Apache-2.0
 *
 * The config of a run.
 */
#ifndef ACCEL_RUN_RUN_CONFIG_H
#define ACCEL_RUN_RUN_CONFIG_H

#include "handle/run.h"

/* Installs signal handlers by the config that srun resolved: a signal during the
 * bootstrap must not kill the task. A config that cannot be decoded is reported
 * later. */
void settings_early_signals(accel_t *run);
/* Reads the config and logs what the program sets. Not collective. */
accel_status_t settings_open(accel_t *run, const accel_options_t *o,
                             accel_error_t *err);
/* ACCEL_OK if libaccel implements the config and it fits the job that was started. The
 * result is the same on all ranks. Not collective. */
accel_status_t settings_check(const accel_t *run, accel_error_t *err);
/* A0905 if the programs of the ranks set different keys. Collective. */
accel_status_t settings_same_on_all(accel_t *run, const accel_options_t *o,
                                    accel_error_t *err);

#endif
