/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of every format whose numbers share scales, over values that are hard to
 * round: checkpoints and ranks of another build must read and make the same ones. The
 * rules themselves are compared with their definitions elsewhere (test_wire,
 * test_scaled, test_moments, test_fp8_blocks).
 */
#include <math.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "backend/device.h"
#include "numbers/wire.h"
#include "tests/tap.h"

enum { N = 9001, ROOM = 5 * N, FIRST = 64 };

static float x[N], y[N];
static _Alignas(64) char room[ROOM];
static const struct backend *be;

static float of_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* Kinds of blocks in turn, each of 32 numbers: any bits at all, zeros of both signs,
 * subnormal numbers, one that is far larger than the others, the ends of float32,
 * infinities and NaN, numbers half-way between codes and beside that, and usual ones. */
static void fill(void)
{
    uint32_t r = 12345;

    for (uint32_t i = 0; i < N; i++) {
        const uint32_t sign = r & 0x80000000u, kind = i / 32 % 8;

        r = r * 1664525u + 1013904223u;
        if (kind == 0)
            x[i] = of_bits(r);
        else if (kind == 1)
            x[i] = of_bits(sign);
        else if (kind == 2)
            x[i] = of_bits(sign | r >> (9 + i % 5));
        else if (kind == 3)
            x[i] = i % 32 == 5 ? 1e30f : of_bits(sign | 0x30000000u | r >> 12);
        else if (kind == 4)
            x[i] = of_bits(sign | ((i % 3 ? 0x7f7fffffu : 0x00800000u) - i % 7 % 2));
        else if (kind == 5)
            x[i] = i % 4 ? of_bits(0x3f000000u + (r >> 8)) : i % 8 ? NAN : -INFINITY;
        else if (kind == 6)
            x[i] = of_bits(sign | (((r >> 7 & 0xfffu) << 18) + 0x38000000u +
                                   (i % 3 - 1) + (i % 5 == 0 ? 0x20000u : 0)));
        else
            x[i] = (float)((int32_t)r >> 8) * 0x1p-20f;
    }
}

/* All of `bytes` in room, and what it is widened to. */
static void check(const char *what, size_t bytes, bool widened, uint64_t want)
{
    uint64_t got = XXH3_64bits(room, bytes);

    if (widened)
        got ^= XXH3_64bits(y, sizeof(y)) * 3;
    tap_ok(got == want, "%s: 0x%016llx", what, (unsigned long long)got);
}

static void test_wire_bytes(accel_dtype_t type, uint64_t want)
{
    wire_narrow(room, x, N, type);
    wire_widen(y, room, N, type);
    check(accel_dtype_name(type), wire_bytes(N, type), true, want);
}

static void test_nearest(accel_dtype_t type, bool squares, uint64_t want)
{
    const struct scaled to = scaled_in(room, N, type);

    be->scaled_narrow(be, to, x, N, squares);
    be->scaled_widen(be, y, ACCEL_F32, to, N);
    check(squares ? "squares, a scale for 32" : "a scale for 32", scaled_bytes(N, type),
          true, want);
}

static void test_sums(uint64_t want)
{
    be->scaled_narrow_sum(be, scaled_in(room, N, ACCEL_F8E4M3), x, N, FIRST, 3);
    check("gradients", scaled_bytes(N, ACCEL_F8E4M3), false, want);
}

static void test_moment_bytes(bool positive, uint64_t want)
{
    const struct moments to = { room, (uint16_t *)(void *)(room + (N + 63) / 64 * 64) };

    memset(room, 0, sizeof(room));
    be->moments_narrow(be, to, x, positive, N);
    be->moments_widen(be, y, to, positive, N);
    check(positive ? "8-bit squares" : "8-bit moments", sizeof(room), true, want);
}

static void test_fp8(accel_dtype_t to, int64_t width, bool e8m0, uint64_t want)
{
    struct block_scales s[2] = { { .inverse = room + 2 * N,
                                   .e8m0 = e8m0,
                                   .height = 1,
                                   .width = width,
                                   .cols = N } };

    memset(room, 0, sizeof(room));
    s->inverse = room + (N + 63) / 64 * 64;
    be->quantize_blocks(be, (void *[2]){ room, NULL }, to, x, ACCEL_F32, 1, s);
    check("blocks of fp8", sizeof(room), false, want);
}

/* ---- what a step rounds by draws ------------------------------------------------- */

/* Masters that were 0 become x. */
static void test_masters(bool f16, uint64_t want)
{
    static float g[N];
    const struct optim_step k = { .kind = ACCEL_SGD,
                                  .draws = 9,
                                  .sgd = { .lr = 1, .own = 1, .grad_scale = 1 } };
    const struct scaled_arrays scaled = { .master = scaled_in(room, N, ACCEL_F16) };
    struct update_span u = { .g = g, .n = N, .name = 7, .first = FIRST };

    for (int i = 0; i < N; i++)
        g[i] = -x[i];
    memset(room, 0, sizeof(room));
    if (f16)
        u.scaled = &scaled;
    else
        u.narrow = (uint16_t *)(void *)room;
    be->update(be, &u, 1, &k);
    check(f16 ? "float16 masters" : "bfloat16 masters", sizeof(room), false, want);
}

/* State that was 0: m becomes half of x, v a quarter of its square. */
static void test_state(bool codes, uint64_t want)
{
    static float g[N], p[N];
    const size_t part = (sizeof(room) / 4) & ~(size_t)63;
    const struct optim_step k = { .kind = ACCEL_ADAMW,
                                  .draws = 9,
                                  .adamw = { .beta1 = 0.5f,
                                             .beta2 = 0.75f,
                                             .one_minus_beta1 = 0.5f,
                                             .one_minus_beta2 = 0.25f,
                                             .root_scale = 1,
                                             .eps = 1e-8f,
                                             .grad_scale = 1 } };
    const struct scaled_arrays scaled = {
        .m = { room, (uint8_t *)room + part, ACCEL_F8E4M3 },
        .v = { room + 2 * part, (uint8_t *)y, ACCEL_F16 }
    };
    struct update_span u = { .p = p, .g = g, .n = N, .name = 7, .first = FIRST };

    memset(room, 0, sizeof(room));
    memset(y, 0, sizeof(y));
    memcpy(g, x, sizeof(x));
    if (codes) {
        u.m = (struct moments){ room, (uint16_t *)(void *)(room + part) };
        u.v = (struct moments){ room + 2 * part, (uint16_t *)(void *)y };
    } else {
        u.scaled = &scaled;
    }
    be->update(be, &u, 1, &k);
    check(codes ? "8-bit state by draws" : "scaled state by draws", sizeof(room), true,
          want);
}

int main(void)
{
    struct backend *cpu;

    for (int threads = 1; threads <= 2; threads++) {
        if (backend_cpu_open(&cpu, threads, NULL))
            return 1;
        be = cpu;
        fill();
        test_wire_bytes(ACCEL_F16, 0x9abefe48ead79af2);
        test_wire_bytes(ACCEL_F8E4M3, 0x93f723ead27b3a40);
        test_wire_bytes(ACCEL_F8E5M2, 0xaa159c584d05f021);
        test_nearest(ACCEL_F16, false, 0xbcbb5fd5ca24e554);
        test_nearest(ACCEL_F16, true, 0x300315443ee7d176);
        test_nearest(ACCEL_F8E4M3, false, 0x4cdd1a1c6f8b8169);
        test_sums(0x1f1551c2852b3e86);
        test_moment_bytes(false, 0x323686a90feec0ad);
        test_moment_bytes(true, 0x60f897478c4c12d1);
        test_fp8(ACCEL_F8E4M3, 32, true, 0xdc7aed2792b8ff00);
        test_fp8(ACCEL_F8E5M2, 32, true, 0x06ee34f17e1e1ad6);
        test_fp8(ACCEL_F8E4M3, 128, false, 0xcf8132ecf7283799);
        test_fp8(ACCEL_F8E5M2, 128, false, 0xbfd36b9aea8b0444);
        test_masters(true, 0x846ce408745bf965);
        test_masters(false, 0xc93ec21b2f431188);
        test_state(true, 0x64ae6ed41f5d1133);
        test_state(false, 0xf349acdb7e12c1ae);
        backend_close(cpu);
    }
    return tap_done();
}
