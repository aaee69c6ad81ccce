/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the module of a test (cuda_device.h): the stand-in's lies in the folder beside
 * that of the program.
 */
#include "tests/world/cuda_device.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda_load.h"
#include "tests/tap.h"

#define STAND_IN "/cuda/accel_cuda.so"

bool cuda_module_named(void)
{
    char path[PATH_MAX + sizeof(STAND_IN)];
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);

    if (getenv("ACCEL_CUDA_MODULE"))
        return true;
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

/* Where the driver has made its device files, one that does not answer is a failure. */
bool cuda_is_absent(const accel_error_t *err)
{
    return err->message == 440 || ((err->message == 443 || err->message == 444) &&
                                   access("/dev/nvidiactl", F_OK) != 0);
}

struct backend *cuda_device(void)
{
    struct backend *device = NULL;
    accel_error_t err = { 0 };

    if (!cuda_module_named())
        tap_skip_all("this build has no CUDA module: no C++ compiler");
    if (backend_cuda_open(&device, 0, &err)) {
        if (cuda_is_absent(&err))
            tap_skip_all(err.text);
        tap_ok(false, "the device opens: %s", err.text);
        exit(tap_done());
    }
    tap_diag("%s", device->isa);
    return device;
}

float *cuda_device_array(const struct backend *be, int elems, float first)
{
    const size_t bytes = (size_t)elems * sizeof(float);
    float *values = malloc(bytes);
    void *p = NULL;

    for (int i = 0; values && i < elems; i++)
        values[i] = first + (float)(i % 7) / 8.0f;
    if (!values || be->alloc(be, MEMORY_BUFFERS, bytes, &p, NULL))
        exit(1);
    be->from_host(be, p, values, bytes);
    free(values);
    return p;
}

/* The module has it loaded, or it is not there. */
bool cuda_stand_in(const char *name, void *function)
{
    void *library = dlopen("libfakecuda.so", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, name) : NULL;

    if (library)
        dlclose(library);
    memcpy(function, &symbol, sizeof(symbol));
    return symbol != NULL;
}
