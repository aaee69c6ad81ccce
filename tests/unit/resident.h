/* SPDX-License-Identifier: Apache-2.0
 *
 * A residency for unit tests: every unit in plain buffers of this process. Checks that
 * want and done come in pairs and that no more than two units are open at once.
 */
#ifndef ACCEL_TESTS_RESIDENT_H
#define ACCEL_TESTS_RESIDENT_H

#include "nn/nn.h"

struct resident {
    const struct units *units; /* not owned */
    accel_dtype_t compute;
    float **master; /* [units][elems]: change freely, then resident_refresh */
    float **grad;
    void **data; /* master in the compute dtype */
    int *open;   /* wants not yet done, per unit */
    int faults; /* broken protocol: unpaired done, third open unit, grad without want */
};

/* Allocates (0: fine) and fills master from each parameter's init by a small counter-based
 * generator. */
int resident_open(struct resident *r, const struct units *units, accel_dtype_t compute,
                  unsigned seed);
void resident_refresh(struct resident *r); /* master -> data */
void resident_zero_grad(struct resident *r);
struct residency resident_residency(struct resident *r);
void resident_close(struct resident *r);

#endif
