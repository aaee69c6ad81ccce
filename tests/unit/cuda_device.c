/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the module of a test (cuda_device.h): the stand-in's lies in the folder beside that
 * of the program.
 */
#include "tests/unit/cuda_device.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda_load.h"
#include "tests/tap.h"

#define STAND_IN "/cuda/accel_cuda.so"

static bool name_stand_in(void)
{
    char path[PATH_MAX + sizeof(STAND_IN)];
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);

    path[n > 0 ? n : 0] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(path, '/');

        if (!slash)
            return false;
        *slash = '\0';
    }
    strcat(path, STAND_IN);
    return !access(path, R_OK) && !setenv("ACCEL_CUDA_MODULE", path, 1);
}

struct backend *cuda_device(void)
{
    struct backend *device = NULL;
    accel_error_t err = { 0 };

    if (!getenv("ACCEL_CUDA_MODULE") && !name_stand_in())
        tap_skip_all("this build has no CUDA module: no C++ compiler");
    if (backend_cuda_open(&device, 0, &err)) {
        tap_ok(false, "the device opens: %s", err.text);
        exit(tap_done());
    }
    tap_diag("%s", device->isa);
    return device;
}
