/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel of products with few rows or few k, once for every instruction set, in the
 * terms of panels_block.h. A few rows of b are read from end to end, as they lie in
 * memory; the sums pass through the first-level cache instead. The file that includes
 * it has also defined load_row (a vector of a row of b), STORED (rows of memory that k
 * rows of b are) and, if it loads float16, HAS_F16.
 */

/* Numbers that all rows of a call meet: two vectors of each of k rows of b. */
INLINE void load_few(const struct panel_stream *s, int64_t j, vector left[PANEL_FEW],
                     vector right[PANEL_FEW], const int k, const accel_dtype_t type)
{
#pragma GCC unroll 4
    for (int p = 0; p < k; p++) {
        left[p] = load_row(s, p, j, type);
        right[p] = load_row(s, p, j + WIDTH, type);
    }
}

/* The same columns of the k rows after them. */
INLINE void stream_ahead(const struct panel_stream *s, int64_t j, const int k,
                         const accel_dtype_t type)
{
    const int64_t size = type == ACCEL_F32 ? 4 : 2;
    const int rows = STORED(k, type);
    const char *at = (const char *)s->b + (rows * s->b_step + j) * size;

#pragma GCC unroll 8
    for (int p = 0; p < rows; p++, at += s->b_step * size) {
        __builtin_prefetch(at, 0, 2);
        if (2 * WIDTH * size > 64)
            __builtin_prefetch(at + 64, 0, 2);
    }
}

/* `rows`, `k`, `type` and `add` (CHAIN_ADD: the rows of c that follow come next) are
 * constants of the caller. */
INLINE void stream_few(const struct panel_stream *s, const int rows, const int k,
                       const accel_dtype_t type, const bool add)
{
    for (int64_t j = 0; j < s->n; j += 2 * WIDTH) {
        vector left[PANEL_FEW], right[PANEL_FEW];

        load_few(s, j, left, right, k, type);
        if (s->ahead)
            stream_ahead(s, j, k, type);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            float *c = s->c + i * s->ldc + j;
            const bool on = !add && s->chain == CHAIN_GO_ON;
            vector low = on ? load_vector(c) : zero_vector();
            vector high = on ? load_vector(c + WIDTH) : zero_vector();

#pragma GCC unroll 4
            for (int p = 0; p < k; p++) {
                vector x = all_lanes(s->a + p * s->a_step + i);

                low = multiply_add(low, x, left[p]);
                high = multiply_add(high, x, right[p]);
            }
            if (add) {
                __builtin_prefetch(c + PANEL_FEW * s->ldc, 1, 2);
                if (WIDTH == 16)
                    __builtin_prefetch(c + PANEL_FEW * s->ldc + WIDTH, 1, 2);
                low = add_vectors(load_vector(c), low);
                high = add_vectors(load_vector(c + WIDTH), high);
            }
            store_vector(c, low);
            store_vector(c + WIDTH, high);
        }
    }
}

#define STREAM_ROWS(k, type, add)                                                      \
    do {                                                                               \
        if (s->rows == 1)                                                              \
            stream_few(s, 1, k, type, add);                                            \
        else if (s->rows == 2)                                                         \
            stream_few(s, 2, k, type, add);                                            \
        else if (s->rows == 3)                                                         \
            stream_few(s, 3, k, type, add);                                            \
        else                                                                           \
            stream_few(s, 4, k, type, add);                                            \
    } while (0)

INLINE void stream_typed(const struct panel_stream *s, const accel_dtype_t type,
                         const bool add)
{
    if (s->k == 1)
        STREAM_ROWS(1, type, add);
    else if (s->k == 2)
        STREAM_ROWS(2, type, add);
    else if (s->k == 3)
        STREAM_ROWS(3, type, add);
    else
        STREAM_ROWS(4, type, add);
}

TARGET static void stream_block(const struct panel_stream *s)
{
    if (s->chain == CHAIN_ADD)
        stream_typed(s, ACCEL_F32, true);
    else if (s->b_type == ACCEL_F32)
        stream_typed(s, ACCEL_F32, false);
    else if (s->b_type == ACCEL_BF16)
        stream_typed(s, ACCEL_BF16, false);
#ifdef HAS_F16
    else
        stream_typed(s, ACCEL_F16, false);
#endif
}
