/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU backend: chooses threads, names the vector instructions, fills the vtable.
 * In: a thread count. Out: a backend. Never changes the process's OpenMP settings.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/panels.h"
#include "backend/cpu/vmath.h"

/* One allocation: the vtable first, its state behind it, the text that be.isa points
 * to. */
struct cpu_backend {
    struct backend be;
    struct cpu_state state;
    char isa[64];
};

/* Must name what the loader picks among the clones of ACCEL_MULTIVERSION functions. */
static const char *vector_isa(void)
{
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) &&                           \
    !defined(__SANITIZE_THREAD__) && !defined(ACCEL_NO_MULTIVERSION)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        return "avx512";
    if (__builtin_cpu_supports("avx2"))
        return "avx2";
#endif
    return "generic";
}

/* Any dtype of an array as float32; memory is the host's, so this is a conversion. */
static void cpu_to_host(const struct backend *be, float *host, const void *src,
                        accel_dtype_t type, int64_t n)
{
    (void)be;
    for (int64_t i = 0; i < n; i++)
        switch (type) {
        case ACCEL_I32:
            host[i] = (float)((const int32_t *)src)[i];
            break;
        case ACCEL_I64:
            host[i] = (float)((const int64_t *)src)[i];
            break;
        case ACCEL_U16:
            host[i] = ((const uint16_t *)src)[i];
            break;
        case ACCEL_U8:
            host[i] = ((const uint8_t *)src)[i];
            break;
        case ACCEL_F64:
            host[i] = (float)((const double *)src)[i];
            break;
        case ACCEL_F32:
        case ACCEL_BF16:
        case ACCEL_F16:
        case ACCEL_I8:
            cpu_load_row(host, src, type, n);
            return;
        default: /* float8 never forms arrays */
            break;
        }
}

static void cpu_close(struct backend *be)
{
    /* be is its first member */
    struct cpu_backend *c = (struct cpu_backend *)(void *)be;

    munmap(c->state.panels, be->fixed_bytes);
    free(c);
}

/* A template; open copies it and adds memory, threads and state. */
static const struct backend kernels = {
    .name = "cpu",
    .fp8 = BACKEND_FP8_ANY,
    .fp8_blocks = BACKEND_BLOCKS_32 | BACKEND_BLOCKS_128,
    .int8_operands = true,
    .close = cpu_close,
    .to_host = cpu_to_host,
#define KERNEL(type, name, ...) .name = cpu_##name,
#include "backend/kernels.h"
#define SCRATCH(name, ...) .name = cpu_##name,
#include "backend/sizes.h"
};

accel_status_t backend_cpu_open(struct backend **backend_out, int threads,
                                accel_error_t *err)
{
    struct cpu_backend *c = calloc(1, sizeof(*c));
    void *panels;

    if (!c)
        return accel_fail_nomem(err, "the cpu backend", sizeof(*c));
    /* a copy: memory, threads and state belong to this backend alone */
    c->be = kernels;
    cpu_memory_functions(&c->be);
    c->be.threads = threads > 0 ? threads : omp_get_max_threads();
    c->be.fixed_bytes = (size_t)c->be.threads * gemm_panel_floats() * sizeof(float);
    /* address space only: a thread's panels get pages when it first multiplies */
    panels = mmap(NULL, c->be.fixed_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (panels == MAP_FAILED) {
        size_t bytes = c->be.fixed_bytes;

        free(c);
        return accel_fail_nomem(err, "the matrix panels of the threads", bytes);
    }
    /* only a hint; pages appear when a thread first packs into them */
    madvise(panels, c->be.fixed_bytes, MADV_HUGEPAGE);
    c->state.panels = panels;
    c->state.panel_floats = gemm_panel_floats();
    c->state.kernel = panel_kernel_of(tile_isa());
    c->be.state = &c->state;
    c->state.bf16_products = cpu_has_bf16_products();
    snprintf(c->isa, sizeof(c->isa), "%s%s", vector_isa(),
             c->state.bf16_products ? " with bf16" : "");
    c->be.isa = c->isa;
    *backend_out = &c->be;
    return ACCEL_OK;
}
