/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays of float16 and e4m3 with a scale per 32 numbers: what they keep of every size,
 * their scales at the ends of float32, infinity and NaN, parts that begin anywhere; and
 * float16 rounded stochastically, number by number and as masters of a step.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/masters.h"
#include "optim/optim.h"
#include "tests/tap.h"

enum { MOST = 10000, ROOM = MOST * 2 + MOST / SCALED_BLOCK + 1 };

static float x[MOST], y[MOST], z[MOST];
static _Alignas(16) char memory[ROOM], other[ROOM];

/* Sizes that differ by 2^20 within a block, and blocks by 2^60. */
static void fill(void)
{
    for (int i = 0; i < MOST; i++)
        x[i] = (float)((i * 7919) % 4001 - 2000) *
               ldexpf(1, -i % 21 + i / SCALED_BLOCK % 61 - 30);
}

/* ---- arrays ---------------------------------------------------------------------- */

/* Nearest: half a unit of the last place, or of the least subnormal number where the
 * block's largest is at its place below the format's largest. */
static void test_error(accel_dtype_t type, int bits, int range)
{
    const struct scaled to = scaled_in(memory, MOST, type);
    int bad = 0, odd = 0;

    fill();
    scaled_narrow(to, x, MOST);
    scaled_widen(y, to, 0, MOST);
    for (int b = 0; b < MOST; b += SCALED_BLOCK) {
        const int n = MOST - b < SCALED_BLOCK ? MOST - b : SCALED_BLOCK;
        float most = 0;

        for (int i = b; i < b + n; i++)
            most = fmaxf(most, fabsf(x[i]));
        for (int i = b; i < b + n; i++)
            bad += !(fabsf(y[i] - x[i]) <=
                     fmaxf(ldexpf(fabsf(x[i]), -bits), ldexpf(most, -range)));
        odd += !scaled_is_exponent(to.exponent[b / SCALED_BLOCK], type);
    }
    tap_is_int(bad, 0, "%s is within half a unit", accel_dtype_name(type));
    tap_is_int(odd, 0, "with scales that are scales");
    scaled_narrow(scaled_in(other, MOST, type), y, MOST);
    scaled_widen(z, scaled_in(other, MOST, type), 0, MOST);
    tap_ok(!memcmp(z, y, sizeof(z)), "and keeps what it has");
}

/* Any part, by itself. */
static void test_parts(accel_dtype_t type)
{
    const struct scaled from = scaled_in(memory, MOST, type);
    int bad = 0;

    for (int at = 0; at < 100; at += 3)
        for (int n = 0; n < 100; n += 7) {
            memset(z, 0x7f, sizeof(z));
            scaled_widen(z, from, at, n);
            bad += memcmp(z, y + at, (size_t)n * sizeof(*z)) != 0 ||
                   minifloat_bits(z[n]) != 0x7f7f7f7f;
        }
    scaled_widen(z, scaled_from(from, 64), 0, 64);
    bad += memcmp(z, y + 64, 64 * sizeof(*z)) != 0;
    tap_is_int(bad, 0, "parts of %s begin and end anywhere", accel_dtype_name(type));
}

static void test_ends(accel_dtype_t type)
{
    static const float sizes[] = { 0, 0x1p-149f, 0x1p-126f, 1, 0x1.fffffep127f };
    const struct scaled to = scaled_in(memory, SCALED_BLOCK, type);
    int bad = 0;

    memset(memory, 0, sizeof(memory));
    scaled_widen(y, to, 0, SCALED_BLOCK);
    for (int i = 0; i < SCALED_BLOCK; i++)
        bad += y[i] != 0;
    tap_is_int(bad, 0, "zeroed memory holds zeros");
    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(sizes); k++) {
        for (int i = 0; i < SCALED_BLOCK; i++)
            x[i] = i == 5 ? -INFINITY : i == 6 ? NAN : sizes[k];
        scaled_narrow(to, x, SCALED_BLOCK);
        scaled_widen(y, to, 0, SCALED_BLOCK);
        bad += !scaled_is_exponent(to.exponent[0], type);
        bad += type == ACCEL_F16 ? y[5] != -INFINITY : !isnan(y[5]);
        bad += !isnan(y[6]);
        /* far below what a float16 of the least scale has */
        if (sizes[k] == 0 || sizes[k] >= 1)
            bad += !(fabsf(y[0] / sizes[k] - 1) < 0.04f) && y[0] != sizes[k] &&
                   sizes[k] < 0x1.fep127f;
    }
    tap_is_int(bad, 0, "%s: infinity and NaN stay, and no neighbour notices",
               accel_dtype_name(type));
    tap_ok(scaled_is_exponent(0, type) && !scaled_is_exponent(1, type) &&
               !scaled_is_exponent(255, type),
           "exponents that are never written");
}

/* ---- stochastically -------------------------------------------------------------- */

static int ups(float value, uint16_t lower)
{
    int up = 0;

    for (uint32_t w = 0; w < 8192; w++) {
        const uint16_t code = master_f16_of(value, w | 0xabcde000u);

        if (code != lower && code != lower + 1)
            return -1;
        up += code == lower + 1;
    }
    return up;
}

static void test_chance(void)
{
    int bad = 0;

    tap_is_int(ups(0x1.001p0f, 0x3c00), 2048,
               "a quarter of the way, a quarter of draws");
    tap_is_int(ups(-0x1.003p0f, 0xbc00), 6144, "three quarters");
    tap_is_int(ups(0x1.8p-24f, 1), 4096, "of subnormal numbers, too");
    tap_is_int(ups(0x1.ff8p-15f + 0x1p-25f, 0x3ff), 4096, "and up to the least normal");
    tap_is_int(ups(0x1.ffbp15f, 0x7bfe), 2048 * 3, "up to the largest");
    for (uint32_t code = 0; code <= 0xffff; code++) {
        const float exact = f16_to_f32((f16_t)code);
        const uint16_t got = master_f16_of(exact, code * 2654435761u);

        bad += isnan(exact) ? !isnan(f16_to_f32(got)) : got != code;
    }
    tap_is_int(bad, 0, "what needs no rounding has none");
}

/* A step on gradients of 8 bit is one on what they are widened to. */
static void test_gradient(int64_t n, int threads)
{
    static float p[2][MOST], g[MOST];
    const accel_optimizer_t o = { .kind = ACCEL_SGD, .lr = 0.1f };
    const struct optim_param own = { 1, 0, false, -1 };
    const struct optim_step k = optim_step_of(&o, &own, 0.1f, 1, 1);
    const struct scaled_arrays scaled = { .gradient =
                                              scaled_in(memory, n, ACCEL_F8E4M3) };
    struct update_span u = { .scaled = &scaled, .p = p[0], .n = n };
    struct backend *be = NULL;
    accel_error_t err;

    backend_cpu_open(&be, threads, &err);
    fill();
    scaled_narrow(scaled.gradient, x, n);
    scaled_widen(g, scaled.gradient, 0, n);
    for (int i = 0; i < n; i++)
        p[0][i] = p[1][i] = x[n - 1 - i];
    be->update(be, &u, 1, &k);
    u = (struct update_span){ .p = p[1], .g = g, .n = n };
    be->update(be, &u, 1, &k);
    tap_ok(!memcmp(p[0], p[1], (size_t)n * sizeof(*g)) && p[0][0] != x[n - 1],
           "a step on %d narrow gradients, %d threads", (int)n, threads);
    backend_close(be);
}

/* A step on scaled masters: float32's, and each number rounded by its own draw, with
 * pieces and threads of any length. */
static void test_step(int64_t n, int64_t first, int threads)
{
    static float p[MOST], g[MOST], m[MOST];
    const accel_optimizer_t o = { .kind = ACCEL_SGD, .lr = 0.1f, .momentum = 0.5f };
    const struct optim_param own = { 1, 0, false, -1 };
    struct optim_step k = optim_step_of(&o, &own, 0.1f, 1, 1);
    const struct scaled_arrays scaled = { .master = scaled_in(memory, n, ACCEL_F16) };
    const struct scaled want = scaled_in(other, n, ACCEL_F16);
    struct update_span u = { .scaled = &scaled,
                             .m = { .data = m },
                             .g = g,
                             .n = n,
                             .name = 77,
                             .first = first };
    const struct moment_key key = master_key_of(5, 77);
    struct backend *be = NULL;
    accel_error_t err;
    int bad = 0;

    k.draws = 5;
    backend_cpu_open(&be, threads, &err);
    fill();
    scaled_narrow(scaled.master, x, n);
    scaled_widen(p, scaled.master, 0, n);
    for (int i = 0; i < n; i++) {
        g[i] = x[n - 1 - i];
        m[i] = 0;
    }
    memcpy(z, g, sizeof(z));
    be->update(be, &u, 1, &k);
    for (int i = 0; i < n; i++)
        bad += g[i] != 0;
    memcpy(g, z, sizeof(z));
    memset(m, 0, sizeof(m));
    u.scaled = NULL;
    u.p = p;
    be->update(be, &u, 1, &k);
    scaled_narrow(want, p, n);
    for (int64_t b = 0; b < n; b += SCALED_BLOCK) {
        const int64_t length = n - b < SCALED_BLOCK ? n - b : SCALED_BLOCK;
        const uint8_t e = want.exponent[b / SCALED_BLOCK];

        for (int64_t i = b; i < b + length; i++)
            ((uint16_t *)want.data)[i] = master_f16_of(
                p[i] * wire_inverse(e),
                moment_word(key, (uint32_t)(first + i), (uint32_t)((first + i) >> 32)));
    }
    tap_ok(!bad && !memcmp(memory, other, scaled_bytes(n, ACCEL_F16)),
           "a step on %d numbers from %lld on, %d threads", (int)n, (long long)first,
           threads);
    backend_close(be);
}

int main(void)
{
    test_error(ACCEL_F16, 11, 41);
    test_parts(ACCEL_F16);
    test_error(ACCEL_F8E4M3, 4, 17);
    test_parts(ACCEL_F8E4M3);
    test_ends(ACCEL_F16);
    test_ends(ACCEL_F8E4M3);
    test_chance();
    test_gradient(33, 1);
    test_gradient(MOST - 5, 2);
    test_step(1, 0, 1);
    test_step(4097, 64, 1);
    test_step(MOST - 1, (int64_t)1 << 32, 2);
    test_step(MOST, ((int64_t)1 << 32) - 4096, 2);
    return tap_done();
}
