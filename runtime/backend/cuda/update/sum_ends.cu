/* SPDX-License-Identifier: Apache-2.0
 *
 * The ends of sums of columns: parts of the rows are summed at once, and added up to
 * the gradient of a parameter later, for many parameters in one launch. In: the parts.
 * Out: dst += their sum, in one fixed order. Until then the parts lie at the end of the
 * workspace, and nothing else may be done with dst but the same.
 */
#include "backend/cuda/vector.h"

enum { ENDS_BLOCK = 256, STRIPS_OF_PARTS = ENDS_BLOCK / WARP };

/* The ends of one launch. Blocks first[k] .. first[k + 1] - 1 are those of end k. */
struct end_list {
    struct cuda_end end[CUDA_ENDS];
    int64_t first[CUDA_ENDS + 1];
    int count;
};

/* A block per 32 columns of an end: warp w adds parts w, w + 8, ..., then the warps'
 * sums are added in order. */
static __global__ void __launch_bounds__(ENDS_BLOCK) ends_kernel(struct end_list list)
{
    __shared__ float room[STRIPS_OF_PARTS][WARP];
    const int lane = (int)threadIdx.x % WARP, strip = (int)threadIdx.x / WARP;

    ROW_STRIDE(block, list.first[list.count])
    {
        float total = 0.0f;
        int k = 0;

        while (block >= list.first[k + 1])
            k++;
        const struct cuda_end e = list.end[k];
        const int64_t c = (block - list.first[k]) * WARP + lane;

        if (c < e.n) {
#pragma unroll 4
            for (int64_t part = strip; part < e.parts; part += STRIPS_OF_PARTS)
                total += e.part[part * e.stride + c];
        }
        room[strip][lane] = total;
        __syncthreads();
        if (strip == 0 && c < e.n) {
            total = 0.0f;
            for (int from = 0; from < STRIPS_OF_PARTS; from++)
                total += room[from][lane];
            e.dst[c] += total;
        }
        __syncthreads();
    }
}

void cuda_ends_flush(struct cuda_state *s)
{
    const cudaStream_t now = s->now;
    struct end_list list;

    list.count = s->ends.count;
    list.first[0] = 0;
    for (int k = 0; k < list.count; k++) {
        list.end[k] = s->ends.end[k];
        list.first[k + 1] = list.first[k] + (list.end[k].n + WARP - 1) / WARP;
    }
    s->ends.count = 0;
    s->ends.bytes = 0;
    s->now = s->stream[QUEUE_COMPUTE];
    LAUNCH(ends_kernel, rows_grid(list.first[list.count]), ENDS_BLOCK, 0, s, list);
    s->now = now;
}

float *cuda_ends_room(struct cuda_state *s, int64_t n)
{
    const size_t bytes = ((size_t)n * sizeof(float) + 255) / 256 * 256;
    const size_t space = s->workspace.bytes - s->workspace.top;

    if (!s->workspace.base || s->now != s->stream[QUEUE_COMPUTE] || bytes > space)
        return (float *)cuda_scratch(s, bytes);
    if (bytes > space - s->ends.bytes)
        cuda_ends_flush(s);
    s->ends.bytes += bytes;
    return (float *)(s->workspace.base + s->workspace.bytes - s->ends.bytes);
}

/* Two ends of one launch must not add to one place. */
static bool adds_to(const struct cuda_end *e, const float *dst, int64_t n)
{
    return dst < e->dst + e->n && e->dst < dst + n;
}

void cuda_ends_add(struct cuda_state *s, const struct cuda_end *e)
{
    bool full = s->ends.count == CUDA_ENDS;

    for (int k = 0; k < s->ends.count && !full; k++)
        full = adds_to(&s->ends.end[k], e->dst, e->n);
    if (full) {
        const size_t bytes = s->ends.bytes;

        cuda_ends_flush(s);
        /* the new end's parts are still to be read */
        s->ends.bytes = bytes;
    }
    s->ends.end[s->ends.count++] = *e;
}

/* Parts that are not in the workspace's end cannot wait: they are freed. */
void cuda_ends_done(struct cuda_state *s, float *room)
{
    const char *from = s->workspace.base + s->workspace.bytes - s->ends.bytes;

    if (s->workspace.base && (const char *)room >= from &&
        (const char *)room < s->workspace.base + s->workspace.bytes)
        return;
    cuda_ends_flush(s);
    cuda_scratch_free(s, room);
}

void cuda_settle(const struct backend *be)
{
    struct cuda_state *s = cuda_state_of(be);

    if (s->ends.count > 0)
        cuda_ends_flush(s);
}
