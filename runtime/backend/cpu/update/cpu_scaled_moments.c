/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer state that rests with a power of two for each 32 numbers: averages of
 * gradients in e4m3, of their squares in float16. In: float32 after a step. Out: codes
 * that are rounded stochastically, and scales; one thread.
 */
#include "backend/cpu/cpu.h"
#include "numbers/masters.h"

/* One block of m, of numbers times `by`; the lower half of a draw rounds. */
ACCEL_MULTIVERSION
static void m_block(f8_t *restrict to, const float *restrict x, int64_t n, float by,
                    struct moment_key key, int64_t first)
{
    const uint32_t low = (uint32_t)first, high = (uint32_t)(first >> 32);

    /* no block has elements on both sides of a multiple of 2^32 */
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const uint32_t word = moment_word(key, low + (uint32_t)i, high);

        to[i] = (f8_t)moment_e4m3_of(x[i] * by, (word & 0xffffu) << 4);
    }
}

/* The same of v; the upper half rounds. A square above 0 keeps a code above 0, because
 * the optimizer divides by it. */
ACCEL_MULTIVERSION
static void v_block(uint16_t *restrict to, const float *restrict x, int64_t n, float by,
                    struct moment_key key, int64_t first)
{
    const uint32_t low = (uint32_t)first, high = (uint32_t)(first >> 32);

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const uint32_t word = moment_word(key, low + (uint32_t)i, high);
        const uint32_t least = moment_min(minifloat_bits(x[i]), 1);

        to[i] = (uint16_t)moment_max(master_f16_of(x[i] * by, word >> 16), least);
    }
}

void cpu_narrow_moments(struct scaled to, const float *x, int64_t n,
                        struct moment_key key, int64_t first)
{
    for (int64_t i = 0; i < n; i += SCALED_BLOCK) {
        const int64_t length = n - i < SCALED_BLOCK ? n - i : SCALED_BLOCK;
        const uint8_t exponent = scaled_exponent(x + i, length, to.type);
        const float by = wire_inverse(exponent);

        to.exponent[i / SCALED_BLOCK] = exponent;
        if (to.type == ACCEL_F16)
            v_block((uint16_t *)to.data + i, x + i, length, by, key, first + i);
        else
            m_block((f8_t *)to.data + i, x + i, length, by, key, first + i);
    }
}
