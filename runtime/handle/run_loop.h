/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run keeps for loop/: the step in progress.
 */
#ifndef ACCEL_HANDLE_RUN_LOOP_H
#define ACCEL_HANDLE_RUN_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "accel.h"
#include "data/host_batch.h"
#include "optim/accumulate.h"

/* What the host spends the time of an iteration on. */
enum phase {
    PHASE_OTHER, /* the program, between accel_step and the next micro-batch */
    PHASE_DATA,
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_OPTIMIZER,
    PHASE_WAIT, /* for the device and for other ranks */
    PHASES
};

/* The state of the step in progress. A resume rebuilds all of it from the cursor. */
struct loop {
    /* memory of the backend's host for the losses */
    struct host_batch host;
    /* micro-batches done in the current step: those with a backward */
    int micro;
    /* [losses_room], in `host`: the first `loss_count` are losses of this
     * step. A device writes them asynchronously; they are read after the step's
     * wait. */
    float *losses;
    int losses_room, loss_count;
    /* the sum of the losses that no longer fitted, and of those that a program of own
     * compute passes in */
    double loss_sum;
    /* the current group of micro-batches; its state before the open micro-batch */
    struct accumulate group, group_before;
    /* nanoseconds of this iteration by phase, and when the current phase began */
    int64_t phase_ns[PHASES], phase_from_ns;
    /* clock_ns when the current evaluation began; 0: there is none */
    int64_t evaluating_from_ns;
    /* of the last iteration; step 0: none yet */
    accel_step_info_t last;
    /* a micro-batch is open: its backward is due */
    bool in_micro;
    /* ... and its backward has begun (own compute) */
    bool in_backward;
    /* characters of the backend's isa that have been logged */
    size_t isa_shown;
    /* the backend's advice has been logged */
    bool advice_shown;
    /* clock_ns at the end of the previous step */
    int64_t step_start_ns;
};

#endif
