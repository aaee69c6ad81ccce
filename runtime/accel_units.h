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
 * The second way in, for programs with a forward and backward of their own: named
 * parameters in units (what is gathered together), between accel_open and
 * accel_prepare, and a job whose model is NULL. Sharding, precision, optimizer,
 * checkpoints and preemption are those of modules; a checkpoint of the one goes on in
 * the other where names and shapes are equal. A micro-batch:
 *   accel_next or accel_next_samples;
 *   for each unit in any order: accel_unit_want, accel_unit_values, accel_unit_done;
 *   the same for the backward, with accel_unit_gradient;
 *   accel_finish_backward; accel_step. Pointers are of the run's device: on a GPU
 *   device memory, which kernels read and write on the stream of accel_stream; on CPUs
 *   the host's. */

/* The cudaStream_t that the run computes on; NULL on CPUs. Work queued on it after
 * accel_unit_want sees the unit's values. Gradients must be complete with the work that
 * is queued on it at the next call. Order your own streams against it with events. */
void *accel_stream(const accel_t *run);

typedef struct accel_unit accel_unit_t;
/* A unit of the run; `name` becomes the front of its parameters' full names ("" for
 * none). Owned by the run. NULL on failure, also in `err`. */
accel_unit_t *accel_unit_new(accel_t *run, const char *name, accel_error_t *err);
/* Declares parameter "unit.name" of shape dims[ndim]; they are numbered 0, 1, ... in
 * the order of declaration. Initial values: those of `init`, or, where `values` is not
 * NULL, values[elems], the same on all ranks; it is read by accel_prepare (each rank
 * copies its range) and must be there until then. */
accel_status_t accel_unit_param(accel_unit_t *unit, const char *name, int ndim,
                                const int64_t *dims, accel_init_t init,
                                const float *values, accel_error_t *err);
/* Gives the unit's full parameters until accel_unit_done; may be nested. At most two
 * different units at a time. Collective: ranks must want the same units in the same
 * order. Errors: ACCEL_EINVAL (a third unit, not prepared), ACCEL_EPEER. */
accel_status_t accel_unit_want(accel_unit_t *unit, accel_error_t *err);
void accel_unit_done(accel_unit_t *unit);
/* Parameter `index` of a wanted unit, row-major, in accel_unit_dtype; read only. NULL
 * where the unit is not wanted or has no such parameter, which accel_finish_backward
 * reports. */
const void *accel_unit_values(const accel_unit_t *unit, int index);
accel_dtype_t accel_unit_dtype(const accel_unit_t *unit); /* the compute dtype */
/* The full gradient of parameter `index` in this micro-batch, float32, to add to; *out
 * is NULL for a frozen one. Valid until the gradient of another unit is requested,
 * which may reduce this one, or until accel_finish_backward. Collective like
 * accel_unit_want. Errors: ACCEL_EINVAL (no micro-batch, no such parameter),
 * ACCEL_EPEER. */
accel_status_t accel_unit_gradient(accel_unit_t *unit, int index, float **out,
                                   accel_error_t *err);
/* Ends the micro-batch: `loss` is the mean over its samples, and the gradients are its
 * derivatives. On the last micro-batch of a step they are reduced. All units must be
 * done. Collective. */
accel_status_t accel_finish_backward(accel_t *run, double loss, accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
