/* SPDX-License-Identifier: Apache-2.0
 *
 * What open.c, prepare.c and batch_size_search.c call of the other files of run/.
 */
#ifndef ACCEL_RUN_IMPL_H
#define ACCEL_RUN_IMPL_H

#include "handle/run.h"

/* ---- rlimit_nofile.c: the soft limit of open files ------------------------------- */

/* Raises the soft limit to the hard limit; descriptors_restore restores the old one. */
void descriptors_raise(accel_t *run);
void descriptors_restore(const accel_t *run);

/* ---- run_config.c ---------------------------------------------------------------- */

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

/* ---- planning.c ------------------------------------------------------------------ */

/* Makes and prints run->plan. A0904: it does not fit. */
accel_status_t plan_make(accel_t *run, accel_error_t *err);

/* ---- own_compute.c: units of programs that do their own compute ------------------ */

/* Lays out the units that the program has declared. The caller frees the lists with
 * units_free; the run still owns the units. A0609: there are none. */
accel_status_t own_units_build(accel_t *run, struct units *units_out,
                               accel_error_t *err);
/* Frees the units with their names and parameters. */
void own_units_free(accel_t *run);
/* Forgets which values the program holds, because a trial was given up. */
void own_units_abandon(accel_t *run);

#endif
