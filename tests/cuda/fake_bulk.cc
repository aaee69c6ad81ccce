/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of tensor tiles to shared memory (cp.async.bulk.tensor) and the maps that they
 * read. In every other block a copy happens at once, else only when nobody can go on
 * without it: a kernel that reads before its barrier says so is wrong in one of the two.
 */
#include <string.h>

#include "fake_ptx.h"
#include "include/cuda.h"

enum { RANK = 4, SWIZZLE = 128, BOX_MOST = 256 };

/* What a CUtensorMap holds here. */
struct tensor_map {
    uint64_t magic;
    char *data;
    uint64_t dim[RANK],
        stride[RANK]; /* elements; bytes, from the second dimension on */
    uint32_t box[RANK];
    uint32_t swizzle;
};

static const uint64_t magic = 0x7465737464617461;

static_assert(sizeof(struct tensor_map) <= sizeof(CUtensorMap), "a map holds it all");

struct bulk_copy {
    struct tensor_map map;
    int32_t first[RANK];
    uint64_t to, barrier;
};

static std::deque<struct bulk_copy> under_way;
static bool late;

/* Refuses what the driver does, and what a copy here does not know. By the driver's
 * documentation each stride is a multiple of the one before. */
CUresult fake_tensor_map(CUtensorMap *to, CUtensorMapDataType type, uint32_t rank,
                         void *data, const uint64_t *dim, const uint64_t *stride,
                         const uint32_t *box, const uint32_t *step,
                         CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                         CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill)
{
    struct tensor_map m = { magic, (char *)data, {}, {}, {}, (uint32_t)swizzle };

    if ((uintptr_t)to % 64 || type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ||
        rank != RANK || (uintptr_t)data % 16 || interleave || fill ||
        (swizzle && swizzle != CU_TENSOR_MAP_SWIZZLE_128B) ||
        (swizzle && box[0] * 2 > SWIZZLE) || box[0] * 2 % 16)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < RANK; i++) {
        m.dim[i] = dim[i];
        m.box[i] = box[i];
        m.stride[i] = i ? stride[i - 1] : 2;
        if (!dim[i] || dim[i] > (uint64_t)1 << 32 || !box[i] || box[i] > BOX_MOST ||
            step[i] != 1 ||
            (i && (stride[i - 1] % 16 || stride[i - 1] >= (uint64_t)1 << 40)) ||
            (i > 1 && (!stride[i - 1] || stride[i - 1] % stride[i - 2])))
            return CUDA_ERROR_INVALID_VALUE;
    }
    memset(to, 0, sizeof(*to));
    memcpy(to, &m, sizeof(m));
    return CUDA_SUCCESS;
}

void fake_bulk_begin(bool wait)
{
    under_way.clear();
    late = wait;
}

/* 16 bytes whose first element is at `place`; zeros outside of the tensor. */
static void copy_piece(const struct tensor_map *m, const int64_t place[RANK], char *to)
{
    const char *from = m->data;
    bool inside = true;

    memset(to, 0, 16);
    for (int i = 0; i < RANK; i++) {
        inside = inside && place[i] >= 0 && place[i] < (int64_t)m->dim[i];
        from += place[i] * (int64_t)m->stride[i];
    }
    for (int e = 0; inside && e < 8 && place[0] + e < (int64_t)m->dim[0]; e++) {
        if (!fake_on_device(from + 2 * e, 2))
            fake_give_up("a bulk copy reads outside of what was allocated");
        memcpy(to + 2 * e, from + 2 * e, 2);
    }
}

/* Rows of the box lie one after the other. With the swizzle of 128 bytes, bits 4 to 6 of
 * an address are those of its row in 1024 bytes, exclusive or. */
static void copy_box(const struct bulk_copy *c)
{
    const struct tensor_map *m = &c->map;
    const uint32_t across = m->box[0] / 8;
    const uint32_t rows = m->box[1] * m->box[2] * m->box[3];

    for (uint32_t i = 0; i < rows * across; i++) {
        const uint32_t row = i / across;
        const int64_t place[RANK] = {
            c->first[0] + (int64_t)(i % across * 8),
            c->first[1] + (int64_t)(row % m->box[1]),
            c->first[2] + (int64_t)(row / m->box[1] % m->box[2]),
            c->first[3] + (int64_t)(row / m->box[1] / m->box[2])
        };
        uint64_t to = c->to + (uint64_t)i * 16;

        if (m->swizzle)
            to ^= (to >> 7 & 7) << 4;
        copy_piece(m, place, fake_shared_at(to, 16));
    }
    fake_barrier_complete(c->barrier, (size_t)rows * across * 16);
}

bool fake_bulk_comes(void)
{
    struct bulk_copy c;

    if (under_way.empty())
        return false;
    /* the last one first: nothing says in which order they come */
    c = under_way.back();
    under_way.pop_back();
    copy_box(&c);
    return true;
}

bool fake_bulk_left(void)
{
    return !under_way.empty();
}

/* to, map, places in four dimensions, barrier */
void fake_bulk_tensor_4d(uint64_t *v)
{
    struct bulk_copy c;

    memcpy(&c.map, (const void *)(uintptr_t)v[1], sizeof(c.map));
    if (v[1] % 64 || c.map.magic != magic)
        fake_give_up("a bulk copy by what is no tensor map");
    for (int i = 0; i < RANK; i++)
        c.first[i] = (int32_t)(uint32_t)v[2 + i];
    c.to = v[0];
    c.barrier = v[6];
    if (c.to % 128)
        fake_give_up("a bulk copy to an address that is not a multiple of 128");
    if (!fake_barrier_fenced(c.barrier))
        fake_give_up("a bulk copy by an mbarrier that was made without a fence");
    under_way.push_back(c);
    if (!late)
        fake_bulk_comes();
}
