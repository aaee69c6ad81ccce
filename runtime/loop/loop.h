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

struct loop {
    char *host_batch; /* a micro-batch on its way to the backend */
    size_t host_batch_bytes;
    int64_t batch_at[DATA_MAX_FIELDS]; /* byte offset of each field in host_batch */
    int micro;                         /* micro-batches done in the current step */
    double loss_sum;                   /* of this step's micro-batches, this rank */
    bool in_micro;                     /* a micro-batch is open: backward is due */
    bool in_backward;                  /* and backward has begun (own compute) */
    int64_t step_start_ns;
};

/* ---- batch.c --------------------------------------------------------------------- */

/* Allocates room for a micro-batch on the host. */
accel_status_t batch_open(accel_t *run, accel_error_t *err);
/* Reads samples first .. first + count, in the run's order or of the held-out part,
 * into run->loop.host_batch. */
accel_status_t batch_take(accel_t *run, int64_t first, int count, bool held_out,
                          accel_error_t *err);
/* Makes one tensor per field of the first `count` samples of run->loop.host_batch. */
accel_status_t batch_tensors(accel_t *run, int count, accel_tensor_t **batch_out,
                             accel_error_t *err);

#endif
