/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device of the stand-in toolkit says of itself: as an H100, with the bus ids of
 * $FAKE_CUDA_BUS, by default those that end a list of 0000:01:00.0, 0000:02:00.0, ... An
 * entry "NAME=BUS" is for the device that CUDA_VISIBLE_DEVICES names so.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fakecuda.h"

enum { SHARED_MOST_BYTES = 227 << 10, PROCESSORS = 132 };

static cudaError_t begin_on(int device)
{
    cudaError_t error = fake_begin();

    if (!error && (device < 0 || device >= fake.devices))
        error = cudaErrorInvalidDevice;
    return error;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    *count = error ? 0 : fake.devices;
    return fake_end(error);
}

cudaError_t cudaSetDevice(int device)
{
    fake_lock hold(fake.lock);
    cudaError_t error = begin_on(device);

    if (!error)
        fake_device = device;
    return fake_end(error);
}

cudaError_t cudaGetDevice(int *device)
{
    fake_lock hold(fake.lock);

    *device = fake_device;
    return fake_end(fake_begin());
}

/* ---- names on the bus ------------------------------------------------------------------- */

struct address {
    unsigned domain, bus, device;
};

/* The bus id that stands after "NAME=" for the name of visible device `device`, or NULL. */
static const char *bus_of_name(const char *list, int device)
{
    const char *name = getenv("CUDA_VISIBLE_DEVICES");
    size_t len;

    for (int i = 0; name && i < device; i++)
        name = strchr(name, ',') ? strchr(name, ',') + 1 : NULL;
    len = name ? strcspn(name, ",") : 0;
    for (; list && len; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
        if (strncmp(list, name, len) == 0 && list[len] == '=')
            return list + len + 1;
    return NULL;
}

static struct address address_of(int device)
{
    const char *list = getenv("FAKE_CUDA_BUS"), *named = bus_of_name(list, device);
    struct address a = { 0, (unsigned)device + 1, 0 };

    if (named) {
        sscanf(named, "%x:%x:%x", &a.domain, &a.bus, &a.device);
        return a;
    }
    for (int i = 0; list && i < device; i++) {
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    if (list)
        sscanf(list, "%x:%x:%x", &a.domain, &a.bus, &a.device);
    return a;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int len, int device)
{
    fake_lock hold(fake.lock);
    cudaError_t error = begin_on(device);

    if (!error) {
        struct address a = address_of(device);

        snprintf(text, (size_t)len, "%04X:%02X:%02X.0", a.domain, a.bus, a.device);
    }
    return fake_end(error);
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();
    struct address want = { 0, 0, 0 };

    if (!error && sscanf(text, "%x:%x:%x", &want.domain, &want.bus, &want.device) != 3)
        error = cudaErrorInvalidValue;
    for (int i = 0; !error && i < fake.devices; i++) {
        struct address a = address_of(i);

        if (a.domain == want.domain && a.bus == want.bus && a.device == want.device) {
            *device = i;
            return cudaSuccess;
        }
    }
    return fake_end(error ? error : cudaErrorInvalidDevice);
}

/* ---- properties ------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    fake_lock hold(fake.lock);
    cudaError_t error = begin_on(device);

    if (error)
        return fake_end(error);
    memset(prop, 0, sizeof(*prop));
    snprintf(prop->name, sizeof(prop->name), "stand-in GPU");
    prop->totalGlobalMem = fake.memory;
    prop->sharedMemPerBlockOptin = SHARED_MOST_BYTES;
    prop->major = fake.capability / 10;
    prop->minor = fake.capability % 10;
    prop->multiProcessorCount = PROCESSORS;
    prop->memoryPoolsSupported = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    fake_lock hold(fake.lock);

    *least = 0;
    *greatest = -5;
    return fake_end(fake_begin());
}

/* Versions may be asked without a device. */
cudaError_t cudaDriverGetVersion(int *version)
{
    fake_lock hold(fake.lock);

    fake_begin();
    *version = fake.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
