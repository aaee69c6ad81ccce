/* SPDX-License-Identifier: Apache-2.0
 *
 * Moving elements on the CPU: rows with strides, swapped dimensions, other types. No
 * arithmetic beyond adding to the destination.
 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

/* dst += src, in a storage type, rounded once. */
static void add_row(void *dst, const void *src, accel_dtype_t type, int64_t n)
{
    for (int64_t i = 0; i < n; i += CPU_PIECE) {
        float room[CPU_PIECE];
        int64_t len = cpu_piece(n, i);

        cpu_put(dst, i, type, true, cpu_get(src, i, type, len, room), len);
    }
}

static void copy_row(char *to, const char *from, accel_dtype_t type, int64_t n,
                     bool add)
{
    if (add)
        add_row(to, from, type, n);
    else
        /* any dtype: bits are copied */
        memcpy(to, from, (size_t)n * accel_dtype_bytes(type));
}

void cpu_copy_rows(const struct backend *be, void *dst, int64_t dst_stride, bool add,
                   const void *src, int64_t src_stride, accel_dtype_t type,
                   int64_t rows, int64_t cols)
{
    size_t size = accel_dtype_bytes(type);

#pragma omp parallel for num_threads(be->threads) if (rows * cols > CPU_ALONE_ELEMS)
    for (int64_t r = 0; r < rows; r++) {
        char *to = (char *)dst + (size_t)(r * dst_stride) * size;
        const char *from = (const char *)src + (size_t)(r * src_stride) * size;

        copy_row(to, from, type, cols, add);
    }
}

/* to[j][i] = from[i][j], n x m elements, leading dimensions in elements. The callers
 * cut their matrices into squares that stay in L1. */
#define SWAP(TYPE)                                                                     \
    do {                                                                               \
        const TYPE *f = from;                                                          \
        TYPE *t = to;                                                                  \
                                                                                       \
        for (int64_t j = 0; j < m; j++)                                                \
            for (int64_t i = 0; i < n; i++)                                            \
                t[j * to_ld + i] = f[i * from_ld + j];                                 \
    } while (0)

/* By element size, not dtype: nothing is computed. */
static void swap(void *to, int64_t to_ld, const void *from, int64_t from_ld, int64_t n,
                 int64_t m, size_t size)
{
    switch (size) {
    case 1:
        SWAP(uint8_t);
        break;
    case 2:
        SWAP(uint16_t);
        break;
    case 4:
        SWAP(uint32_t);
        break;
    default:
        SWAP(uint64_t);
        break;
    }
}

/* Side of a square: 32 x 32 elements of 8 bytes are 8 KiB, twice that fits L1. */
enum { SQUARE = 32 };

/* dst [d][n] (+)= src [n][d] transposed; leading dimensions in elements, n <= SQUARE.
 * Adding goes through `room`, because add_row needs rows of dst. */
static void swap_slab(char *dst, int64_t dst_ld, const char *src, int64_t src_ld,
                      int64_t n, int64_t d, accel_dtype_t type, bool add)
{
    uint64_t room[SQUARE * SQUARE];
    size_t size = accel_dtype_bytes(type);

    for (int64_t j = 0; j < d; j += SQUARE) {
        int64_t m = d - j < SQUARE ? d - j : SQUARE;
        const char *from = src + (size_t)j * size;
        char *to = dst + (size_t)(j * dst_ld) * size;

        if (!add) {
            swap(to, dst_ld, from, src_ld, n, m, size);
            continue;
        }
        swap(room, n, from, src_ld, n, m, size);
        for (int64_t k = 0; k < m; k++)
            add_row(to + (size_t)(k * dst_ld) * size,
                    (const char *)room + (size_t)(k * n) * size, type, n);
    }
}

/* Element (a, b, c, d, e) is at (((a B + b) C + c) D + d) E + e of src and at (((a D +
 * d) C + c) B + b) E + e of dst. With E = 1 single elements move, in squares; otherwise
 * rows of E. */
void cpu_transpose(const struct backend *be, void *dst, bool add, const void *src,
                   accel_dtype_t type, const int64_t dim[5])
{
    /* a task is one (a, c) with a slab of b: it writes rows that no other task has */
    int64_t nb = dim[1], nc = dim[2], nd = dim[3], ne = dim[4];
    int64_t step = ne == 1 ? SQUARE : 1, slabs = (nb + step - 1) / step;
    int64_t tasks = dim[0] * nc * slabs, size = (int64_t)accel_dtype_bytes(type);

#pragma omp parallel for num_threads(be->threads) if (dim[0] * nb * nc * nd * ne >     \
                                                      CPU_ALONE_ELEMS / 2)
    for (int64_t t = 0; t < tasks; t++) {
        int64_t a = t / slabs / nc, c = t / slabs % nc, b = t % slabs * step;
        const char *from = (const char *)src + ((a * nb + b) * nc + c) * nd * ne * size;
        char *to = (char *)dst + ((a * nd * nc + c) * nb + b) * ne * size;

        if (ne == 1)
            swap_slab(to, nc * nb, from, nc * nd, nb - b < step ? nb - b : step, nd,
                      type, add);
        else
            for (int64_t d = 0; d < nd; d++)
                copy_row(to + d * nc * nb * ne * size, from + d * ne * size, type, ne,
                         add);
    }
}

#define WIDEN(TYPE)                                                                    \
    do {                                                                               \
        const TYPE *from = (const TYPE *)src + at;                                     \
                                                                                       \
        for (int64_t i = 0; i < n; i++)                                                \
            room[i] = (float)from[i];                                                  \
    } while (0)

/* As cpu_get, for any dtype of an array. */
static const float *get_any(const void *src, int64_t at, accel_dtype_t type, int64_t n,
                            float *room)
{
    switch (type) {
    case ACCEL_F32:
    case ACCEL_BF16:
    case ACCEL_F16:
    case ACCEL_I8:
        return cpu_get(src, at, type, n, room);
    case ACCEL_I32:
        WIDEN(int32_t);
        break;
    case ACCEL_U16:
        WIDEN(uint16_t);
        break;
    case ACCEL_U8:
        WIDEN(uint8_t);
        break;
    case ACCEL_F64:
        WIDEN(double);
        break;
    case ACCEL_I64:
        WIDEN(int64_t);
        break;
    default: /* float8 never forms arrays */
        break;
    }
    return room;
}

/* dst [n] (+)= src [n] through float32: int32 above 2^24 and float64 lose digits. */
void cpu_cast(const struct backend *be, void *dst, accel_dtype_t dst_type, bool add,
              const void *src, accel_dtype_t src_type, int64_t n)
{
#pragma omp parallel for num_threads(be->threads) if (n > CPU_ALONE_ELEMS)
    for (int64_t i = 0; i < n; i += CPU_PIECE) {
        float room[CPU_PIECE];
        int64_t len = cpu_piece(n, i);

        cpu_put(dst, i, dst_type, add, get_any(src, i, src_type, len, room), len);
    }
}
