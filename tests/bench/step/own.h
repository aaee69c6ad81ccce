/* SPDX-License-Identifier: Apache-2.0
 *
 * One side of the benchmark of a training step: a model on one process, answering
 * requests line by line (see peer.h). In: model, dtype, batch, sequence, threads. Out: times.
 */
#ifndef ACCEL_TESTS_BENCH_OWN_H
#define ACCEL_TESTS_BENCH_OWN_H

#include "common/common.h"

struct own_options {
    bool llama; /* in place of GPT-2 */
    accel_dtype_t compute;
    /* linears multiply in fp8; weights are narrowed at each use, not once per step */
    bool fp8, uncached;
    int batch, time, micros, threads;
};

/* Serves stdin until its end; the exit code. */
int own_serve(const struct own_options *o);

#endif
