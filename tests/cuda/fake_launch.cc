/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels: a launch is checked as the driver checks it, and put on its stream; there its
 * blocks run one after the other, every other launch from the last one to the first.
 */
#include <cxxabi.h>
#include <stdlib.h>
#include <string.h>

#include "fakecuda.h"

/* The address sanitizer has bytes of its own behind each block of memory, and sees who reads
 * them, too. */
#ifdef __SANITIZE_ADDRESS__
enum { GUARD = 0 };
#else
enum { GUARD = 16 };
#endif
enum { THREADS_MOST = 1024, SHARED_BYTES = 48 << 10, SHARED_MOST_BYTES = 227 << 10 };

/* Dynamic shared memory that a kernel was allowed, where that is more than usual. */
static std::map<const void *, size_t> allowed;

struct launch {
    std::string name;
    dim3 grid, block;
    size_t shared;
    std::function<void()> thread;
};

static std::string run_blocks(const struct launch *l, void *shared)
{
    uint64_t blocks = (uint64_t)l->grid.x * l->grid.y * l->grid.z;
    bool backwards = fake.counts.launches % 2 == 0;

    gridDim = l->grid;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t at = backwards ? blocks - 1 - i : i;
        bool mix =
            fake.order == ORDER_RANDOM ? fake_random() & 1 : (at + backwards) & 1;
        std::string trouble;

        blockIdx.x = (unsigned)(at % l->grid.x);
        blockIdx.y = (unsigned)(at / l->grid.x % l->grid.y);
        blockIdx.z = (unsigned)(at / l->grid.x / l->grid.y);
        trouble = fake_run_block(l->thread, l->block, l->shared, shared, mix);
        if (!trouble.empty())
            return trouble;
    }
    return "";
}

static void run(const struct launch *l)
{
    void *memory;
    char *shared;
    std::string trouble;

    if (!fake_kernel_begins())
        return;
    if (posix_memalign(&memory, 16, l->shared + GUARD) != 0) {
        fake_stick(cudaErrorLaunchOutOfResources);
        return;
    }
    shared = (char *)memory;
    memset(shared + l->shared, 0x5a, GUARD);
    trouble = run_blocks(l, shared);
    for (int i = 0; trouble.empty() && i < GUARD; i++)
        if (shared[l->shared + i] != 0x5a)
            trouble = "wrote behind its dynamic shared memory";
    free(shared);
    if (!trouble.empty()) {
        fake_report("%s, block (%u, %u, %u): %s", l->name.c_str(), blockIdx.x,
                    blockIdx.y, blockIdx.z, trouble.c_str());
        fake_stick(cudaErrorLaunchFailure);
    }
}

static cudaError_t check(const struct launch *l, const void *kernel)
{
    auto at = allowed.find(kernel);
    size_t most = at == allowed.end() ? (size_t)SHARED_BYTES : at->second;
    const dim3 &g = l->grid, &b = l->block;

    if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > 2147483647u || g.y > 65535 ||
        g.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (b.x == 0 || b.y == 0 || b.z == 0 || b.x > THREADS_MOST || b.y > THREADS_MOST ||
        b.z > 64 || (uint64_t)b.x * b.y * b.z > THREADS_MOST)
        return cudaErrorInvalidConfiguration;
    return l->shared > most ? cudaErrorInvalidValue : cudaSuccess;
}

/* "(map_kernel<V, OP>)" of type void (*)(add_op<float>, long) is "map_kernel
 * add_op<float>"; the types of other templates say little. */
static std::string kernel_name(std::string name, const std::type_info &type)
{
    const bool operation = name.find("OP>") != std::string::npos;
    char *all = abi::__cxa_demangle(type.name(), NULL, NULL, NULL);
    std::string first = all ? all : "";

    free(all);
    name = name.substr(name[0] == '(');
    name = name.substr(0, name.find_first_of("<)"));
    if (!operation || first.compare(0, 9, "void (*)(") != 0)
        return name;
    first = first.substr(9, first.find_first_of(",)", 9) - 9);
    return name + " " + first;
}

void fake_count(const std::string &name, const CUstream_st *stream)
{
    fakecuda_kernel &k = fake.kernels[name];

    (stream->into ? k.recorded : k.eager)++;
}

int fakecuda_kernels_get(struct fakecuda_kernel *out, int most)
{
    fake_lock hold(fake.lock);
    int count = 0;

    for (const auto &k : fake.kernels) {
        if (count == most)
            break;
        out[count] = k.second;
        out[count++].name = k.first.c_str();
    }
    return count;
}

cudaError_t fakecuda_launch_closure(const char *name, const std::type_info &type,
                                    const void *kernel, dim3 grid, dim3 block,
                                    size_t shared, cudaStream_t stream,
                                    std::function<void()> thread)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();
    struct launch l = { name, grid, block, shared, thread };

    if (!error && stream && stream->device != fake_device)
        error = cudaErrorInvalidResourceHandle; /* the thread is on another device */
    if (!error)
        error = check(&l, kernel);
    if (!error)
        fake_count(kernel_name(name, type), fake_stream(stream));
    if (!error)
        error = fake_put(fake_stream(stream), cudaGraphNodeTypeKernel, [l] {
            run(&l);
            return true;
        });
    return fake_end(error);
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attr,
                                 int value)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    if (!error && attr == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || value > SHARED_MOST_BYTES)
            error = cudaErrorInvalidValue;
        else
            allowed[kernel] = (size_t)value;
    }
    return fake_end(error);
}
