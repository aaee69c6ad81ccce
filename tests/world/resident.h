/* SPDX-License-Identifier: Apache-2.0
 *
 * A residency for unit tests: every unit in buffers of its graph's backend, with the
 * values and, after resident_pull, the gradients on the host. Checks that want and done
 * come in pairs and that no more than two units are open at once.
 */
#ifndef ACCEL_TESTS_RESIDENT_H
#define ACCEL_TESTS_RESIDENT_H

#include "nn/nn.h"

struct resident {
    const struct units *units; /* not owned */
    accel_dtype_t compute;
    const struct backend *be;
    float **master; /* [units][elems]: change freely, then resident_refresh */
    float **grad;   /* on a device: as resident_pull found them */
    float **sum;    /* the backend's gradients; grad itself, where that is the host */
    void **data;    /* the backend's: master in the compute dtype */
    int *open;      /* wants not yet done, per unit */
    int faults; /* broken protocol: unpaired done, third open unit, grad without want */
};

/* Allocates (0: fine) and fills master from each parameter's init by a small
 * counter-based generator. */
int resident_open(struct resident *r, const struct units *units, accel_dtype_t compute,
                  unsigned seed);
void resident_refresh(struct resident *r); /* master -> data */
/* After a backward, before `grad` is read: a copy from a device, nothing on the CPU. */
void resident_pull(struct resident *r);
void resident_zero_grad(struct resident *r);
struct residency resident_residency(struct resident *r);
void resident_close(struct resident *r);

#endif
