/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole arrays with a scale for each 32 numbers (numbers/scaled.h) to and from float32,
 * over all threads. In: numbers from the start of a block. Out: the same bits for any
 * number of threads, and for any vectors.
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"
#include "numbers/moments.h"

/* Elements of one thread's share: whole blocks. */
#define SHARE 4096

_Static_assert(SHARE % SCALED_BLOCK == 0, "shares are whole blocks");

static int64_t share(int64_t n, int64_t at)
{
    return n - at < SHARE ? n - at : SHARE;
}

void cpu_scaled_widen(const struct backend *be, void *dst, accel_dtype_t type,
                      struct scaled src, int64_t n)
{
#pragma omp parallel for schedule(static) num_threads(be->threads) if (n > SHARE)
    for (int64_t i = 0; i < n; i += SHARE) {
        float room[SHARE], *to = type == ACCEL_F32 ? (float *)dst + i : room;

        scaled_widen(to, src, i, share(n, i));
        if (to == room)
            cpu_store_row(vm_to(dst, i, type), room, type, share(n, i), false);
    }
}

/* Rounded to 0 a square would be a step of any size. */
static void keep_squares(struct scaled x, const float *from, int64_t n)
{
    uint16_t *code = x.data;

    for (int64_t i = 0; i < n; i++)
        if (code[i] == 0 && from[i] > 0)
            code[i] = 1;
}

void cpu_scaled_narrow(const struct backend *be, struct scaled dst, const float *src,
                       int64_t n, bool squares)
{
#pragma omp parallel for schedule(static) num_threads(be->threads) if (n > SHARE)
    for (int64_t i = 0; i < n; i += SHARE) {
        const struct scaled to = scaled_from(dst, i);

        scaled_narrow(to, src + i, share(n, i));
        if (squares)
            keep_squares(to, src + i, share(n, i));
    }
}

/* One block. */
ACCEL_MULTIVERSION
static void narrow_drawn(f8_t *restrict to, const float *restrict x, int64_t n,
                         float by, uint32_t first, uint32_t salt)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        to[i] = (f8_t)gradient_code(x[i], by, first + (uint32_t)i, salt);
}

void cpu_scaled_narrow_sum(const struct backend *be, struct scaled dst,
                           const float *src, int64_t n, int64_t first, uint32_t sums)
{
#pragma omp parallel for schedule(static) num_threads(be->threads) if (n > SHARE)
    for (int64_t i = 0; i < n; i += SCALED_BLOCK) {
        const int64_t length = n - i < SCALED_BLOCK ? n - i : SCALED_BLOCK;
        const uint8_t e = scaled_exponent(src + i, length, dst.type);

        dst.exponent[i / SCALED_BLOCK] = e;
        narrow_drawn((f8_t *)dst.data + i, src + i, length, wire_inverse(e),
                     (uint32_t)(first + i), gradient_salt(first + i, sums));
    }
}
