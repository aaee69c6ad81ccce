/* SPDX-License-Identifier: Apache-2.0
 *
 * Moments in e4m3 and float16 with a power of two for each 32: how one number rounds by
 * chance, and the optimizers' steps against the same written out number by number, to
 * the bit: for every length, beginning and number of threads.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/maths.h"
#include "numbers/masters.h"
#include "optim/optim.h"
#include "shard/shard_impl.h"
#include "tests/tap.h"

enum { MOST = 9000, BLOCKS = (MOST + SCALED_BLOCK - 1) / SCALED_BLOCK };

/* The arrays of a range. */
struct arrays {
    float p[MOST], g[MOST];
    f8_t m[MOST];
    f16_t v[MOST];
    uint8_t m_scale[BLOCKS], v_scale[BLOCKS];
};

static struct arrays start, mine, theirs;

/* ---- one number ------------------------------------------------------------------ */

static void test_codes(void)
{
    int bad = 0;

    for (uint32_t c = 0; c < 256; c++) {
        const float x = e4m3_to_f32((f8_t)c);

        if (isnan(x))
            continue;
        bad += moment_e4m3_of(x, 0) != c || moment_e4m3_of(x, 0xfffff) != c;
    }
    tap_is_int(bad, 0, "what has a code has it with any draw");
    tap_ok(isnan(e4m3_to_f32((f8_t)moment_e4m3_of(INFINITY, 0))) &&
               isnan(e4m3_to_f32((f8_t)moment_e4m3_of(NAN, 0xfffff))),
           "what is not finite is no number");
}

/* The mean of many draws is the number itself, also between subnormal ones. */
static void test_chance(void)
{
    static const float x[] = { 300.7f, -3.3f, 0.0161f, 0.004f, -0.0003f };
    double worst = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(x); i++) {
        const struct moment_key key = moment_key_of(3, i);
        const int draws = 1 << 18;
        double sum = 0;

        for (int e = 0; e < draws; e++) {
            const uint32_t word = moment_word(key, (uint32_t)e, 0);

            sum +=
                (double)e4m3_to_f32((f8_t)moment_e4m3_of(x[i], (word & 0xffffu) << 4));
        }
        worst = fmax(worst, fabs(sum / draws / (double)x[i] - 1));
    }
    tap_ok(worst < 0.01, "the mean of 2^18 draws is within %.2g", worst);
}

/* ---- steps ----------------------------------------------------------------------- */

/* Sizes differ within a block by 2^30, so that squares reach below the codes. */
static float drawn(uint32_t *bits, int i)
{
    *bits = *bits * 1664525u + 1013904223u;
    return ldexpf((float)(int32_t)*bits * 0x1p-31f, -(i % 31));
}

static void fill(void)
{
    uint32_t bits = 5;

    memset(&start, 0, sizeof(start));
    for (int i = 0; i < MOST; i++) {
        start.p[i] = drawn(&bits, 0);
        start.g[i] = i % 97 ? drawn(&bits, i) : 0;
        start.m[i] = f32_to_e4m3(drawn(&bits, 0) * 448);
        start.v[i] = i % 5 ? f32_to_f16(fabsf(drawn(&bits, i)) * 65504) : 0;
    }
    for (int b = 0; b < BLOCKS; b++) {
        start.m_scale[b] = (uint8_t)(110 + b % 7);
        start.v_scale[b] = (uint8_t)(95 + b % 11);
    }
}

static uint32_t exponent_of(const float *x, int n, float top)
{
    uint32_t most = 0;

    for (int i = 0; i < n; i++)
        most = wire_magnitude(x[i]) > most ? wire_magnitude(x[i]) : most;
    return wire_exponent(most, top);
}

/* One block of `a`, from element `at` of the range on. */
static void step_block(struct arrays *a, int at, int n, const struct optim_step *k,
                       struct moment_key key, int64_t first)
{
    float m[SCALED_BLOCK], v[SCALED_BLOCK];
    uint8_t *scale = &a->m_scale[at / SCALED_BLOCK];
    uint8_t *v_scale = &a->v_scale[at / SCALED_BLOCK];

    for (int i = 0; i < n; i++) {
        float *p = &a->p[at + i];

        m[i] = e4m3_to_f32(a->m[at + i]) * wire_scale(*scale);
        v[i] = f16_to_f32(a->v[at + i]) * wire_scale(*v_scale);
        if (k->kind == ACCEL_ADAMW)
            maths_adamw(p, &m[i], &v[i], a->g[at + i], &k->adamw);
        else
            maths_lion(p, &m[i], a->g[at + i], &k->lion);
        a->g[at + i] = 0;
    }
    *scale = (uint8_t)exponent_of(m, n, WIRE_LARGEST_E4M3);
    if (k->kind == ACCEL_ADAMW)
        *v_scale = (uint8_t)exponent_of(v, n, WIRE_LARGEST_F16);
    for (int i = 0; i < n; i++) {
        const int64_t e = first + at + i;
        const uint32_t word = moment_word(key, (uint32_t)e, (uint32_t)(e >> 32));
        const uint16_t code = master_f16_of(v[i] * wire_inverse(*v_scale), word >> 16);

        a->m[at + i] =
            (f8_t)moment_e4m3_of(m[i] * wire_inverse(*scale), (word & 0xffffu) << 4);
        if (k->kind == ACCEL_ADAMW)
            a->v[at + i] = (uint16_t)(code == 0 && v[i] > 0 ? 1 : code);
    }
}

static struct update_span span_of(struct arrays *a, struct scaled_arrays *scaled, int n,
                                  bool lion, int64_t first)
{
    *scaled = (struct scaled_arrays){ .m = { a->m, a->m_scale, ACCEL_F8E4M3 } };
    if (!lion)
        scaled->v = (struct scaled){ a->v, a->v_scale, ACCEL_F16 };
    return (struct update_span){
        .p = a->p, .g = a->g, .scaled = scaled, .n = n, .name = 99, .first = first
    };
}

static void test_steps(accel_optimizer_kind_t kind, int threads)
{
    static const int lengths[] = { 1, 31, 32, 33, 4096, 4129, MOST };
    static const int64_t firsts[] = { 0, 64, (int64_t)1 << 33 };
    const accel_optimizer_t o = optim_defaults((accel_optimizer_t){ .kind = kind });
    const struct optim_param own = { 1, 0.1f, false, -1 };
    struct optim_step k = optim_step_of(&o, &own, 0.01f, 3, 0.5f);
    int bad = 0, lost = 0;
    accel_error_t err;
    struct backend *be;

    if (backend_cpu_open(&be, threads, &err))
        tap_skip_all("no memory");
    k.draws = 11;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(lengths); i++) {
        const int n = lengths[i];
        const int64_t first = firsts[i % ACCEL_ARRAY_SIZE(firsts)];
        struct scaled_arrays scaled;
        struct update_span x = span_of(&mine, &scaled, n, kind == ACCEL_LION, first);

        mine = theirs = start;
        be->update(be, &x, 1, &k);
        for (int at = 0; at < n; at += SCALED_BLOCK)
            step_block(&theirs, at, n - at < SCALED_BLOCK ? n - at : SCALED_BLOCK, &k,
                       moment_key_of(k.draws, x.name), first);
        bad += memcmp(&mine, &theirs, sizeof(mine)) != 0;
        for (int e = 0; e < n; e++)
            lost += kind == ACCEL_ADAMW && mine.v[e] == 0 && start.g[e] != 0;
    }
    tap_is_int(bad, 0, "steps of kind %d with %d threads", (int)kind, threads);
    tap_is_int(lost, 0, "no square becomes 0");
    backend_close(be);
}

/* To the nearest, too, a square above 0 keeps a code above 0; an average of gradients
 * may become 0. */
static void test_nearest(void)
{
    static const float from[] = { 1, 1e-20f, 0, 0.25f };
    uint16_t square[4];
    uint8_t code[4], scale;
    const struct state_array v = { .scaled = { square, &scale, ACCEL_F16 } };
    const struct state_array m = { .scaled = { code, &scale, ACCEL_F8E4M3 } };
    struct backend *cpu = NULL;
    float back[4];

    if (backend_cpu_open(&cpu, 1, NULL))
        return;
    shard_narrow_state(cpu, v, 0, from, true, 4);
    shard_widen_state(cpu, back, v, true, 0, 4);
    tap_ok(square[1] == 1 && square[2] == 0 && back[0] == 1 && back[3] == 0.25f,
           "squares to the nearest");
    shard_narrow_state(cpu, m, 0, from, false, 4);
    shard_widen_state(cpu, back, m, false, 0, 4);
    tap_ok(code[1] == 0 && code[2] == 0 && back[0] == 1 && back[3] == 0.25f,
           "and averages");
    backend_close(cpu);
}

int main(void)
{
    test_codes();
    test_nearest();
    test_chance();
    fill();
    for (int threads = 1; threads <= 3; threads += 2) {
        test_steps(ACCEL_ADAMW, threads);
        test_steps(ACCEL_LION, threads);
    }
    return tap_done();
}
