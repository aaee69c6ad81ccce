/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays of float16: every code, both sides of the middle of every two neighbours, and
 * random bits, against the rule for one number; any length, in place, by type.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/f16.h"
#include "numbers/floats.h"
#include "tests/tap.h"

enum { CODES = 65536, MANY = 1 << 20 };

static float of_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

static bool is_signalling(f16_t h)
{
    return (h & 0x7c00) == 0x7c00 && (h & 0x3ff) && !(h & 0x200);
}

/* A signalling NaN becomes quiet where hardware widens it. */
static void test_widen(void)
{
    f16_t *codes = malloc(CODES * sizeof(*codes));
    float *wide = malloc(CODES * sizeof(*wide));
    int wrong = 0, lost = 0;

    for (uint32_t h = 0; h < CODES; h++)
        codes[h] = (f16_t)h;
    f16_widen(wide, codes, CODES);
    for (uint32_t h = 0; h < CODES; h++) {
        float one = f16_to_f32((f16_t)h);

        wrong += is_signalling((f16_t)h) ? !isnan(wide[h])
                                         : memcmp(&wide[h], &one, sizeof(one)) != 0;
    }
    f16_narrow(codes, wide, CODES);
    for (uint32_t h = 0; h < CODES; h++)
        lost += codes[h] != h && !is_signalling((f16_t)h);
    tap_is_int(wrong, 0, "every float16 is widened to its own value");
    tap_is_int(lost, 0, "and comes back");
    free(codes);
    free(wide);
}

/* The same bits as the rule for one number, which test_wire compares with powers. */
static int narrow_wrong(float *wide, f16_t *narrow, size_t n)
{
    int wrong = 0;

    f16_narrow(narrow, wide, n);
    for (size_t i = 0; i < n; i++)
        wrong += narrow[i] != f32_to_f16(wide[i]);
    return wrong;
}

static void test_narrow(void)
{
    float *wide = malloc(MANY * sizeof(*wide));
    f16_t *narrow = malloc(MANY * sizeof(*narrow));
    uint32_t state = 1;
    int wrong = 0;
    size_t n = 0;

    for (uint32_t h = 0; h < 0x7c00; h++) {
        /* between numbers that are exact in float32 the middle is exact, too */
        float middle = (f16_to_f32((f16_t)h) +
                        (h == 0x7bff ? 65536.0f : f16_to_f32((f16_t)(h + 1)))) /
                       2;

        wide[n++] = nextafterf(middle, 0);
        wide[n++] = middle;
        wide[n++] = -nextafterf(middle, INFINITY);
    }
    tap_is_int(narrow_wrong(wide, narrow, n), 0, "rounded to the nearest");
    tap_ok(narrow[3 * 5 + 1] == 6 && narrow[3 * 6 + 1] == 6, "ties go to even");
    tap_ok(narrow[n - 3] == 0x7bff && narrow[n - 2] == 0x7c00 &&
               narrow[n - 1] == 0xfc00,
           "from 65520 on the result is infinity");
    for (int round = 0; round < 8; round++) {
        for (n = 0; n < MANY; n++) {
            state = state * 1664525u + 1013904223u;
            wide[n] = of_bits(state ^ state >> 15);
        }
        wrong += narrow_wrong(wide, narrow, n);
    }
    tap_is_int(wrong, 0, "any float32, NaN and the smallest included");
    free(wide);
    free(narrow);
}

static void test_lengths(void)
{
    int wrong = 0;

    for (size_t n = 0; n < 70; n++) {
        float all[71], back[71];
        const f16_t *half = (const f16_t *)(const void *)all;

        for (size_t i = 0; i < 71; i++)
            all[i] = back[i] = (float)i * 1.01f;
        f16_narrow((f16_t *)(void *)all, all, n);
        f16_widen(back, half, n);
        for (size_t i = 0; i < n; i++)
            wrong += half[i] != f32_to_f16((float)i * 1.01f) ||
                     back[i] != f16_to_f32(half[i]);
        wrong += back[n] != (float)n * 1.01f;
    }
    tap_is_int(wrong, 0, "any length, narrowed in place");
}

static void test_types(void)
{
    const float x[3] = { 1.0f / 3, -2049, 3.0e38f };
    uint32_t narrow[3];
    float back[3];

    floats_narrow(narrow, ACCEL_F32, x, 3);
    floats_widen(back, narrow, ACCEL_F32, 3);
    tap_ok(memcmp(back, x, sizeof(x)) == 0, "float32 as it is");
    floats_narrow(narrow, ACCEL_BF16, x, 3);
    floats_widen(back, narrow, ACCEL_BF16, 3);
    tap_ok(back[0] == 0x1.56p-2f && back[1] == -2048 && isfinite(back[2]), "bfloat16");
    floats_narrow(narrow, ACCEL_F16, x, 3);
    floats_widen(back, narrow, ACCEL_F16, 3);
    tap_ok(back[0] == 0x1.554p-2f && back[1] == -2048 && isinf(back[2]), "float16");
    tap_ok(accel_dtype_is_float(ACCEL_F16) && !accel_dtype_is_float(ACCEL_F64) &&
               !accel_dtype_is_float(ACCEL_F8E4M3),
           "the types that tensors compute in");
}

int main(void)
{
    test_widen();
    test_narrow();
    test_lengths();
    test_types();
    return tap_done();
}
