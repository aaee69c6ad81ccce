/* SPDX-License-Identifier: Apache-2.0
 *
 * The scratch sizes of the CPU kernels, apart from the kernels: planning needs nothing
 * else. Shapes in, bytes out.
 */
#include <stdlib.h>

#include "backend/cpu/attention/cpu_attention.h"
#include "backend/cpu/conv.h"
#include "backend/cpu/cpu.h"

/* One thread per key head needs five products per pair of blocks. Two passes over
 * blocks need seven, but keep any number of threads busy. */
bool attn_whole(const struct attention *p, int threads)
{
    int64_t heads = p->batch * p->kv_heads, rounds = (heads + threads - 1) / threads;

    return rounds * threads * 5 <= heads * 7;
}

/* Must match the layout in attn_mem; rounded to whole cache lines. */
size_t attention_thread_floats(const struct attention *p, int threads, bool backward)
{
    size_t d = (size_t)p->head_width, dp = (size_t)attn_padded(p->head_width);
    size_t tile = (size_t)ATTN_BLOCK * ATTN_BLOCK;
    size_t floats = 3 * ATTN_BLOCK + tile * (p->dropout > 0 ? 2 : 1) +
                    ATTN_BLOCK * (3 * dp + 2 * d);

    if (backward)
        floats += tile + ATTN_BLOCK * (dp + d) +
                  2 * dp * (attn_whole(p, threads) ? (size_t)p->keys : ATTN_BLOCK);
    return (floats + 15) / 16 * 16;
}

size_t cpu_attention_scratch(const struct backend *be, const struct attention *p,
                             bool backward)
{
    return (size_t)be->threads * attention_thread_floats(p, be->threads, backward) *
           sizeof(float);
}

size_t cpu_conv_scratch(const struct backend *be, const struct conv *p, bool backward)
{
    struct conv_plan c = conv_plan_of(p, backward);

    return (size_t)(c.shared + be->threads * c.per_thread) * sizeof(float);
}

/* One float32 plane of dx per thread. */
size_t cpu_maxpool_scratch(const struct backend *be, const struct pool *p)
{
    return (size_t)be->threads * (size_t)(p->height * p->width) * sizeof(float);
}

static void cpu_sizes_close(struct backend *be)
{
    free(be);
}

accel_status_t backend_cpu_sizes_open(struct backend **backend_out, int threads,
                                      accel_error_t *err)
{
    struct backend *be;

    if (threads < 1)
        return accel_fail(err, A0616, "set OMP_NUM_THREADS to at least 1",
                          "invalid number of compute threads: %d", threads);
    be = calloc(1, sizeof(*be));
    if (!be)
        return accel_fail_nomem(err, "the cpu backend's sizes", sizeof(*be));
    be->name = "cpu";
    be->isa = "none";
    be->threads = threads;
    be->close = cpu_sizes_close;
    backend_no_queues(be);
#define SCRATCH(name, ...) be->name = cpu_##name;
#include "backend/sizes.h"
    *backend_out = be;
    return ACCEL_OK;
}

void backend_close(struct backend *be)
{
    if (be)
        be->close(be);
}
