/* SPDX-License-Identifier: Apache-2.0
 *
 * What libaccel and the CUDA module, accel_cuda.so, know of each other: one function with a C
 * name. The module never calls libaccel.
 */
#ifndef ACCEL_BACKEND_CUDA_MODULE_H
#define ACCEL_BACKEND_CUDA_MODULE_H

#include "backend/backend.h"

#define CUDA_MODULE_FILE  "accel_cuda.so"
#define CUDA_MODULE_ENTRY "accel_cuda_module"
/* Counts up whenever a member of this struct changes its meaning. */
#define CUDA_MODULE_ABI 1

struct accel_cuda_module {
    int abi;
    size_t vtable_bytes; /* sizeof(struct backend) when it was built */
    const char *version; /* of accel */
    const char *toolkit; /* "CUDA 13.0" */
    /* `device` counts the visible ones from 0. */
    accel_status_t (*open)(struct backend **out, int device, accel_error_t *err);
};

typedef const struct accel_cuda_module *accel_cuda_module_f(void);

#endif
