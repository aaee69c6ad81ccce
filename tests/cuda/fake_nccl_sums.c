/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions of the stand-in for NCCL. Sums of float32 and bfloat16 begin with the last
 * rank:
 * another order than accel's own.
 */
#include "tests/cuda/fake_nccl.h"

#include "numbers/bf16.h"

size_t size_of(int type)
{
    return type == NCCL_UINT8      ? 1
           : type == NCCL_BFLOAT16 ? 2
           : type == NCCL_FLOAT32  ? 4
                                   : 8;
}

static double value_of(const char *p, int type, size_t i)
{
    if (type == NCCL_FLOAT32)
        return ((const float *)(const void *)p)[i];
    if (type == NCCL_BFLOAT16)
        return bf16_to_f32(((const bf16_t *)(const void *)p)[i]);
    return ((const double *)(const void *)p)[i];
}

static void reduce_float(const struct launch *l, size_t i)
{
    size_t bytes = l->elems * size_of(l->type);
    bool narrow = l->type != NCCL_FLOAT64;
    int size = l->comm->size;
    double acc =
        value_of(l->parts + (narrow ? (size_t)(size - 1) * bytes : 0), l->type, i);

    for (int k = 1; k < size; k++) {
        int r = narrow ? size - 1 - k : k;
        double v = value_of(l->parts + (size_t)r * bytes, l->type, i);

        if (l->op == NCCL_SUM)
            acc = narrow ? (float)((float)acc + (float)v) : acc + v;
        else if (l->op == NCCL_MAX ? v > acc : v < acc)
            acc = v;
    }
    if (l->type == NCCL_FLOAT32)
        ((float *)l->out)[i] = (float)acc;
    else if (l->type == NCCL_BFLOAT16)
        ((bf16_t *)l->out)[i] = f32_to_bf16((float)acc);
    else
        ((double *)l->out)[i] = acc;
}

static void reduce_int(const struct launch *l, size_t i)
{
    const int64_t *in = (const int64_t *)(const void *)l->parts;
    int64_t acc = in[i];

    for (int r = 1; r < l->comm->size; r++) {
        int64_t v = in[(size_t)r * l->elems + i];

        if (l->op == NCCL_SUM)
            acc = (int64_t)((uint64_t)acc + (uint64_t)v);
        else if (l->op == NCCL_MAX ? v > acc : v < acc)
            acc = v;
    }
    ((int64_t *)l->out)[i] = acc;
}

void reduce(const struct launch *l)
{
    for (size_t i = 0; i < l->elems; i++)
        if (l->type == NCCL_INT64)
            reduce_int(l, i);
        else
            reduce_float(l, i);
}
