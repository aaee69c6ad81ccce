/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds NVML and its functions. In: the system's libraries. Out: a table of functions,
 * or the reason why there is none. Does not require the library, nor a new one.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "common/common.h"
#include "topology/nvml.h"

/* Which function goes to which field; the newest name comes first. Newer drivers
 * keep the old names. Another version suffix may mean another struct, so only known
 * names are tried. */
static const struct {
    size_t offset;
    bool needed;
    const char *names[3];
} symbols[] = {
#define SYMBOL(field, needed, ...)                                                     \
    {                                                                                  \
        offsetof(struct nvml, field), needed,                                          \
        {                                                                              \
            __VA_ARGS__                                                                \
        }                                                                              \
    }
    SYMBOL(init, true, "nvmlInit_v2", "nvmlInit"),
    SYMBOL(shutdown, true, "nvmlShutdown"),
    SYMBOL(device_count, true, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"),
    SYMBOL(device, true, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"),
    SYMBOL(uuid, true, "nvmlDeviceGetUUID"),
    SYMBOL(pci, true, "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2",
           "nvmlDeviceGetPciInfo"),
    SYMBOL(error_string, false, "nvmlErrorString"),
    SYMBOL(driver_version, false, "nvmlSystemGetDriverVersion"),
    SYMBOL(name, false, "nvmlDeviceGetName"),
    SYMBOL(memory, false, "nvmlDeviceGetMemoryInfo"),
    SYMBOL(mig_mode, false, "nvmlDeviceGetMigMode"),
    SYMBOL(mig_count, false, "nvmlDeviceGetMaxMigDeviceCount"),
    SYMBOL(mig_device, false, "nvmlDeviceGetMigDeviceHandleByIndex"),
    SYMBOL(gpu_instance, false, "nvmlDeviceGetGpuInstanceId"),
    SYMBOL(compute_instance, false, "nvmlDeviceGetComputeInstanceId"),
    SYMBOL(nvlink_state, false, "nvmlDeviceGetNvLinkState"),
    SYMBOL(nvlink_remote_type, false, "nvmlDeviceGetNvLinkRemoteDeviceType"),
    SYMBOL(nvlink_remote, false, "nvmlDeviceGetNvLinkRemotePciInfo_v2",
           "nvmlDeviceGetNvLinkRemotePciInfo"),
    SYMBOL(clock, false, "nvmlDeviceGetClockInfo"),
    SYMBOL(max_clock, false, "nvmlDeviceGetMaxClockInfo"),
    SYMBOL(reasons, false, "nvmlDeviceGetCurrentClocksEventReasons",
           "nvmlDeviceGetCurrentClocksThrottleReasons"),
    SYMBOL(power, false, "nvmlDeviceGetPowerUsage"),
    SYMBOL(power_limit, false, "nvmlDeviceGetEnforcedPowerLimit",
           "nvmlDeviceGetPowerManagementLimit"),
#undef SYMBOL
};

const char *nvml_error(const struct nvml *n, int rc)
{
    const char *text = n->error_string ? n->error_string(rc) : NULL;

    return text ? text : "unknown NVML error";
}

/* Fills the table. Returns the name of the first function that is needed and
 * missing, or NULL. */
static const char *fill_table(struct nvml *n)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(symbols); i++) {
        const char *const *names = symbols[i].names;
        void *f = NULL;

        for (size_t k = 0; !f && k < ACCEL_ARRAY_SIZE(symbols[i].names) && names[k];
             k++)
            f = dlsym(n->library, names[k]);
        if (!f && symbols[i].needed)
            return names[0];
        memcpy((char *)n + symbols[i].offset, &f, sizeof(f));
    }
    return NULL;
}

enum nvml_state nvml_open(struct nvml *n, char *why, size_t len)
{
    const char *missing;
    int rc;

    memset(n, 0, sizeof(*n));
    n->library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!n->library) {
        snprintf(why, len, "%s", dlerror());
        return NVML_ABSENT;
    }
    missing = fill_table(n);
    if (missing) {
        snprintf(why, len, "libnvidia-ml.so.1 has no %s: the driver is too old",
                 missing);
    } else {
        rc = n->init();
        if (rc == NVML_SUCCESS)
            return NVML_READY;
        snprintf(why, len, "NVML: %s%s", nvml_error(n, rc),
                 rc == NVML_LIB_RM_VERSION_MISMATCH
                     ? " (was the driver updated without a reboot?)"
                 : rc == NVML_DRIVER_NOT_LOADED
                     ? " (the kernel module nvidia is not loaded)"
                     : "");
    }
    dlclose(n->library);
    n->library = NULL;
    return NVML_BROKEN;
}

void nvml_print_bus_id(const struct nvml_pci *pci, char *out, size_t len)
{
    snprintf(out, len, "%04x:%02x:%02x.0", pci->domain, pci->bus & 0xff,
             pci->device & 0xff);
}

bool nvml_bus_id(const struct nvml *n, nvml_device_t *device, char *out, size_t len)
{
    struct nvml_pci pci;

    memset(&pci, 0, sizeof(pci));
    if (n->pci(device, &pci) != NVML_SUCCESS)
        return false;
    nvml_print_bus_id(&pci, out, len);
    return true;
}

void nvml_close(struct nvml *n)
{
    if (!n->library)
        return;
    n->shutdown();
    dlclose(n->library);
    n->library = NULL;
}
