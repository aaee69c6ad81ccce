/* SPDX-License-Identifier: Apache-2.0
 *
 * Which checkpoints stay when a save is durable.
 */
#ifndef ACCEL_STATE_SAVE_RETENTION_H
#define ACCEL_STATE_SAVE_RETENTION_H

#include "handle/run.h"

/* Takes the rule from the config. */
void retention_open(accel_t *run);
/* How many of the newest stay: never fewer than two, so that one is left when the
 * newest proves to be damaged. */
int retention_keep(const accel_t *run);
/* The program's, or accel_evaluate's; other metrics than the rule's are dropped. */
void retention_note(accel_t *run, const char *name, double value);
/* The current step is about to be saved: writes its value down. Warns once where the
 * rule goes by values and there are none. */
void retention_save(accel_t *run);
/* The value is of another history. */
void retention_forget(accel_t *run);
/* For accel_ckpt_save_t: no, once a stop has been asked for. Any thread. */
int retention_may_delete(void);

#endif
