/* SPDX-License-Identifier: Apache-2.0
 *
 * The packing loops of panels.h and their choice by the type that is stored, once for
 * every instruction set, in the terms of panels_block.h. The file that includes it has
 * also defined load_some (the first n numbers from element i on, the others 0; memory
 * behind them is not touched) and transpose (WIDTH vectors).
 */

/* WIDTH stored rows of WIDTH numbers at a time. */
INLINE void turn_typed(float *to, const struct panel_source *from, int64_t n, int64_t k,
                       int64_t width, const accel_dtype_t type)
{
    for (int64_t p = 0; p < k; p += WIDTH) {
        int64_t steps = k - p >= WIDTH ? WIDTH : k - p;

        for (int64_t c = 0; c < width; c += WIDTH) {
            vector r[WIDTH];

#pragma GCC unroll 16
            for (int i = 0; i < WIDTH; i++)
                r[i] = c + i < n
                           ? load_some(from->at, (c + i) * from->ld + p, k - p, type)
                           : zero_vector();
            transpose(r);
#pragma GCC unroll 16
            for (int i = 0; i < WIDTH; i++)
                if (i < steps)
                    store_vector(to + (p + i) * width + c, r[i]);
        }
    }
}

/* Both vectors of a row at once: it is read in order. */
INLINE void copy_typed(float *to, const struct panel_source *from, int64_t n, int64_t k,
                       int64_t width, const accel_dtype_t type)
{
    for (int64_t p = 0; p < k; p++, to += width) {
        store_vector(to, load_some(from->at, p * from->ld, n, type));
        if (width > WIDTH)
            store_vector(to + WIDTH,
                         load_some(from->at, p * from->ld + WIDTH, n - WIDTH, type));
    }
}

#define BY_TYPE(pack)                                                                  \
    do {                                                                               \
        if (from->type == ACCEL_F32)                                                   \
            pack(to, from, n, k, width, ACCEL_F32);                                    \
        else if (from->type == ACCEL_BF16)                                             \
            pack(to, from, n, k, width, ACCEL_BF16);                                   \
        else if (from->type == ACCEL_F16)                                              \
            pack(to, from, n, k, width, ACCEL_F16);                                    \
        else if (from->type == ACCEL_F8E4M3)                                           \
            pack(to, from, n, k, width, ACCEL_F8E4M3);                                 \
        else if (from->type == ACCEL_F8E5M2)                                           \
            pack(to, from, n, k, width, ACCEL_F8E5M2);                                 \
        else                                                                           \
            pack(to, from, n, k, width, ACCEL_I8);                                     \
    } while (0)

TARGET static void turn_stored(float *to, const struct panel_source *from, int64_t n,
                               int64_t k, int64_t width)
{
    BY_TYPE(turn_typed);
}

TARGET static void copy_stored(float *to, const struct panel_source *from, int64_t n,
                               int64_t k, int64_t width)
{
    BY_TYPE(copy_typed);
}
