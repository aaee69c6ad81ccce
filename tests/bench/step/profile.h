/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the time of a step goes: a backend that calls another one and keeps the time of
 * each family of kernels, and of each shape of product. In: a backend. Out: one that
 * gives the same results. Adds two clock reads per kernel.
 */
#ifndef ACCEL_TESTS_BENCH_PROFILE_H
#define ACCEL_TESTS_BENCH_PROFILE_H

#include "backend/device.h"

enum profile_kind {
    PROFILE_GEMM,
    PROFILE_ATTENTION,
    PROFILE_NORM,
    PROFILE_ACTIVATION,
    PROFILE_XENT,
    PROFILE_EMBEDDING,
    PROFILE_REDUCE, /* column sums */
    PROFILE_ADD,
    PROFILE_NARROW, /* to 8 bits */
    PROFILE_KINDS
};

struct product { /* all products of one shape */
    struct gemm p;
    int count;
    int64_t ns;
};

struct profile {
    struct backend be; /* first: the vtable that the graph is given */
    const struct backend *inner;
    int64_t ns[PROFILE_KINDS];
    struct product product[32];
    int products;
};

const char *profile_name(enum profile_kind kind);
void profile_open(struct profile *p, const struct backend *inner);
void profile_reset(struct profile *p);

#endif
