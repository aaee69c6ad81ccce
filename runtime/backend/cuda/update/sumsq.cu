/* SPDX-License-Identifier: Apache-2.0
 *
 * Sum of squares of the shards on a CUDA device, in double: parts of fixed length, then
 * the parts by one block. The lengths decide the order, neither addresses nor the
 * device.
 */
#include "backend/cuda/vector.h"

/* Spans are passed by value: 64 of them fit a kernel's arguments. */
enum { SPANS = 64, SPAN_PART = 65536, SUMSQ_BLOCK = 256, TOTAL_BLOCK = 1024 };

/* The spans of one launch. part[first[k] .. first[k + 1]) are the parts of span k. */
struct span_list {
    struct span span[SPANS];
    int64_t first[SPANS + 1];
    int count;
};

/* Four adjacent elements at a time, in one access or in four: the order is the same. */
static __device__ inline double squares(const float *x, int64_t n, bool aligned)
{
    double sum = 0.0;

#pragma unroll 4
    for (int64_t at = 4 * (int64_t)threadIdx.x; at < n; at += 4 * SUMSQ_BLOCK) {
        float v[4] = { 0.0f, 0.0f, 0.0f, 0.0f };

        if (aligned && at + 4 <= n)
            load<4>(v, x + at);
        else
            for (int i = 0; i < 4 && at + i < n; i++)
                v[i] = x[at + i];
        for (int i = 0; i < 4; i++)
            sum += (double)v[i] * (double)v[i];
    }
    return sum;
}

/* part[p] for all parts of all spans of the list: a block per part. */
static __global__ void __launch_bounds__(SUMSQ_BLOCK)
    sumsq_kernel(struct span_list list, double *part)
{
    __shared__ double room[WARP];

    ROW_STRIDE(p, list.first[list.count])
    {
        int k = 0;
        int64_t at, n;
        double sum;

        /* at most 64 spans: a search by one thread is not worth more */
        while (p >= list.first[k + 1])
            k++;
        at = (p - list.first[k]) * SPAN_PART;
        n = list.span[k].n - at;
        sum = squares(list.span[k].x + at, least(n, SPAN_PART),
                      (uintptr_t)list.span[k].x % 16 == 0);
        sum = block_sum(sum, room);
        if (threadIdx.x == 0)
            part[p] = sum;
    }
}

/* One block: thread t adds parts t, t + 1024, ... and block_sum adds the threads.
 * Double throughout: the norm decides about clipping. */
static __global__ void __launch_bounds__(TOTAL_BLOCK)
    total_kernel(const double *part, int64_t parts, double *total)
{
    __shared__ double room[WARP];
    double sum = 0.0;

    BLOCK_STRIDE(i, parts)
    sum += part[i];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0)
        *total = sum;
}

static int64_t parts_of(const struct span *x)
{
    return x->n > 0 ? (x->n + SPAN_PART - 1) / SPAN_PART : 0;
}

/* Fills the list with up to SPANS spans; returns how many. */
static int take(struct span_list *list, const struct span *x, int count)
{
    list->count = (int)least(count, SPANS);
    list->first[0] = 0;
    for (int k = 0; k < list->count; k++) {
        list->span[k] = x[k];
        list->first[k + 1] = list->first[k] + parts_of(&x[k]);
    }
    return list->count;
}

void cuda_sumsq(const struct backend *be, double *sum_out, const struct span *x,
                int count)
{
    struct cuda_state *s = cuda_state_of(be);
    int64_t parts = 0, at = 0;
    double *part;

    for (int k = 0; k < count; k++)
        parts += parts_of(&x[k]);
    *sum_out = 0.0;
    if (parts == 0)
        return;
    /* parts of all launches, and one place for the total */
    part = (double *)cuda_scratch(s, (size_t)(parts + 1) * sizeof(*part));
    for (int k = 0; k < count;) {
        struct span_list list;

        k += take(&list, x + k, count - k);
        LAUNCH(sumsq_kernel, rows_grid(list.first[list.count]), SUMSQ_BLOCK, 0, s, list,
               part + at);
        at += list.first[list.count];
    }
    LAUNCH(total_kernel, 1, TOTAL_BLOCK, 0, s, part, parts, part + parts);
    if (!s->failed)
        cuda_copy(be, sum_out, part + parts, sizeof(*sum_out));
    cuda_scratch_free(s, part);
}
