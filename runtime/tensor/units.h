/* SPDX-License-Identifier: Apache-2.0
 *
 * Units: what is gathered, reduced and updated together. A unit is a list of named
 * parameters in one flat range of float32. The module tree (nn/) and programs with their own
 * compute (run/own_compute.c) both make them; all that comes after knows nothing else.
 */
#ifndef ACCEL_TENSOR_UNITS_H
#define ACCEL_TENSOR_UNITS_H

#include "tensor/graph.h"

struct unit {
    const char *name;       /* path of its module; "" for the root unit */
    accel_tensor_t **param; /* in order of declaration */
    int param_count;
    int64_t elems;  /* with alignment gaps */
    int64_t frozen; /* elements at the end that are not trained */
};

struct units {
    struct unit *unit;
    int count;
};

/* Gives every parameter its unit and its place there (64-byte aligned offsets of float32):
 * in order of declaration, but those that need no gradient behind all others, so that what
 * is trained is one range from the start. May be called again when that has changed. */
void units_lay_out(struct units *u);
/* Frees lists that lie in one array, which begins with the first unit's. */
void units_free(struct units *u);

/* A declared parameter: float32, in no unit yet, without values. Takes over `name`, a
 * malloc, which it frees on failure (NULL: out of memory). Shape and initialiser are
 * checked; `owner` is for the message. NULL: sticky error. */
accel_tensor_t *param_new(struct graph *g, const char *owner, char *name, int ndim,
                          const int64_t *dims, accel_init_t init);
void param_free(accel_tensor_t *p); /* NULL is fine */

#endif
