/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA module as libaccel uses it: looked for and loaded only when a GPU is wanted, so
 * that a node without GPUs needs no driver and no toolkit.
 */
#ifndef ACCEL_BACKEND_CUDA_LOAD_H
#define ACCEL_BACKEND_CUDA_LOAD_H

#include "backend/backend.h"

/* Opens visible device number `device`, with the module of the installation or the one that
 * ACCEL_CUDA_MODULE names. */
accel_status_t backend_cuda_open(struct backend **out, int device, accel_error_t *err);

/* "accel_cuda.so 0.1.0, CUDA 13.0" or the reason why there is none, for `accel doctor`; needs
 * no driver. */
accel_status_t backend_cuda_module(char *text, size_t len, accel_error_t *err);

#endif
