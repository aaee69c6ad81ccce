/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of lost power, over the calls of disk_shim.h. Of a file only what it held at
 * its last fsync is left, of a directory only the names at its last fsync; or, of each
 * on its own, what it holds now, because the system may write at any time; or zeros in
 * place of what was not synced.
 */
#ifndef TESTS_POWER_MODEL_H
#define TESTS_POWER_MODEL_H

#include <stdbool.h>

#define POWER_MIXES 6 /* of what was written and what was not, at every moment */

/* What the programs see, which was always there; and the tree after the loss. */
extern char power_live[300], power_after[300];

/* Makes both in a new folder, and watches every fsync from then on. */
bool power_begin(void);
/* Makes power_after what a loss of power now would leave of power_live. Only from a hook
 * or while nobody writes. */
void power_lose(int mix);
/* Removes the folder. */
void power_end(void);

#endif
