/* SPDX-License-Identifier: Apache-2.0
 *
 * Clocks and power of one device by NVML, loaded at run time: its entry points are declared
 * here, for toolkits come without its header.
 */
#include <dlfcn.h>
#include <string.h>

#include "tests/bench/gpu/gpu.h"

enum { CLOCK_SM = 1, CLOCK_MEMORY = 2 };

typedef int init_f(void);
typedef int handle_f(const char *bus_id, void **device);
typedef int clock_f(void *device, int type, unsigned *mhz);
typedef int power_f(void *device, unsigned *milliwatts);

static struct {
    void *device;
    clock_f *clock;
    power_f *power;
} nvml;

/* ISO C has no conversion from data to functions. */
static bool symbol(void *library, const char *name, void *function)
{
    void *p = dlsym(library, name);

    memcpy(function, &p, sizeof(p));
    return p != NULL;
}

bool nvml_open(const char *bus_id)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    handle_f *handle;
    init_f *init;

    return library && bus_id && symbol(library, "nvmlInit_v2", &init) &&
           symbol(library, "nvmlDeviceGetHandleByPciBusId_v2", &handle) &&
           symbol(library, "nvmlDeviceGetClockInfo", &nvml.clock) &&
           symbol(library, "nvmlDeviceGetPowerUsage", &nvml.power) && !init() &&
           !handle(bus_id, &nvml.device);
}

bool nvml_read(struct gpu_reading *out)
{
    unsigned milliwatts = 0;

    if (!nvml.device || nvml.clock(nvml.device, CLOCK_SM, &out->sm_mhz) ||
        nvml.clock(nvml.device, CLOCK_MEMORY, &out->memory_mhz) ||
        nvml.power(nvml.device, &milliwatts))
        return false;
    out->watts = (milliwatts + 500) / 1000;
    return true;
}
