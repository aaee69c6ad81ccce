/* SPDX-License-Identifier: Apache-2.0
 *
 * One side of the benchmark of a training step: GPT-2 124M on one process, answering
 * requests line by line (see peer.h). In: dtype, batch, sequence, threads. Out: times.
 */
#ifndef ACCEL_TESTS_BENCH_OWN_H
#define ACCEL_TESTS_BENCH_OWN_H

#include "common/common.h"

struct own_options {
    accel_dtype_t compute;
    int batch, time, threads;
};

/* Serves stdin until its end; the exit code. */
int own_serve(const struct own_options *o);

#endif
