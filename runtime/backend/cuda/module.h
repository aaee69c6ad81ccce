/* SPDX-License-Identifier: Apache-2.0
 *
 * What libaccel and the CUDA module, accel_cuda.so, know of each other: one function
 * with C linkage. The module never calls libaccel.
 */
#ifndef ACCEL_BACKEND_CUDA_MODULE_H
#define ACCEL_BACKEND_CUDA_MODULE_H

#include "backend/device.h"

#define CUDA_MODULE_FILE  "accel_cuda.so"
#define CUDA_MODULE_ENTRY "accel_cuda_module"
/* Incremented whenever a member of this struct changes its meaning. */
#define CUDA_MODULE_ABI 1

/* Static data of the module. libaccel checks abi first: only then do the rest mean
 * anything. */
struct accel_cuda_module {
    int abi;
    size_t vtable_bytes; /* sizeof(struct backend) at build time */
    const char *version; /* version of accel */
    const char *toolkit; /* "CUDA 13.0" */
    /* Opens visible device number `device`, from 0; contract as backend_cuda_open. */
    accel_status_t (*open)(struct backend **out, int device, accel_error_t *err);
};

typedef const struct accel_cuda_module *accel_cuda_module_f(void);

#endif
