/* SPDX-License-Identifier: Apache-2.0
 *
 * Units: what is gathered, reduced and updated together. A unit is a list of named
 * parameters in one flat range. The module tree (nn/) and programs with their own
 * compute (run/own_compute.c) both make units; all later stages see only units.
 */
#ifndef ACCEL_TENSOR_UNITS_H
#define ACCEL_TENSOR_UNITS_H

#include "plan/plan.h"
#include "tensor/graph.h"

/* One unit. Parameters are owned by whoever declared them. */
struct unit {
    /* path of its module; "" for the root unit */
    const char *name;
    /* in order of declaration */
    accel_tensor_t **param;
    int param_count;
    /* with alignment gaps */
    int64_t elems;
    /* elements at the end that are not trained */
    int64_t frozen;
    /* number of the optimizer that trains the rest; -1: none does */
    int optim;
    struct plan_types types;
};

/* All units of a run; one without parameters is allowed. */
struct units {
    struct unit *unit;
    int count;
};

/* Gives every parameter its unit and its offset there (a multiple of 32 elements): in
 * order of declaration, with frozen parameters last, so that what is trained is one
 * range from the start. May be called again when needs_grad has changed. */
void units_lay_out(struct units *u);
/* Appends copies of the units of `part` to those of `u`; the caller keeps `part`. Lay
 * them out again before use. */
accel_status_t units_append(struct units *u, const struct units *part,
                            accel_error_t *err);
/* types_out[units]: the dtypes of each unit that differ from the run's. */
void units_types(const struct units *u, struct plan_types *types_out);
/* The parameters that may be gathered in fp8 (param_is_codable), in the order of units:
 * their positions, and the tensors. Either may be NULL. Returns how many there are. */
int units_coded(const struct units *u, struct plan_coded *list,
                accel_tensor_t **param_out);
/* Frees the lists, which are one array that begins with the first unit's list, but not
 * the parameters. NULL is fine. */
void units_free(struct units *u);

/* A declared parameter: float32, in no unit yet, without values. Takes over `name`, a
 * malloc, and frees it on failure (NULL: out of memory). Checks shape and initialiser;
 * `owner` is for the message. The caller frees the parameter with param_free. NULL:
 * sticky error. */
accel_tensor_t *param_new(struct graph *g, const char *owner, char *name, int ndim,
                          const int64_t *dims, accel_init_t init);
/* NULL is fine. */
void param_free(accel_tensor_t *p);

#endif
