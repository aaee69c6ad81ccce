/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole arrays with a scale for each 32 numbers (numbers/scaled.h) to and from float32,
 * over all threads. In: numbers from the start of a block. Out: the same bits for any
 * number of threads, and for any vectors.
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"
#include "numbers/block_formats.h"

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

/* By threads; see scaled_narrow_by. */
static void narrow_shares(const struct backend *be, struct scaled dst, const float *src,
                          int64_t n, enum scaled_rule rule, struct moment_key key,
                          int64_t first)
{
#pragma omp parallel for schedule(static) num_threads(be->threads) if (n > SHARE)
    for (int64_t i = 0; i < n; i += SHARE)
        scaled_narrow_by(scaled_from(dst, i), src + i, share(n, i), rule, key,
                         first + i);
}

void cpu_scaled_narrow(const struct backend *be, struct scaled dst, const float *src,
                       int64_t n, bool squares)
{
    narrow_shares(be, dst, src, n, squares ? SCALED_SQUARES : SCALED_NEAREST,
                  (struct moment_key){ 0 }, 0);
}

void cpu_scaled_narrow_sum(const struct backend *be, struct scaled dst,
                           const float *src, int64_t n, int64_t first, uint32_t sums)
{
    narrow_shares(be, dst, src, n, SCALED_GRADIENTS, (struct moment_key){ .low = sums },
                  first);
}
