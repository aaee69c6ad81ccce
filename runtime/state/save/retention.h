/* SPDX-License-Identifier: Apache-2.0
 *
 * Which checkpoints stay once a save is durable.
 */
#ifndef ACCEL_STATE_SAVE_RETENTION_H
#define ACCEL_STATE_SAVE_RETENTION_H

#include "handle/run.h"

/* Takes the rule from the config. */
void retention_open(accel_t *run);
/* How many of the newest stay: never fewer than two, so that one is left if the newest
 * proves to be damaged. */
int retention_keep(const accel_t *run);
/* Notes a metric of the program or accel_evaluate; others than the rule's are
 * ignored. */
void retention_note(accel_t *run, const char *name, double value);
/* Call this before the current step is saved. Writes its value down. Warns once if the
 * rule needs values and there are none. */
void retention_save(accel_t *run);
/* Forgets the value, because the run has gone back to another step. */
void retention_forget(accel_t *run);
/* For accel_ckpt_save_t: false once a stop has been asked for. Any thread. */
int retention_may_delete(void);

#endif
