/* SPDX-License-Identifier: Apache-2.0
 *
 * The device of a test: with ACCEL_CUDA_MODULE the one that module opens, else the stand-in of
 * the build, whose kernels run on the CPU.
 */
#ifndef ACCEL_TESTS_CUDA_DEVICE_H
#define ACCEL_TESTS_CUDA_DEVICE_H

#include "backend/backend.h"

/* Never NULL: without a module the test ends as skipped, without a device as failed. */
struct backend *cuda_device(void);

#endif
