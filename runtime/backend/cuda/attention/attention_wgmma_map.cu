/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor maps of the attention's kernels for sm_90a: how the driver is told where q, k,
 * v and dout lie. In: the heads of a call. Out: a map, and the order of its dimensions.
 */
#include "backend/cuda/attention/attention_wgmma.h"

/* Is dimension a before b? One of a single element has no stride, and comes last. */
static bool wg_before(const uint64_t dim[3], const uint64_t stride[3], int a, int b)
{
    if (dim[a] == 1 || dim[b] == 1)
        return dim[a] != 1 && (dim[b] == 1 || stride[a] < stride[b]);
    return stride[a] < stride[b];
}

/* Rows, heads and samples in the order of their strides. */
static void wg_order(const uint64_t dim[3], const uint64_t stride[3], int order[3])
{
    for (int i = 0; i < 3; i++) {
        int at = i;

        for (; at > 0 && wg_before(dim, stride, i, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* False: the driver refuses the tensor, or lacks the function. */
static bool wg_encode(struct cuda_state *s, struct wg_tensor *to,
                      const struct attention *p, const struct heads *from,
                      int64_t heads, int64_t rows, int box_rows)
{
    static CUresult (*encode)(
        CUtensorMap *, CUtensorMapDataType, uint32_t, void *, const uint64_t *,
        const uint64_t *, const uint32_t *, const uint32_t *, CUtensorMapInterleave,
        CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    const uint64_t dims[3] = { (uint64_t)rows, (uint64_t)heads, (uint64_t)p->batch };
    const uint64_t strides[3] = { (uint64_t)from->row * 2, (uint64_t)from->head * 2,
                                  (uint64_t)from->sample * 2 };
    const uint32_t step[4] = { 1, 1, 1, 1 };
    uint64_t dim[4] = { (uint64_t)p->head_width }, stride[3];
    uint32_t box[4] = { WG_PANEL, 1, 1, 1 };
    int order[3];

    if (!encode && !cuda_driver_function(s, "cuTensorMapEncodeTiled", (void **)&encode))
        return false;
    wg_order(dims, strides, order);
    for (int i = 0; i < 3; i++) {
        to->at[order[i]] = i;
        dim[1 + i] = dims[order[i]];
        stride[i] = dim[1 + i] == 1 && i ? stride[i - 1] : strides[order[i]];
    }
    box[1 + to->at[0]] = (uint32_t)box_rows;
    /* a copy moves 16 bits, float16 as well */
    return encode(&to->map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4,
                  (void *)(uintptr_t)from->data, dim, stride, box, step,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool attn_wgmma_map(struct cuda_state *s, struct wg_tensor *to,
                    const struct attention *p, const struct heads *from, int64_t heads,
                    int64_t rows, int box_rows)
{
    return wg_encode(s, to, p, from, heads, rows, box_rows) ||
           cuda_fails(s, "cuTensorMapEncodeTiled", "the driver refuses the tensor");
}

bool attn_wgmma_maps(struct cuda_state *s, const struct attention *p)
{
    struct wg_tensor any;

    return wg_encode(s, &any, p, &p->q, p->heads, p->queries, ATTN_TILE) &&
           wg_encode(s, &any, p, &p->k, p->kv_heads, p->keys, ATTN_TILE) &&
           wg_encode(s, &any, p, &p->v, p->kv_heads, p->keys, ATTN_TILE);
}
