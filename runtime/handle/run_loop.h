/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run keeps for loop/: the step that is being made.
 */
#ifndef ACCEL_HANDLE_RUN_LOOP_H
#define ACCEL_HANDLE_RUN_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "accel.h"
#include "data/host_batch.h"
#include "optim/accumulate.h"

/* What the time of an iteration goes to, on the host. */
enum phase {
    PHASE_OTHER, /* the program, between accel_step and the next micro-batch */
    PHASE_DATA,
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_OPTIMIZER,
    PHASE_WAIT, /* for the device and for other ranks */
    PHASES
};

/* What a step in progress knows. All of it is rebuilt from the
 * cursor when a run resumes. */
struct loop {
    /* a micro-batch on its way to the backend, behind the losses */
    struct host_batch host;
    /* micro-batches done in the current step: those with a backward */
    int micro;
    /* [losses_room], the start of `host`: the first `loss_count` are losses of this
     * step. A device writes them when it comes to it; they are read after the step's
     * one wait. */
    float *losses;
    int losses_room, loss_count;
    /* the sum of losses that had no room, and of those that a program of own compute
     * hands in */
    double loss_sum;
    /* the group of micro-batches in the making, and as it was before the one that is
     * open */
    struct accumulate group, group_before;
    /* nanoseconds of this iteration, and since when the time is that of the phase at
     * work */
    int64_t phase_ns[PHASES], phase_from_ns;
    /* clock_ns when the evaluation at work began; 0: none is */
    int64_t evaluating_from_ns;
    /* of the last iteration; step 0: none yet */
    accel_step_info_t last;
    /* a micro-batch is open: its backward is due */
    bool in_micro;
    /* and its backward has begun (own compute) */
    bool in_backward;
    /* characters of the backend's isa that the log has shown */
    size_t isa_shown;
    /* the log has shown its advice */
    bool advice_shown;
    /* clock_ns at the end of the step before */
    int64_t step_start_ns;
};

#endif
