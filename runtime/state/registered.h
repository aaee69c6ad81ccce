/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects and hooks of the program in checkpoints.
 */
#ifndef ACCEL_STATE_REGISTERED_H
#define ACCEL_STATE_REGISTERED_H

#include "handle/run.h"

#define STATE_OBJECTS_BLOB "objects"
/* Collective. Calls the save function of every object. Rank 0 gets the blob of all of
 * them, one malloc; NULL on other ranks, or without objects. An error of one rank is
 * the error of all. */
accel_status_t registered_save(accel_t *run, char **data_out, size_t *bytes_out,
                               accel_error_t *err);
/* Not collective. Checks that checkpoint `c` of directory `dir` has every object, and
 * keeps their data for registered_load. A0972: one is missing or does not fit. */
accel_status_t registered_find(accel_t *run, const char *dir, const accel_ckpt_t *c,
                               accel_error_t *err);
/* Collective. Calls the load functions with what registered_find kept. */
accel_status_t registered_load(accel_t *run, accel_error_t *err);
void registered_free(accel_t *run);

/* ---- state_hooks.c --------------------------------------------------------------- */

/* Collective. Call the program's functions before a save to, or a load from, `dir`. An
 * error of one rank is the error of all. */
accel_status_t state_hooks_save(accel_t *run, const char *dir, accel_error_t *err);
accel_status_t state_hooks_load(accel_t *run, const char *dir, accel_error_t *err);

#endif
