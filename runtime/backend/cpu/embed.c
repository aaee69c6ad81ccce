/* SPDX-License-Identifier: Apache-2.0
 *
 * Embedding lookup on the CPU. In the gradient every thread walks all rows in order and
 * takes a slab of columns, so that a token that occurs twice is added in one fixed
 * order.
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

VM_INLINE void lookup(void *out, const void *token, const void *position, int64_t n,
                      const accel_dtype_t t)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        vm_store(out, i, vm_load(token, i, t) + vm_load(position, i, t), t);
}

ACCEL_MULTIVERSION
static void lookup_any(void *out, const void *token, const void *position, int64_t n,
                       accel_dtype_t type)
{
    VM_BY_TYPE(type, lookup, out, token, position, n);
}

/* All ids are checked before anything is written. */
int64_t cpu_embed(const struct backend *be, void *out, const int32_t *ids,
                  const void *table, const void *positions, accel_dtype_t type,
                  int64_t rows, int64_t time, int64_t vocab, int64_t cols)
{
    size_t row_bytes = (size_t)cols * accel_dtype_bytes(type);

    for (int64_t r = 0; r < rows; r++)
        if (ids[r] < 0 || ids[r] >= vocab)
            return r;
#pragma omp parallel for num_threads(be->threads)                                      \
    schedule(static, CPU_ROW_BLOCK) if (rows * cols > CPU_ALONE_ELEMS)
    for (int64_t r = 0; r < rows; r++) {
        void *to = vm_to(out, r * cols, type);
        /* out[r, :] = table[ids[r], :] + positions[r % time, :] */
        const void *token = vm_at(table, ids[r] * cols, type);

        if (positions)
            lookup_any(to, token, vm_at(positions, r % time * cols, type), cols, type);
        else
            memcpy(to, token, row_bytes);
    }
    return -1;
}

/* Columns [first, first + n) of all rows, in the order of the rows. */
VM_INLINE void scatter(float *dtable, float *dpositions, const int32_t *ids,
                       const void *dy, int64_t rows, int64_t time, int64_t cols,
                       int64_t first, int64_t n, const accel_dtype_t t)
{
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = r * cols + first;

        if (dtable) {
            /* two rows with one id add to the same place: never on two threads */
            float *to = dtable + ids[r] * cols + first;

#pragma omp simd
            for (int64_t c = 0; c < n; c++)
                to[c] += vm_load(dy, at + c, t);
        }
        if (dpositions) {
            float *to = dpositions + r % time * cols + first;

#pragma omp simd
            for (int64_t c = 0; c < n; c++)
                to[c] += vm_load(dy, at + c, t);
        }
    }
}

ACCEL_MULTIVERSION
static void scatter_any(float *dtable, float *dpositions, const int32_t *ids,
                        const void *dy, int64_t rows, int64_t time, int64_t cols,
                        int64_t first, int64_t n, accel_dtype_t type)
{
    VM_BY_TYPE(type, scatter, dtable, dpositions, ids, dy, rows, time, cols, first, n);
}

/* dtable [vocab, cols] += dy [rows, cols] by id, dpositions [time, cols] += by
 * position. */
void cpu_embed_grad(const struct backend *be, float *dtable, float *dpositions,
                    const int32_t *ids, const void *dy, accel_dtype_t type,
                    int64_t rows, int64_t time, int64_t cols)
{
#pragma omp parallel for num_threads(be->threads)                                      \
    schedule(dynamic) if (rows * cols > CPU_ALONE_ELEMS)
    for (int64_t c = 0; c < cols; c += CPU_COLUMN_SLAB)
        scatter_any(dtable, dpositions, ids, dy, rows, time, cols, c,
                    cols - c < CPU_COLUMN_SLAB ? cols - c : CPU_COLUMN_SLAB, type);
}
