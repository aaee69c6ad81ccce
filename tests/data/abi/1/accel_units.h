/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_units.h: bring your own compute. Your program has its own forward and backward;
 * the library shards, reduces, updates and saves.
 */
#include "accel.h" /* which includes this header at its end */

#ifndef ACCEL_UNITS_H
#define ACCEL_UNITS_H

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- units: bring your own compute --------------------------------------------------
 * The alternative to modules, for programs with their own forward and backward: named
 * parameters in units (each gathered as a whole), declared between accel_open and
 * accel_prepare, and a job whose model is NULL. Sharding, precision, optimizer,
 * checkpoints and preemption are the same as for modules; each can resume from a
 * checkpoint of the other if names and shapes are equal. A micro-batch:
 *   accel_next or accel_next_samples;
 *   for each unit in any order: accel_unit_want, accel_unit_values, accel_unit_done;
 *   the same for the backward, with accel_unit_gradient;
 *   accel_finish_backward; accel_step.
 * Pointers are in the memory of the run's device: on a GPU device memory, which kernels
 * read and write on the stream of accel_stream; on CPUs host memory. */

/* The cudaStream_t that the run computes on; NULL on CPUs. Work queued on it after
 * accel_unit_want sees the unit's values. Gradients must be complete once the work that
 * is queued on it at the next call has run. Use events to order your own streams
 * against it. */
void *accel_stream(const accel_t *run);

typedef struct accel_unit accel_unit_t;
/* Adds a unit to the run, which owns it; `name` becomes the prefix of its parameters'
 * full names ("": none). NULL on failure, also in `err`. */
accel_unit_t *accel_unit_new(accel_t *run, const char *name, accel_error_t *err);
/* Declares a parameter of shape dims[ndim]; its full name is "unit.name". Parameters
 * are numbered 0, 1, ... in the order of declaration. Initial values come from `init`
 * or, if `values` is not NULL, from values[elems], the same on all ranks. accel_prepare
 * reads `values` (each rank copies its range), which must stay valid until then. */
accel_status_t accel_unit_param(accel_unit_t *unit, const char *name, int ndim,
                                const int64_t *dims, accel_init_t init,
                                const float *values, accel_error_t *err);
/* Gathers the unit's full parameters, which stay until accel_unit_done; calls may be
 * nested. At most two different units at a time. Collective: ranks must want the same
 * units in the same order. Errors: ACCEL_EINVAL (a third unit, not prepared),
 * ACCEL_EPEER. */
accel_status_t accel_unit_want(accel_unit_t *unit, accel_error_t *err);
void accel_unit_done(accel_unit_t *unit);
/* Parameter `index` of a wanted unit, row-major, in accel_unit_dtype; read only. NULL
 * if the unit is not wanted or has no such parameter; accel_finish_backward then
 * reports the error. */
const void *accel_unit_values(const accel_unit_t *unit, int index);
accel_dtype_t accel_unit_dtype(const accel_unit_t *unit); /* the compute dtype */
/* The full gradient of parameter `index` in this micro-batch, float32; the program adds
 * to it. *out is NULL for a frozen parameter. Valid until the gradient of another unit
 * is requested, which may reduce this one, or until accel_finish_backward. Collective
 * like accel_unit_want. Errors: ACCEL_EINVAL (no micro-batch, no such parameter),
 * ACCEL_EPEER. */
accel_status_t accel_unit_gradient(accel_unit_t *unit, int index, float **out,
                                   accel_error_t *err);
/* Ends the micro-batch. `loss` is the mean over its samples; the gradients are its
 * derivatives, and are reduced on the last micro-batch of a step. All units must be
 * done. Collective. */
accel_status_t accel_finish_backward(accel_t *run, double loss, accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
