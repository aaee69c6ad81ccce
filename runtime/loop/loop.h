/* SPDX-License-Identifier: Apache-2.0
 *
 * loop/: one optimizer step, from the batches to the agreement of all ranks at its end.
 */
#ifndef ACCEL_LOOP_H
#define ACCEL_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "accel.h"
#include "data/data.h"
#include "loader/host_batch.h"

/* What a step in progress knows. All of it is rebuilt from the
 * cursor when a run resumes. */
struct loop {
    /* a micro-batch on its way to the backend, behind the losses */
    struct host_batch host;
    /* micro-batches done in the current step */
    int micro;
    /* [accumulate], the start of `host`: losses of a model's micro-batches in this
     * step. A device writes them when it comes to it; they are read after the step's
     * one wait. */
    float *losses;
    /* the sum of those that a program of own compute hands in */
    double loss_sum;
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

/* ---- batch.c --------------------------------------------------------------------- */

/* Allocates host memory for the losses of a step and for a micro-batch of data. Not
 * collective. */
accel_status_t batch_open(accel_t *run, accel_error_t *err);
/* Starts a micro-batch: frees the tensors of the one before and sets what dropout draws
 * from: `count` samples, the first of which is number `first` of the run. */
void batch_begin(accel_t *run, int64_t first, int64_t count);
/* Reads samples [first, first + count) into run->loop.host: of the run's order,
 * or of the held-out part. At most job.batch of them. Errors are those of data/. */
accel_status_t batch_take(accel_t *run, int64_t first, int count, bool held_out,
                          accel_error_t *err);
/* Makes one tensor per field, [count, field's dimensions], of the samples in
 * run->loop.host. batch_out[fields]; the tensors are the graph's. */
accel_status_t batch_tensors(accel_t *run, int count, accel_tensor_t **batch_out,
                             accel_error_t *err);

#endif
