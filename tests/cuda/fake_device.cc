/* SPDX-License-Identifier: Apache-2.0
 *
 * The devices of the stand-in toolkit as the environment describes them, and its errors.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fakecuda.h"

struct fakecuda fake;
thread_local int fake_device;

/* ---- the environment -------------------------------------------------------------------- */

static const char *env(const char *name, const char *otherwise)
{
    const char *value = getenv(name);

    return value && *value ? value : otherwise;
}

/* CUDA_VISIBLE_DEVICES hides devices: the list ends at the first that does not exist. Names
 * (GPU-..., MIG-...) all count as existing, but of slices a process sees one only. */
static int visible(int devices)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    int found = 0;

    if (!list)
        return devices;
    while (*list && found < devices) {
        char *end;
        long ordinal = strtol(list, &end, 10);

        if (strncmp(list, "MIG-", 4) == 0)
            return 1;
        if (end != list && (ordinal < 0 || ordinal >= devices))
            break;
        found++;
        list = strchr(end, ',');
        if (!list)
            break;
        list++;
    }
    return found;
}

static void read_order(const char *order)
{
    fake.order = strcmp(order, "eager") == 0  ? ORDER_EAGER
                 : strcmp(order, "lazy") == 0 ? ORDER_LAZY
                                              : ORDER_RANDOM;
    fake.seed = strtoull(order, NULL, 10) * 2 + 1;
}

static void read_lose_after(const char *text)
{
    char *end;

    fake.lose_after = strtol(text, &end, 10);
    fake.lost_as = *end == ':' ? (cudaError_t)atoi(end + 1) : cudaErrorIllegalAddress;
}

static void read_taken(const char *text)
{
    char *end;

    fake.taken = strtoull(text, &end, 10);
    fake.taken_after = *end == ':' ? atol(end + 1) : 0;
}

static void read_environment(void)
{
    const char *devices = env("FAKE_CUDA_DEVICES", "1");

    fake.ready = true;
    fake.driver = atoi(env("FAKE_CUDA_DRIVER", "13000"));
    fake.devices = visible(atoi(devices) < DEVICES_MAX ? atoi(devices) : DEVICES_MAX);
    fake.open = fake.devices > 0 ? cudaSuccess : cudaErrorNoDevice;
    if (strcmp(devices, "nodriver") == 0)
        fake.driver = 0;
    if (fake.driver < CUDART_VERSION / 1000 * 1000)
        fake.open = cudaErrorInsufficientDriver;
    fake.capability = atoi(env("FAKE_CUDA_CAPABILITY", "90"));
    fake.memory = strtoull(env("FAKE_CUDA_MEMORY", "17179869184"), NULL, 10);
    read_taken(env("FAKE_CUDA_TAKEN", "0"));
    for (int i = 0; i < DEVICES_MAX; i++)
        fake.pool[i].device = i;
    fake.watch = atoi(env("FAKE_CUDA_WATCH", "0")) != 0;
    read_order(env("FAKE_CUDA_ORDER", "lazy"));
    read_lose_after(env("FAKE_CUDA_LOSE_AFTER", "-1"));
}

void fakecuda_reset(void)
{
    fake_lock hold(fake.lock);

    fake_free_all();
    fake_virtual_forget();
    fake.sticky = fake.last = cudaSuccess;
    fake.running = false;
    memset(&fake.counts, 0, sizeof(fake.counts));
    fake.kernels.clear();
    memset(fake.used, 0, sizeof(fake.used));
    for (auto &pool : fake.pool)
        pool = CUmemPoolHandle_st();
    fake.captures.clear();
    for (CUstream_st *stream : fake.streams)
        delete stream;
    fake.streams.clear();
    fake_device = 0;
    read_environment();
}

/* ---- errors ----------------------------------------------------------------------------- */

cudaError_t fake_begin(void)
{
    if (!fake.ready)
        read_environment();
    if (fake.running)
        return cudaErrorNotPermitted;
    return fake.open ? fake.open : fake.sticky;
}

cudaError_t fake_end(cudaError_t error)
{
    if (error && error != cudaErrorNotReady)
        fake.last = error;
    return error;
}

void fake_stick(cudaError_t error)
{
    if (!fake.sticky)
        fake.sticky = fake.last = error;
}

void fake_report(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "fake cuda: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
}

bool fake_kernel_begins(void)
{
    fake.counts.launches++;
    if (fake.lose_after >= 0 && fake.counts.launches > (uint64_t)fake.lose_after)
        fake_stick(fake.lost_as);
    return !fake.sticky;
}

void fakecuda_lose(cudaError_t error)
{
    fake_lock hold(fake.lock);

    fake_stick(error);
}

void fakecuda_counts_get(struct fakecuda_counts *out)
{
    fake_lock hold(fake.lock);

    *out = fake.counts;
    out->alive += fake.blocks.size();
    /* the default stream is the device's own */
    out->alive += fake.streams.empty() ? 0 : fake.streams.size() - 1;
}

uint64_t fake_random(void)
{
    fake.seed = fake.seed * 6364136223846793005u + 1442695040888963407u;
    return fake.seed >> 33;
}

cudaError_t cudaGetLastError(void)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    error = error ? error : fake.last;
    fake.last = cudaSuccess;
    return error;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
#define NAME(error, text)                                                              \
    {                                                                                  \
        error, #error, text                                                            \
    }
    NAME(cudaSuccess, "no error"),
    NAME(cudaErrorInvalidValue, "invalid argument"),
    NAME(cudaErrorMemoryAllocation, "out of memory"),
    NAME(cudaErrorInitializationError, "initialization error"),
    NAME(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    NAME(cudaErrorInsufficientDriver,
         "CUDA driver version is insufficient for CUDA runtime version"),
    NAME(cudaErrorDevicesUnavailable,
         "CUDA-capable device(s) is/are busy or unavailable"),
    NAME(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    NAME(cudaErrorInvalidDevice, "invalid device ordinal"),
    NAME(cudaErrorNoKernelImageForDevice,
         "no kernel image is available for execution on the device"),
    NAME(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    NAME(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    NAME(cudaErrorSymbolNotFound, "named symbol not found"),
    NAME(cudaErrorNotReady, "device not ready"),
    NAME(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    NAME(cudaErrorLaunchFailure, "unspecified launch failure"),
    NAME(cudaErrorNotPermitted, "operation not permitted"),
    NAME(cudaErrorNotSupported, "operation not supported"),
    NAME(cudaErrorStreamCaptureUnsupported,
         "operation not permitted when stream is capturing"),
    NAME(cudaErrorStreamCaptureInvalidated,
         "operation failed due to a previous error during capture"),
    NAME(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    NAME(cudaErrorCapturedEvent,
         "operation not permitted on an event last recorded in a capturing stream"),
    NAME(
        cudaErrorGraphExecUpdateFailure,
        "the graph update was not performed because it included changes which violated "
        "constraints specific to instantiated graph update"),
#undef NAME
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &e : errors)
        if (e.error == error)
            return e.name;
    return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &e : errors)
        if (e.error == error)
            return e.text;
    return "unrecognized error code";
}
