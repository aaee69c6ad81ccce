/* SPDX-License-Identifier: Apache-2.0
 *
 * 8-bit moments: the code of a number, how it rounds, and the optimizers' kernels
 * against the same step written out for one block at a time, to the bit: for every
 * length, beginning and number of threads.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/maths.h"
#include "numbers/masters.h"
#include "optim/optim.h"
#include "tests/tap.h"

enum { MOST = 20000, SCALES = MOST / MOMENT_BLOCK };

/* The arrays of a range. */
struct arrays {
    float p[MOST], g[MOST];
    uint8_t m[MOST], v[MOST];
    uint16_t m_scale[SCALES], v_scale[SCALES];
};

static struct arrays start, mine, theirs;

/* ---- the code -------------------------------------------------------------------- */

/* Of each code the value has that code again. */
static void test_codes(void)
{
    const uint32_t half = moment_dither(MOMENT_HALF_WORD);
    const float unit = 0x1.8p-20f;
    int bad = 0;

    for (uint32_t c = 0; c < 256; c++) {
        const float square = moment_square(c, unit), value = moment_signed(c, unit);

        bad += moment_of_square(square, 1 / unit, half) != c;
        bad += moment_of_signed(value, 1 / unit, half) != c;
        bad += c > 0 && square <= moment_square(c - 1, unit);
        bad += c > 0 && c < 128 && value <= moment_signed(c - 1, unit);
        bad += c >= 128 && value != -moment_signed(c - 128, unit);
    }
    tap_ok(bad == 0 && moment_units(255) == MOMENT_SQUARE_TOP &&
               moment_units(127) == MOMENT_SIGNED_TOP,
           "256 codes are in order, and the largest ones are the tops");
}

/* To the nearest, of sizes down to 10^-6 and 1/4000 of the block's largest number. */
static void test_bounds(void)
{
    float worst_square = 0, worst_signed = 0;

    for (int i = 0; i < 100000; i++) {
        const float x = expf(-13.0f * (float)i / 100000);
        const uint32_t half = moment_dither(MOMENT_HALF_WORD);
        const float s =
            minifloat_float(moment_unit_bits(MOMENT_ONE, MOMENT_SQUARE_TOP));
        const float u =
            minifloat_float(moment_unit_bits(MOMENT_ONE, MOMENT_SIGNED_TOP));
        const float square = moment_square(moment_of_square(x, 1 / s, half), s);
        const float value = moment_signed(moment_of_signed(-x, 1 / u, half), u);

        worst_square = fmaxf(worst_square, fabsf(square - x) / (x + s));
        worst_signed = fmaxf(worst_signed, fabsf(value + x) / (x + u));
    }
    tap_ok(worst_square < 0.0314f && worst_signed < 0.0314f,
           "numbers are within 3.13 %% of themselves and a unit (%.4g, %.4g)",
           (double)worst_square, (double)worst_signed);
}

/* The mean of many draws is the number itself. */
static void test_chance(void)
{
    static const float of_top[] = { 0.9f, 0.3f, 0.011f, 7e-4f };
    float worst = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(of_top); i++) {
        const struct moment_key key = moment_key_of(7, i);
        const float u = 1 / MOMENT_SIGNED_TOP, s = 1 / MOMENT_SQUARE_TOP;
        double value = 0, square = 0;
        const int draws = 1 << 18;

        for (int e = 0; e < draws; e++) {
            const uint32_t word = moment_word(key, (uint32_t)e, 0);

            value += (double)moment_signed(
                moment_of_signed(of_top[i], 1 / u, moment_dither(word)), u);
            square += (double)moment_square(
                moment_of_square(of_top[i], 1 / s, moment_dither(word >> 16)), s);
        }
        worst = fmaxf(worst, fabsf((float)(value / draws) / of_top[i] - 1));
        worst = fmaxf(worst, fabsf((float)(square / draws) / of_top[i] - 1));
    }
    tap_ok(worst < 1e-3f, "the mean of 2^18 draws is within %.2g", (double)worst);
}

/* The largest number of a block is among the codes, and its code is one of the last. */
static void test_scales(void)
{
    int bad = 0;

    for (int i = 0; i < 4096; i++) {
        const float most = ldexpf(1 + (float)i / 4096, i % 60 - 30);
        const float top = i % 2 ? MOMENT_SQUARE_TOP : MOMENT_SIGNED_TOP;
        const float unit = minifloat_float(moment_unit_bits(minifloat_bits(most), top));
        const uint32_t code = moment_code(most / unit, top, 0);

        bad += unit * top < most * (1 - 0x1p-22f) || (code & 0x7f) < 0x7e;
    }
    tap_is_int(bad, 0, "the scale is the least for the largest number");
}

static void test_ends(void)
{
    const uint32_t none = moment_dither(0), all = moment_dither(0xffff);
    const uint32_t large =
        moment_unit_bits(minifloat_bits(INFINITY), MOMENT_SQUARE_TOP);
    const uint32_t zero = moment_unit_bits(0, MOMENT_SQUARE_TOP);

    tap_ok(moment_of_square(0, 1, all) == 0 && moment_of_signed(0, 1, all) == 0,
           "0 stays 0 with any draw");
    tap_ok(moment_of_square(1e-30f, 1, none) == 1 &&
               moment_of_signed(0.01f, 1, none) == 0,
           "a square above 0 keeps a code above 0");
    tap_ok(moment_of_square(NAN, 1, all) == 255 &&
               moment_of_square(INFINITY, 1, all) == 255 &&
               moment_of_signed(-INFINITY, 1, all) == 255,
           "what is not finite has the largest code");
    tap_ok(isnormal(minifloat_float(large)) && isnormal(1 / minifloat_float(large)) &&
               isnormal(minifloat_float(zero)) && isnormal(1 / minifloat_float(zero)),
           "units and their inverses are normal numbers at both ends");
}

/* ---- the kernels ----------------------------------------------------------------- */

static uint32_t word_of(const struct update_span *x, const struct optim_step *k,
                        int64_t i)
{
    const int64_t e = x->first + i;

    return moment_word(moment_key_of(k->draws, x->name), (uint32_t)e,
                       (uint32_t)(e >> 32));
}

/* n <= 16 values of a block to codes. */
static void narrow_plain(uint8_t *code, uint16_t *scale, const float *value,
                         bool positive, const uint32_t *dither, int n)
{
    float most = 0, unit;

    for (int i = 0; i < n; i++)
        most = fmaxf(most, fabsf(value[i]));
    unit = minifloat_float(moment_unit_bits(
        minifloat_bits(most), positive ? MOMENT_SQUARE_TOP : MOMENT_SIGNED_TOP));
    *scale = f32_to_bf16(unit);
    for (int i = 0; i < n; i++)
        code[i] = (uint8_t)(positive ? moment_of_square(value[i], 1 / unit, dither[i])
                                     : moment_of_signed(value[i], 1 / unit, dither[i]));
}

/* The step of the kernels, a block at a time. */
static void step_plain(const struct update_span *x, const struct optim_step *k)
{
    for (int64_t b = 0; b < x->n; b += MOMENT_BLOCK) {
        const int n = x->n - b < MOMENT_BLOCK ? (int)(x->n - b) : MOMENT_BLOCK;
        const struct moments at[2] = {
            { (uint8_t *)x->m.data + b, x->m.scale + b / MOMENT_BLOCK },
            { (uint8_t *)x->v.data + b, x->v.scale + b / MOMENT_BLOCK }
        };
        uint32_t low[MOMENT_BLOCK], high[MOMENT_BLOCK];
        float m[MOMENT_BLOCK], v[MOMENT_BLOCK] = { 0 };

        for (int i = 0; i < n; i++) {
            const uint32_t word = word_of(x, k, b + i);

            low[i] = moment_dither(word);
            high[i] = moment_dither(word >> 16);
            m[i] = moment_signed(((uint8_t *)at[0].data)[i], bf16_to_f32(*at[0].scale));
            if (k->kind == ACCEL_LION)
                maths_lion(&x->p[b + i], &m[i], x->g[b + i], &k->lion);
            else {
                v[i] = moment_square(((uint8_t *)at[1].data)[i],
                                     bf16_to_f32(*at[1].scale));
                maths_adamw(&x->p[b + i], &m[i], &v[i], x->g[b + i], &k->adamw);
            }
            x->g[b + i] = 0;
        }
        narrow_plain(at[0].data, at[0].scale, m, false, low, n);
        if (k->kind != ACCEL_LION)
            narrow_plain(at[1].data, at[1].scale, v, true, high, n);
    }
}

static struct update_span range_of(struct arrays *a, int64_t n, int64_t first,
                                   bool lion)
{
    struct update_span x = { .p = a->p,
                             .m = { a->m, a->m_scale },
                             .g = a->g,
                             .n = n,
                             .name = 99,
                             .first = first };

    if (!lion)
        x.v = (struct moments){ a->v, a->v_scale };
    return x;
}

/* Sizes differ by a thousand within a block; a block of zeros is among them. */
static void fill(struct arrays *a, int step)
{
    for (int i = 0; i < MOST; i++) {
        const float size = i / MOMENT_BLOCK % 7 == 3 ? 0 : powf(10, (float)(i % 4) - 5);

        a->g[i] = size * sinf((float)(i * 7 + step * 13));
        if (step == 0)
            a->p[i] = cosf((float)i);
    }
}

static void test_kernels(const struct backend *be, accel_optimizer_kind_t kind)
{
    static const int64_t lengths[] = {
        1, 15, 16, 17, 64, 65, 200, 16384, 16385, 20000
    };
    static const int64_t firsts[] = { 0, 16, 48, ((int64_t)1 << 32) - 32 };
    const accel_optimizer_t o = optim_defaults((accel_optimizer_t){ .kind = kind });
    const struct optim_param own = { 1, 0.1f, false, -1 };
    int bad = 0;

    for (size_t l = 0; l < ACCEL_ARRAY_SIZE(lengths); l++)
        for (size_t f = 0; f < ACCEL_ARRAY_SIZE(firsts); f++) {
            const bool lion = kind == ACCEL_LION;
            struct update_span x = range_of(&mine, lengths[l], firsts[f], lion);
            struct update_span y = range_of(&theirs, lengths[l], firsts[f], lion);

            memset(&mine, 0, sizeof(mine));
            memset(&theirs, 0, sizeof(theirs));
            for (int t = 0; t < 3; t++) {
                struct optim_step k = optim_step_of(&o, &own, 1e-3f, t + 1, 0.5f);

                k.draws = 1234 + (uint64_t)t;
                fill(&mine, t);
                fill(&theirs, t);
                be->update(be, &x, 1, &k);
                step_plain(&y, &k);
            }
            bad += memcmp(&mine, &theirs, sizeof(mine)) != 0;
        }
    tap_ok(bad == 0, "%s, %d threads: ranges of any length have the bits of blocks",
           kind == ACCEL_LION ? "lion" : "adamw", be->threads);
}

/* Two parts of a parameter, cut between two blocks, are the whole. */
static void test_parts(const struct backend *be)
{
    const accel_optimizer_t o = optim_defaults((accel_optimizer_t){ 0 });
    const struct optim_param own = { 1, 0.1f, false, -1 };
    struct optim_step k = optim_step_of(&o, &own, 1e-3f, 1, 1.0f);
    struct update_span x = range_of(&mine, 1000, 0, false);
    struct update_span part[2] = { range_of(&theirs, 208, 0, false),
                                   range_of(&theirs, 792, 208, false) };

    memset(&mine, 0, sizeof(mine));
    memset(&theirs, 0, sizeof(theirs));
    fill(&mine, 0);
    fill(&theirs, 0);
    memset(mine.g + 1000, 0, sizeof(mine.g) - 4000);
    memset(theirs.g + 1000, 0, sizeof(theirs.g) - 4000);
    part[1].p += 208;
    part[1].g += 208;
    part[1].m = (struct moments){ theirs.m + 208, theirs.m_scale + 13 };
    part[1].v = (struct moments){ theirs.v + 208, theirs.v_scale + 13 };
    be->update(be, &x, 1, &k);
    be->update(be, part, 2, &k);
    tap_ok(memcmp(&mine, &theirs, sizeof(mine)) == 0, "two parts are the whole");
}

/* Whole arrays: what is widened narrows to the same codes. */
static void test_arrays(const struct backend *be)
{
    const struct moments to = { mine.m, mine.m_scale }, back = { mine.v, mine.v_scale };
    int bad = 0;

    for (int positive = 0; positive < 2; positive++)
        for (int64_t n = 1; n < MOST; n = n * 3 + 1) {
            const uint32_t half[MOMENT_BLOCK] = { [0 ... MOMENT_BLOCK - 1] =
                                                      moment_dither(MOMENT_HALF_WORD) };

            memset(&mine, 0, sizeof(mine));
            fill(&start, 1);
            for (int64_t i = 0; positive && i < n; i++)
                start.g[i] *= start.g[i];
            be->moments_narrow(be, to, start.g, positive, n);
            for (int64_t b = 0; b < n; b += MOMENT_BLOCK)
                narrow_plain(theirs.m + b, theirs.m_scale + b / MOMENT_BLOCK,
                             start.g + b, positive, half,
                             n - b < MOMENT_BLOCK ? (int)(n - b) : MOMENT_BLOCK);
            bad += memcmp(mine.m, theirs.m, (size_t)n) != 0 ||
                   memcmp(mine.m_scale, theirs.m_scale, 2 * moment_scales(n)) != 0;
            be->moments_widen(be, mine.p, to, positive, n);
            be->moments_narrow(be, back, mine.p, positive, n);
            be->moments_widen(be, mine.g, back, positive, n);
            for (int64_t i = 0; i < n; i++)
                bad += !(fabsf(mine.g[i] - mine.p[i]) <= 0.01f * fabsf(mine.p[i]));
        }
    tap_ok(bad == 0, "arrays narrow to the nearest, and widen again");
}

/* A number between two bfloat16 becomes the upper one as often as it is near it; what
 * they hold exactly stays, and so do infinity and NaN, whatever is drawn. */
static void test_masters(void)
{
    static const uint32_t kept[] = { 0x00000000, 0x80000000, 0x3f800000,
                                     0xc2f70000, 0x7f800000, 0xff800000 };
    static const uint32_t nans[] = { 0x7f800001, 0x7fffffff, 0xff80ffff };
    const uint32_t between = 0xbf804000; /* a quarter of the way */
    int up = 0, bad = 0;

    for (uint32_t w = 0; w < 65536; w++) {
        const uint16_t code = master_of(minifloat_float(between), w | 0xabcd0000u);

        up += code == 0xbf81;
        bad += code != 0xbf80 && code != 0xbf81;
    }
    tap_is_int(up, 16384, "a quarter of the draws round a quarter up");
    tap_is_int(bad, 0, "and all to a neighbour");
    bad = 0;
    for (uint32_t w = 0; w < 65536; w += 5) {
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(kept); i++)
            bad += master_of(minifloat_float(kept[i]), w) != kept[i] >> 16;
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(nans); i++) {
            const uint16_t code = master_of(minifloat_float(nans[i]), w);

            bad += (code & 0x7f80) != 0x7f80 || !(code & 0x7f);
        }
    }
    tap_is_int(bad, 0, "what needs no rounding has none");
}

int main(void)
{
    test_masters();
    test_codes();
    test_bounds();
    test_chance();
    test_scales();
    test_ends();
    for (int threads = 1; threads <= 3; threads += 2) {
        struct backend *be;

        if (backend_cpu_open(&be, threads, NULL))
            abort();
        test_kernels(be, ACCEL_ADAMW);
        test_kernels(be, ACCEL_LION);
        test_parts(be);
        test_arrays(be);
        backend_close(be);
    }
    return tap_done();
}
