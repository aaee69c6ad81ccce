/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA module as libaccel sees it. It is looked for and loaded only when a GPU is
 * wanted, so that a node without GPUs needs neither driver nor toolkit.
 */
#ifndef ACCEL_BACKEND_CUDA_LOAD_H
#define ACCEL_BACKEND_CUDA_LOAD_H

#include "backend/device.h"

/* Opens visible device number `device` (from 0) with the installed module or the one
 * that ACCEL_CUDA_MODULE names. *backend_out is the caller's, to be closed with
 * backend_close. A0440 .. A0445 say what is missing. */
accel_status_t backend_cuda_open(struct backend **backend_out, int device,
                                 accel_error_t *err);

/* Writes "accel_cuda.so 0.1.0, CUDA 13.0" into `text`, or fails with the reason why
 * there is no module. For `accel doctor`; needs no driver. */
accel_status_t backend_cuda_module(char *text, size_t len, accel_error_t *err);

#endif
