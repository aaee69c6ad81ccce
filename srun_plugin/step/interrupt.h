/* SPDX-License-Identifier: Apache-2.0
 *
 * Signals that end srun. Runs in srun: the handler in its main thread, the rest in a
 * thread of ours.
 */
#ifndef ACCEL_SRUN_PLUGIN_INTERRUPT_H
#define ACCEL_SRUN_PLUGIN_INTERRUPT_H

#include <stdint.h>

/* What the thread needs; read by it as long as srun lives. */
struct interrupt {
    uint32_t job, step;
    /* Seconds between SIGTERM and the kill. */
    unsigned kill_wait;
};

/* From now on this srun's first SIGTERM or SIGHUP lets the tasks of the step in *i save
 * and end. Sets the rest of *i. Only the first call counts. */
void interrupt_watch(struct interrupt *i);
/* The signal that told this srun to end while its step ran, Ctrl-C included;
 * 0: none. */
int interrupt_seen(void);

#endif
