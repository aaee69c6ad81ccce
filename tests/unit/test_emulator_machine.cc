/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in CUDA toolkit: the machine that the environment describes, memory that ends,
 * and ranges that are mapped piece by piece.
 */
#include "tests/unit/emulator.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"

/* ---- devices ---------------------------------------------------------------------------- */

static int count_with(const char *name, const char *value, int *count)
{
    int rc;

    setenv(name, value, 1);
    fakecuda_reset();
    rc = cudaGetDeviceCount(count);
    unsetenv(name);
    return rc;
}

static void test_devices(void)
{
    char bus[32];
    int count, device;

    tap_is_int(count_with("FAKE_CUDA_DEVICES", "0", &count), cudaErrorNoDevice, "none");
    tap_is_int(count_with("FAKE_CUDA_DEVICES", "nodriver", &count),
               cudaErrorInsufficientDriver, "no driver");
    tap_is_int(count_with("FAKE_CUDA_DRIVER", "12040", &count),
               cudaErrorInsufficientDriver, "an old driver");
    tap_is_int(count_with("FAKE_CUDA_DEVICES", "4", &count), cudaSuccess, "four");
    tap_is_int(count, 4, "... are counted");
    tap_is_int(cudaSetDevice(4), cudaErrorInvalidDevice, "a fifth");
    setenv("FAKE_CUDA_DEVICES", "4", 1);
    tap_is_int(count_with("CUDA_VISIBLE_DEVICES", "2,3", &count) == 0 ? count : -1, 2,
               "two of them are visible");
    tap_is_int(count_with("CUDA_VISIBLE_DEVICES", "", &count), cudaErrorNoDevice,
               "none is");
    setenv("FAKE_CUDA_BUS", "0000:17:00.0,0000:9a:00.0", 1);
    fakecuda_reset();
    cudaDeviceGetPCIBusId(bus, sizeof(bus), 1);
    tap_is_str(bus, "0000:9A:00.0", "bus id");
    tap_ok(cudaDeviceGetByPCIBusId(&device, bus) == 0 && device == 1, "... and back");
    unsetenv("FAKE_CUDA_BUS");
    unsetenv("FAKE_CUDA_DEVICES");
}

static void test_loss(void)
{
    setenv("FAKE_CUDA_LOSE_AFTER", "2:214", 1);
    begin();
    unsetenv("FAKE_CUDA_LOSE_AFTER");
    for (int i = 0; i < 2; i++)
        RUN(iota, 1, 32, 0, one, a, N);
    tap_is_int(cudaStreamSynchronize(one), cudaSuccess, "two kernels");
    RUN(iota, 1, 32, 0, one, b, N);
    tap_is_int(cudaStreamSynchronize(one), cudaErrorECCUncorrectable, "the third");
    tap_is_int(cudaMemsetAsync(a, 0, 4, two), cudaErrorECCUncorrectable,
               "then all fail");
    tap_is_int(cudaGetLastError(), cudaErrorECCUncorrectable, "... for ever");
    tap_is_int(cudaGetLastError(), cudaErrorECCUncorrectable, "... and ever");
    begin();
    fakecuda_lose(cudaErrorIllegalAddress);
    tap_is_int(cudaDeviceSynchronize(), cudaErrorIllegalAddress, "lost by the test");
}

/* ---- memory ----------------------------------------------------------------------------- */

static void test_memory(void)
{
    size_t free_bytes, total;
    void *p, *q;

    setenv("FAKE_CUDA_MEMORY", "1048576", 1);
    fakecuda_reset();
    tap_is_int(cudaMalloc(&p, 1 << 19), cudaSuccess, "half of the memory");
    tap_is_int(cudaMalloc(&q, (1 << 19) + 1), cudaErrorMemoryAllocation, "too much");
    cudaMemGetInfo(&free_bytes, &total);
    tap_ok(free_bytes == 1 << 19 && total == 1 << 20, "what is left");
    cudaFree(p);
    cudaMemGetInfo(&free_bytes, &total);
    tap_ok(free_bytes == total, "all is free again");
    tap_is_int(cudaFree(&total), cudaErrorInvalidValue, "memory of somebody else");
    tap_is_int(cudaMallocAsync(&p, 1 << 20, NULL), cudaSuccess, "in a stream");
    cudaFreeAsync(p, NULL);
    cudaMemGetInfo(&free_bytes, &total);
    tap_is_int((int)free_bytes, 0, "not free before the stream has come there");
    cudaDeviceSynchronize();
    cudaMemGetInfo(&free_bytes, &total);
    tap_ok(free_bytes == total, "then it is");
    unsetenv("FAKE_CUDA_MEMORY");
}

static CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr,
                           unsigned long long);
static CUresult (*create)(CUmemGenericAllocationHandle *, size_t,
                          const CUmemAllocationProp *, unsigned long long);
static CUresult (*release)(CUmemGenericAllocationHandle);
static CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                       unsigned long long);
static CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
static CUresult (*unmap)(CUdeviceptr, size_t);
static CUresult (*address_free)(CUdeviceptr, size_t);

static bool find_symbols(void)
{
    const struct {
        const char *name;
        void **function;
    } all[] = {
        { "cuMemAddressReserve", (void **)&reserve },
        { "cuMemCreate", (void **)&create },
        { "cuMemRelease", (void **)&release },
        { "cuMemMap", (void **)&map },
        { "cuMemSetAccess", (void **)&set_access },
        { "cuMemUnmap", (void **)&unmap },
        { "cuMemAddressFree", (void **)&address_free },
    };
    bool found = true;

    for (const auto &s : all)
        found = found &&
                !cudaGetDriverEntryPointByVersion(s.name, s.function, 12000, 0) &&
                *s.function;
    return found;
}

static void test_ranges(void)
{
    const size_t piece = 2 << 20;
    CUmemAllocationProp prop = {};
    CUmemAccessDesc access = {};
    CUmemGenericAllocationHandle handle;
    size_t free_bytes, total;
    CUdeviceptr base = 0;

    begin();
    tap_ok(find_symbols(), "the driver's functions");
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    tap_is_int(reserve(&base, 4 * piece, 0, 0, 0), CUDA_SUCCESS, "a range");
    for (size_t at = 0; at < 2 * piece; at += piece) {
        create(&handle, piece, &prop, 0);
        map(base + at, piece, 0, handle, 0);
        set_access(base + at, piece, &access, 1);
        release(handle);
    }
    tap_is_int(cudaMemsetAsync((void *)base, 0, 2 * piece, one), cudaSuccess,
               "two pieces are one memory");
    tap_is_int(cudaMemsetAsync((void *)base, 0, 2 * piece + 1, one),
               cudaErrorInvalidValue, "the third is not there");
    cudaMemGetInfo(&free_bytes, &total);
    tap_ok(total - free_bytes == 2 * piece + 2 * sizeof(host), "and they are counted");
    tap_ok(address_free(base, 4 * piece) != 0, "a range in use is not freed");
    tap_is_int(unmap(base, 2 * piece), CUDA_SUCCESS, "unmapped");
    tap_is_int(address_free(base, 4 * piece), CUDA_SUCCESS, "freed");
    cudaMemGetInfo(&free_bytes, &total);
    tap_ok(total - free_bytes == 2 * sizeof(host), "all of it");
}

/* The signal that ended a process which did it; 0: none. */
static int signal_of_touch(volatile float *p)
{
    struct rlimit no_core = { 0, 0 };
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGSEGV, SIG_DFL);
        *p = 1;
        _exit(0);
    }
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void test_watch(void)
{
    begin();
    tap_is_int(signal_of_touch(a), 0, "the host may follow a pointer");
    setenv("FAKE_CUDA_WATCH", "1", 1);
    begin();
    RUN(iota, 1, THREADS, 0, one, a, N);
    tap_is_close(fetch(a + 9), 9, 0, "watched: kernels and copies work");
    tap_is_int(signal_of_touch(a), SIGSEGV, "... and the host may not");
    RUN(iota, 1, THREADS, 0, one, a, N + 1);
    tap_is_int(cudaStreamSynchronize(one), cudaErrorIllegalAddress,
               "... bytes around are watched as well");
    unsetenv("FAKE_CUDA_WATCH");
}

int main(void)
{
    test_devices();
    test_loss();
    test_memory();
    test_ranges();
    test_watch();
    fakecuda_reset();
    return tap_done();
}
