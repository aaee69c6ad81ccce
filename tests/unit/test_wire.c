/* SPDX-License-Identifier: Apache-2.0
 *
 * float16, e4m3 and e5m2: every number there is, and float32 between them, against the
 * formats as they are defined, in doubles. Blocks of the wire: layout, scales, error,
 * infinities and NaN, in place and by several threads.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "comm/reduce.h"
#include "numbers/wire.h"
#include "tests/tap.h"

/* A format by its definition. */
struct format {
    accel_dtype_t type;
    int codes, mantissa, bias;
    double largest;
    bool infinite;
};

static const struct format formats[] = {
    { ACCEL_F16, 65536, 10, 15, 65504, true },
    { ACCEL_F8E4M3, 256, 3, 7, 448, false },
    { ACCEL_F8E5M2, 256, 2, 15, 57344, true },
};

static uint32_t narrow(const struct format *f, float x)
{
    return f->type == ACCEL_F16      ? f32_to_f16(x)
           : f->type == ACCEL_F8E4M3 ? f32_to_e4m3(x)
                                     : f32_to_e5m2(x);
}

static float widen(const struct format *f, uint32_t code)
{
    return f->type == ACCEL_F16      ? f16_to_f32((f16_t)code)
           : f->type == ACCEL_F8E4M3 ? e4m3_to_f32((f8_t)code)
                                     : e5m2_to_f32((f8_t)code);
}

/* ---- one number ------------------------------------------------------------------ */

/* What a code means. */
static double meaning(const struct format *f, int code)
{
    int half = f->codes / 2, rest = code % half, steps = 1 << f->mantissa;
    int exponent = rest / steps, part = rest % steps;
    double v;

    if (f->infinite && rest >= (2 * f->bias + 1) * steps)
        v = part ? (double)NAN : (double)INFINITY;
    else if (!f->infinite && rest == half - 1)
        v = (double)NAN;
    else if (exponent == 0)
        v = ldexp(part, 1 - f->bias - f->mantissa);
    else
        v = ldexp(steps + part, exponent - f->bias - f->mantissa);
    return code < half ? v : -v;
}

/* What a number becomes: the nearest one, of two the one whose last place is even. */
static double rounded(const struct format *f, double x)
{
    double step, y;
    int exponent;

    if (isnan(x) || (isinf(x) && !f->infinite))
        return (double)NAN;
    if (isinf(x) || x == 0)
        return x;
    frexp(x, &exponent); /* below 2^exponent */
    exponent = exponent - 1 < 1 - f->bias ? 1 - f->bias : exponent - 1;
    step = ldexp(1, exponent - f->mantissa);
    y = nearbyint(x / step) * step;
    if (fabs(y) > f->largest)
        y = copysign(f->infinite ? (double)INFINITY : f->largest, x);
    return y;
}

static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static bool becomes(const struct format *f, float x)
{
    uint32_t code = narrow(f, x);

    return code < (uint32_t)f->codes &&
           same(meaning(f, (int)code), rounded(f, (double)x));
}

static void test_codes(const struct format *f)
{
    const char *name = accel_dtype_name(f->type);
    int wrong = 0, lost = 0;

    for (int code = 0; code < f->codes; code++) {
        float x = widen(f, (uint32_t)code);

        wrong += !same((double)x, meaning(f, code));
        lost += !isnan(x) && narrow(f, x) != (uint32_t)code;
        lost += isnan(x) && !isnan(widen(f, narrow(f, x)));
    }
    tap_is_int(wrong, 0, "%s: all numbers are what the format says", name);
    tap_is_int(lost, 0, "  and come back as they were");
}

/* Halfway between two neighbours, and just beside. */
static void test_halves(const struct format *f)
{
    int wrong = 0, seen = 0;

    for (int code = 0; code < f->codes; code++) {
        double low = meaning(f, code), high = meaning(f, (code + 1) % f->codes);
        float half = (float)((low + high) / 2);

        if (isnan(low) || isnan(high) || isinf(low) || isinf(high))
            continue;
        seen++;
        wrong += !becomes(f, half) || !becomes(f, nextafterf(half, INFINITY)) ||
                 !becomes(f, nextafterf(half, -INFINITY));
    }
    tap_ok(wrong == 0 && seen > f->codes * 9 / 10,
           "%s: halfway between two, and beside: the nearest, or the even one (%d)",
           accel_dtype_name(f->type), seen);
}

static void test_all(const struct format *f)
{
    int wrong = 0;

    for (uint64_t u = 0; u <= UINT32_MAX; u += 4093)
        wrong += !becomes(f, minifloat_float((uint32_t)u));
    tap_is_int(wrong, 0, "%s: a million float32 of all sizes",
               accel_dtype_name(f->type));
}

static void test_limits(void)
{
    tap_ok(f32_to_f16(65519.99f) == 0x7bff && f32_to_f16(65520) == 0x7c00 &&
               f32_to_f16(-INFINITY) == 0xfc00 && isnan(f16_to_f32(f32_to_f16(NAN))),
           "float16: beyond the largest number is infinity");
    tap_ok(f32_to_e5m2(61439.99f) == 0x7b && f32_to_e5m2(61440) == 0x7c &&
               f32_to_e5m2(-INFINITY) == 0xfc && isnan(e5m2_to_f32(f32_to_e5m2(NAN))),
           "e5m2: the same");
    tap_ok(f32_to_e4m3(464) == 0x7e && f32_to_e4m3(1e30f) == 0x7e &&
               f32_to_e4m3(-1e30f) == 0xfe && f32_to_e4m3(INFINITY) == 0x7f &&
               f32_to_e4m3(-INFINITY) == 0xff && isnan(e4m3_to_f32(f32_to_e4m3(NAN))),
           "e4m3: the largest number; infinity is NaN");
    tap_ok(f32_to_f16(minifloat_float(0x7fc02000)) == 0x7e01 &&
               f32_to_f16(minifloat_float(0x7f800001)) == 0x7e00 &&
               minifloat_bits(f16_to_f32(0xfe01)) == 0xffc02000,
           "NaN keeps its sign and what there is room for, and is quiet");
}

/* ---- blocks ---------------------------------------------------------------------- */

enum { N = 5 * WIRE_BLOCK + 37 };

static uint64_t seed = 1;

static float uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(seed >> 40) * 0x1p-23f - 1.0f;
}

/* Numbers like gradients: most are much smaller than the largest of their block. */
static void gradients(float *x, int n, float size)
{
    for (int i = 0; i < n; i++)
        x[i] = size * uniform() * uniform() * uniform();
}

static void test_layout(void)
{
    const accel_dtype_t e4m3 = ACCEL_F8E4M3;

    tap_ok(wire_bytes(1000, ACCEL_F32) == 4000 && wire_bytes(1000, ACCEL_BF16) == 2000,
           "float32 and bfloat16 travel as they are");
    tap_ok(wire_bytes(0, e4m3) == 0 && wire_bytes(1, e4m3) == 8 &&
               wire_bytes(4, e4m3) == 8 && wire_bytes(128, e4m3) == 132 &&
               wire_bytes(129, e4m3) == 140 && wire_bytes(1280, e4m3) == 1320,
           "e4m3: a scale for each 128, filled up to 4 bytes");
    tap_ok(wire_bytes(3, ACCEL_F16) == 12 && wire_bytes(128, ACCEL_F16) == 260,
           "float16: the same");
}

/* Each number within half a last place of its own, or of the least normal number of its
 * block; the largest is not cut off. */
static bool near(const struct format *f, const float *x, const float *got, int n)
{
    for (int at = 0; at < n; at += WIRE_BLOCK) {
        int end = at + WIRE_BLOCK < n ? at + WIRE_BLOCK : n;
        double most = 0, least;

        for (int i = at; i < end; i++)
            most = fmax(most, fabs((double)x[i]));
        least = fmax(most / f->largest * 2 * ldexp(1, 1 - f->bias), 0x1p-124);
        for (int i = at; i < end; i++)
            if (fabs((double)got[i] - (double)x[i]) >
                ldexp(fmax(fabs((double)x[i]), least), -1 - f->mantissa))
                return false;
    }
    return true;
}

/* The bytes behind the last number of a block, up to a multiple of 4, are zeros. */
static void test_filling(const struct format *f)
{
    int wrong = 0;

    for (size_t n = 1; n <= 2 * WIRE_BLOCK + 3; n++) {
        const size_t size = accel_dtype_bytes(f->type), bytes = wire_bytes(n, f->type);
        const size_t rest = n % WIRE_BLOCK ? n % WIRE_BLOCK : WIRE_BLOCK;
        const size_t last = n - rest; /* the number that the last block begins with */
        const size_t end = wire_bytes(last, f->type) + WIRE_HEAD + rest * size;
        unsigned char block[3 * (WIRE_HEAD + WIRE_BLOCK * sizeof(f16_t))];
        float x[2 * WIRE_BLOCK + 3];

        for (size_t i = 0; i < n; i++)
            x[i] = 1.0f + (float)i;
        memset(block, 0xaa, sizeof(block));
        wire_narrow(block, x, n, f->type);
        for (size_t i = end; i < bytes; i++)
            wrong += block[i] != 0;
        wrong += block[bytes] != 0xaa || bytes % 4 != 0;
    }
    tap_is_int(wrong, 0, "filled up with zeros, and nothing behind them");
}

static void test_blocks(const struct format *f)
{
    const char *name = accel_dtype_name(f->type);
    static char blocks[4 * N], again[4 * N];
    static float x[N], got[N];
    bool good = true, cut = true;
    size_t bytes = wire_bytes(N, f->type);

    for (int e = -126; e <= 120; e += 3) {
        gradients(x, N, ldexpf(1, e));
        wire_narrow(blocks, x, N, f->type);
        wire_widen(got, blocks, N, f->type);
        good = good && near(f, x, got, N);
        wire_narrow(again, got, N, f->type); /* what they hold can be held */
        wire_widen(x, again, N, f->type);
        good = good && memcmp(x, got, sizeof(x)) == 0;
    }
    tap_ok(good, "%s: gradients of any size within half a last place", name);
    gradients(x, N, 1e-9f);
    for (int i = 0; i < WIRE_BLOCK; i++)
        x[WIRE_BLOCK + i] *= 1e20f;
    wire_narrow(blocks, x, N, f->type);
    wire_widen(got, blocks, N, f->type);
    tap_ok(near(f, x, got, N), "  beside a block of large ones, too");
    for (int at = 0; at < N; at += WIRE_BLOCK) {
        const size_t left = (size_t)(N - at) < 200 ? (size_t)(N - at) : 200;

        wire_widen(x, blocks + wire_bytes((size_t)at, f->type), left, f->type);
        cut = cut && memcmp(x, got + at, left * sizeof(*x)) == 0;
    }
    tap_ok(cut, "  and from the begin of any block");
    gradients(x, N, 1);
    wire_narrow(blocks, x, N, f->type);
    wire_narrow(x, x, N, f->type);
    tap_ok(memcmp(x, blocks, bytes) == 0, "  in place: the same");
}

static void test_special(const struct format *f)
{
    const char *name = accel_dtype_name(f->type);
    float x[WIRE_BLOCK] = { 0 }, got[WIRE_BLOCK];
    char blocks[4 * WIRE_BLOCK];

    memset(got, 0x5a, sizeof(got));
    wire_narrow(blocks, x, WIRE_BLOCK, f->type);
    wire_widen(got, blocks, WIRE_BLOCK, f->type);
    tap_ok(memcmp(x, got, sizeof(x)) == 0, "%s: zeros", name);
    gradients(x, WIRE_BLOCK, 1e-4f);
    x[3] = INFINITY;
    x[5] = -INFINITY;
    x[7] = NAN;
    wire_narrow(blocks, x, WIRE_BLOCK, f->type);
    wire_widen(got, blocks, WIRE_BLOCK, f->type);
    tap_ok((f->infinite ? got[3] == INFINITY && got[5] == -INFINITY
                        : isnan(got[3]) && isnan(got[5])) &&
               isnan(got[7]),
           "  infinities and NaN arrive");
    x[3] = x[5] = x[7] = got[3] = got[5] = got[7] = 0;
    tap_ok(near(f, x, got, WIRE_BLOCK), "  and harm no other number");
    x[0] = 3e38f;
    x[1] = -0x1p-149f;
    wire_narrow(blocks, x, WIRE_BLOCK, f->type);
    wire_widen(got, blocks, WIRE_BLOCK, f->type);
    tap_ok(near(f, x, got, WIRE_BLOCK) && isfinite(got[0]), "  nearly the largest");
}

/* ---- the kernels of the CPU ------------------------------------------------------ */

static void test_kernels(const struct format *f)
{
    enum { PARTS = 3, LONG = 288 * 32 };
    static float in[PARTS * LONG], x[PARTS * LONG], a[LONG], b[LONG];
    static char apart[sizeof(in)];
    const char *name = accel_dtype_name(f->type);
    const size_t one = wire_bytes(LONG, f->type);
    const void *src[PARTS] = { apart, apart + one, apart + 2 * one };
    struct backend *be = NULL;
    accel_error_t err = { 0 };
    bool same = true;

    if (!tap_is_int(backend_cpu_open(&be, 3, &err), 0, "%s: kernels", name))
        return;
    gradients(in, PARTS * LONG, 1e-3f);
    for (size_t r = 0; r < PARTS; r++)
        wire_narrow(apart + r * one, in + r * LONG, LONG, f->type);
    for (int threads = 1; threads <= 3; threads += 2) {
        be->threads = threads;
        memset(x, 0, sizeof(x));
        be->narrow_parts(be, x, f->type, in, PARTS, LONG);
        same = same && memcmp(x, apart, PARTS * one) == 0;
        memcpy(x, in, sizeof(x));
        be->narrow_parts(be, x, f->type, x, PARTS, LONG);
        same = same && memcmp(x, apart, PARTS * one) == 0;
        memcpy(x, in, sizeof(x)); /* 32 each: the shortest parts */
        be->narrow_parts(be, x, f->type, x, PARTS * LONG / 32, 32);
        for (size_t r = 0; same && r < PARTS * LONG / 32; r++) {
            wire_narrow(a, in + r * 32, 32, f->type);
            same = memcmp(a, (char *)x + r * wire_bytes(32, f->type),
                          wire_bytes(32, f->type)) == 0;
        }
    }
    tap_ok(same, "  threads and place change no bit");
    same = true;
    for (int again = 0; again < 2; again++) {
        be->sum_parts(be, a, again, NULL, apart, f->type, PARTS, LONG, 0.25f);
        reduce_scaled_sum(b, src, PARTS, LONG, f->type, 0.25f, again);
        same = same && memcmp(a, b, sizeof(a)) == 0;
    }
    for (size_t r = 0; r < PARTS; r++)
        wire_widen(x + r * LONG, src[r], LONG, f->type);
    for (int i = 0; same && i < LONG; i++) {
        float sum = 0.25f * ((x[i] + x[LONG + i]) + x[2 * LONG + i]);

        same = b[i] == sum + sum;
    }
    tap_ok(same, "  parts are added in their order, in float32");
    backend_close(be);
}

int main(void)
{
    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(formats); k++) {
        test_codes(&formats[k]);
        test_halves(&formats[k]);
        test_all(&formats[k]);
    }
    test_limits();
    test_layout();
    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(formats); k++) {
        test_blocks(&formats[k]);
        test_filling(&formats[k]);
        test_special(&formats[k]);
        test_kernels(&formats[k]);
    }
    return tap_done();
}
