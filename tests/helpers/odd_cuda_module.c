/* SPDX-License-Identifier: Apache-2.0
 *
 * A module as libaccel must refuse it: of another interface, version or build, as
 * ODD_CUDA_MODULE says (abi, version, table).
 */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/module.h"

static accel_status_t never(struct backend **out, int device, accel_error_t *err)
{
    (void)out;
    (void)device;
    (void)err;
    return ACCEL_EBUG;
}

__attribute__((visibility("default"))) const struct accel_cuda_module *
accel_cuda_module(void)
{
    static struct accel_cuda_module m;
    const char *odd = getenv("ODD_CUDA_MODULE");

    m = (struct accel_cuda_module){ CUDA_MODULE_ABI, sizeof(struct backend),
                                    PACKAGE_VERSION, "nothing", never };
    if (odd && !strcmp(odd, "abi"))
        m.abi = CUDA_MODULE_ABI + 1;
    if (odd && !strcmp(odd, "version"))
        m.version = "0.0.9";
    if (odd && !strcmp(odd, "table"))
        m.vtable_bytes = 8;
    return &m;
}
