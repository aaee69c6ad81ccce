/* SPDX-License-Identifier: Apache-2.0
 *
 * The device of a test: with ACCEL_CUDA_MODULE the one that module opens, else the
 * stand-in of the build, whose kernels run on the CPU.
 */
#ifndef ACCEL_TESTS_CUDA_DEVICE_H
#define ACCEL_TESTS_CUDA_DEVICE_H

#include "backend/device.h"

/* False: without a name in the environment, and this build has no stand-in. */
bool cuda_module_named(void);

/* Was accel built without CUDA, or has the machine no GPU? Then a test is skipped for
 * what the error says; another error is a failure. */
bool cuda_is_absent(const accel_error_t *err);

/* Never NULL: without a module, or where it is absent, the test ends as skipped; with a
 * device that does not open, as failed. */
struct backend *cuda_device(void);

/* x[i] = first + i % 7 / 8 on the device, for the caller to free; ends the test where
 * there is no memory. */
float *cuda_device_array(const struct backend *be, int elems, float first);

/* Writes a function of the stand-in to *function, once a device is open. False on a
 * GPU: what only the stand-in can show is skipped. */
bool cuda_stand_in(const char *name, void *function);

#endif
