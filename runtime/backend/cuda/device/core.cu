/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens and closes one device. In: its number among the visible ones. Out: a backend,
 * or the reason why the driver, the device or its memory will not do. Also holds the
 * module's entry.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cublasLt.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/gemm/gemm_lt.h"
#include "backend/cuda/module.h"
#include "backend/cuda_sizes.h"

#define MAJOR(version) ((version) / 1000)
#define MINOR(version) ((version) % 1000 / 10)

__thread int cuda_thread_device = -1;

/* Also after a failure: what is freed then must be freed on its own device. */
void cuda_enter(struct cuda_state *s)
{
    if (cuda_ok(s, cudaSetDevice(s->device), "cudaSetDevice"))
        cuda_thread_device = s->device;
}

static __global__ void clear_fault_kernel(struct cuda_fault *f)
{
    f->embed = f->target = NO_BAD_ID;
}

/* Is there a driver that works with this toolkit? The static runtime answers without a
 * driver too, with version 0. */
static accel_status_t driver_answers(accel_error_t *err)
{
    int driver = 0, runtime = 0, devices = 0;
    cudaError_t code = cudaDriverGetVersion(&driver);

    cudaRuntimeGetVersion(&runtime);
    if (code == cudaSuccess && driver)
        code = cudaGetDeviceCount(&devices);
    /* no driver, a stub of it, one that is too old, one that does not answer: four
     * states with four cures */
    if (!driver || code == cudaErrorStubLibrary)
        return accel_fail(err, A0443,
                          "run nvidia-smi on this node and send its output to the "
                          "administrator; to train on the CPU set use_cpu: true",
                          "there is no CUDA driver (libcuda.so.1) on this node");
    if (code == cudaErrorInsufficientDriver)
        return accel_fail(err, A0443,
                          "update the node's driver, or build accel with a CUDA "
                          "toolkit of the driver's version",
                          "the driver of this node supports CUDA %d.%d, but the CUDA "
                          "module needs %d.%d",
                          MAJOR(driver), MINOR(driver), MAJOR(runtime), MINOR(runtime));
    if (code != cudaSuccess && code != cudaErrorNoDevice)
        return accel_fail(
            err, A0443,
            "run nvidia-smi on this node and send its output to the administrator",
            "the CUDA driver does not work: %s (%s)", cudaGetErrorString(code),
            cudaGetErrorName(code));
    return ACCEL_OK;
}

/* Numbers count the visible devices: Slurm may show a process one of eight as number
 * 0. */
static accel_status_t device_exists(int device, accel_error_t *err)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int devices = 0;

    /* having no device is an error of this call; clear it, so that no later call
     * reports it */
    if (cudaGetDeviceCount(&devices) != cudaSuccess)
        devices = 0;
    (void)cudaGetLastError();
    if (device >= 0 && device < devices)
        return ACCEL_OK;
    return accel_fail(
        err, A0444,
        "leave CUDA_VISIBLE_DEVICES as Slurm sets it; `accel topo` and nvidia-smi -L "
        "list the node's GPUs",
        "there is no GPU %d: this process sees %d (CUDA_VISIBLE_DEVICES=%.100s)",
        device, devices, visible ? visible : ", not set");
}

/* Writes "580.65.06", the release of the loaded driver, or which CUDA it is for. */
static void driver_release(char *out, size_t len)
{
    FILE *f = fopen("/proc/driver/nvidia/version", "re");
    char line[256], *word = NULL, *rest = line;
    int version = 0, skip;

    if (f && fgets(line, sizeof(line), f))
        /* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64 580.65.06 ...": the
         * first word that is a version */
        while ((word = strtok_r(rest, " \t\n", &rest)))
            if (sscanf(word, "%d.%d", &skip, &skip) == 2)
                break;
    if (word) {
        snprintf(out, len, "%s", word);
    } else {
        cudaDriverGetVersion(&version);
        snprintf(out, len, "for CUDA %d.%d", MAJOR(version), MINOR(version));
    }
    if (f)
        fclose(f);
}

/* cuBLASLt's products of 8-bit floats on a device of that capability. */
static enum backend_fp8 fp8_of(int compute)
{
    return compute == 89 || compute == 90 ? BACKEND_FP8_TURNED
           : compute / 10 == 10           ? BACKEND_FP8_WHOLE
                                          : BACKEND_FP8_NONE;
}

/* From cuBLAS 12.9 on. What 10.x does with scales of 32, it does with those of 128. */
static unsigned blocks_of(int compute)
{
    if (!GEMM_HAS_BLOCKS || cublasLtGetVersion() < 120900)
        return 0;
    return compute == 90        ? BACKEND_BLOCKS_128
           : compute / 10 == 10 ? BACKEND_BLOCKS_32 | BACKEND_BLOCKS_128
                                : 0;
}

/* Takes the device's properties and makes the texts of name and isa from them. */
static bool describe(struct cuda_state *s)
{
    const int blas = (int)cublasLtGetVersion();
    struct cudaDeviceProp p;
    char release[48];
    int runtime = 0;

    if (!CHECK(s, cudaGetDeviceProperties(&p, s->device)) ||
        !CHECK(s, cudaDeviceGetPCIBusId(s->bus_id, sizeof(s->bus_id), s->device)) ||
        !CHECK(s, cudaRuntimeGetVersion(&runtime)))
        return false;
    snprintf(s->name, sizeof(s->name), "%.95s", p.name);
    s->compute = 10 * p.major + p.minor;
    s->sms = p.multiProcessorCount;
    s->shared_bytes = p.sharedMemPerBlockOptin;
    s->pool = p.memoryPoolsSupported != 0;
    s->be.fp8 = fp8_of(s->compute);
    s->be.fp8_blocks = blocks_of(s->compute);
    s->be.bus_id = s->bus_id;
    s->be.memory_bytes = p.totalGlobalMem;
    s->be.fixed_bytes = cuda_fixed_bytes(p.totalGlobalMem);
    s->workspace.bytes = cuda_workspace_bytes(p.totalGlobalMem);
    driver_release(release, sizeof(release));
    snprintf(s->isa, sizeof(s->isa), "sm_%d, CUDA %d.%d, driver %s, cuBLAS %d.%d",
             s->compute, MAJOR(runtime), MINOR(runtime), release, blas / 10000,
             blas % 10000 / 100);
    return true;
}

void cuda_say(struct cuda_state *s, const char *format, const char *what)
{
    size_t used = strlen(s->isa);

    snprintf(s->isa + used, sizeof(s->isa) - used, format, what);
}

/* Sets the device up. The first kernel shows whether the module has code for this GPU,
 * so it runs before anything large is allocated. */
static bool start(struct cuda_state *s)
{
    /* always: the program may have chosen another device since */
    cuda_enter(s);
    if (s->failed || !describe(s) || !cuda_queues_open(s))
        return false;
    if (!CHECK(s, cudaMalloc(&s->fault, sizeof(*s->fault))))
        return false;
    LAUNCH(clear_fault_kernel, 1, 1, 0, s, s->fault);
    return CHECK(s, cudaStreamSynchronize(s->now)) && cuda_memory_open(s) &&
           cuda_staging_open(s) && cuda_open_parts(s);
}

void cuda_close(struct backend *be)
{
    struct cuda_state *s = cuda_state_of(be);

    if (s->end_recording)
        s->end_recording(s);
    /* Work in flight uses what is freed below. A collective that does not even end when
     * it is aborted keeps all of it: the process, which has failed, is about to end. */
    if (!cuda_settled(s))
        return;
    cuda_close_parts(s);
    cuda_staging_close(s);
    cuda_ranges_close(s);
    cuda_memory_close(s);
    if (s->fault)
        (void)cudaFree(s->fault);
    for (int q = 0; q < QUEUE_COUNT; q++)
        if (s->stream[q])
            (void)cudaStreamDestroy(s->stream[q]);
    free(s);
}

/* Closes what it had opened when a part fails, after the error text is made: that text
 * needs the state. */
static accel_status_t cuda_open(struct backend **out, int device, accel_error_t *err)
{
    accel_status_t st = driver_answers(err);
    struct cuda_state *s;

    st = st ? st : device_exists(device, err);
    if (st)
        return st;
    s = (struct cuda_state *)calloc(1, sizeof(*s));
    if (!s)
        return accel_fail_nomem(err, "the cuda backend", sizeof(*s));
    s->device = device;
    cuda_fill_table(&s->be);
    s->be.name = "cuda";
    s->be.isa = s->isa;
    s->be.threads = 1;
    s->be.device = true;
    s->be.state = s;
    if (!start(s)) {
        /* the part that failed has kept why */
        st = cuda_check(&s->be, err);
        cuda_close(&s->be);
        return st;
    }
    *out = &s->be;
    return ACCEL_OK;
}

#define TEXT(x)    #x
#define TEXT_OF(x) TEXT(x)
#define CUDA_OF_BUILD                                                                  \
    "CUDA " TEXT_OF(__CUDACC_VER_MAJOR__) "." TEXT_OF(__CUDACC_VER_MINOR__)

extern "C" __attribute__((visibility("default"))) const struct accel_cuda_module *
accel_cuda_module(void)
{
    static const struct accel_cuda_module module = { CUDA_MODULE_ABI,
                                                     sizeof(struct backend),
                                                     PACKAGE_VERSION,
#ifdef __CUDACC__
                                                     CUDA_OF_BUILD,
#else
                                                     "the stand-in for CUDA",
#endif
                                                     cuda_open };

    return &module;
}
