/* SPDX-License-Identifier: Apache-2.0
 *
 * What Accelerate does with micro-batches, measured: tests/data/optim/accumulate.txt.
 */
#ifndef ACCEL_TESTS_ACCUMULATE_ROWS_H
#define ACCEL_TESTS_ACCUMULATE_ROWS_H

#include <stdbool.h>

enum { ACCUMULATE_MOST = 32 };

/* Two epochs of `batches` micro-batches, whose gradient is 1, with
 * gradient_accumulation_steps=every; [2 * batches] each. */
struct accumulate_row {
    int batches, every;
    /* is sync_gradients set, what has been added up, and the counter of steps */
    double sync[ACCUMULATE_MOST], gradient[ACCUMULATE_MOST], step[ACCUMULATE_MOST];
};

/* Checks that `same` is true of all rows. */
void accumulate_rows(bool (*same)(const struct accumulate_row *row));

#endif
