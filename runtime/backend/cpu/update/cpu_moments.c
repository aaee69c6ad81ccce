/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer steps with 8-bit moments. A group of four blocks is widened, stepped
 * and narrowed while it is in the first cache, so memory sees each array once. In:
 * ranges of parameters. Out: the same bits for any number of threads, and for any
 * vectors.
 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/maths.h"
#include "numbers/moments.h"

#define BLOCKS 4                       /* of a group */
#define GROUP  (MOMENT_BLOCK * BLOCKS) /* elements */
#define LINE   64                      /* bytes of a cache line */
#define AHEAD  512                     /* elements that are fetched ahead */
#define TASK   (256 * GROUP)           /* elements per task of a thread */

/* Unrolls loops of a few vectors, which -O2 leaves as they are: a fifth of the time. */
#if defined(__GNUC__) && !defined(__clang__)
#define UNROLLED __attribute__((optimize("O3")))
#else
#define UNROLLED
#endif

/* ---- a group --------------------------------------------------------------------- */

/* Loops are over whole groups, and apart where they change between bytes and numbers of
 * 32 bits: compilers make full vectors of each. */

/* to[i] = the number of element i's block */
static inline __attribute__((always_inline)) void spread_blocks(
    float *restrict to, const float *restrict from)
{
    for (int b = 0; b < BLOCKS; b++) {
#pragma omp simd
        for (int i = 0; i < MOMENT_BLOCK; i++)
            to[b * MOMENT_BLOCK + i] = from[b];
    }
}

static inline __attribute__((always_inline)) void widen_group(
    float *restrict to, const uint8_t *restrict code, const uint16_t *restrict scale,
    bool positive)
{
    float unit[GROUP], one[BLOCKS];
    uint32_t wide[GROUP];

    for (int b = 0; b < BLOCKS; b++)
        one[b] = bf16_to_f32(scale[b]);
    spread_blocks(unit, one);
#pragma omp simd
    for (int i = 0; i < GROUP; i++)
        wide[i] = code[i];
    if (positive) {
#pragma omp simd
        for (int i = 0; i < GROUP; i++)
            to[i] = moment_square(wide[i], unit[i]);
    } else {
#pragma omp simd
        for (int i = 0; i < GROUP; i++)
            to[i] = moment_signed(wide[i], unit[i]);
    }
}

/* The scales for the numbers of a group, and their inverse. The bits of numbers without
 * their sign are in the order of their size, and a maximum depends on no order: halves,
 * quarters, then the last four of all blocks side by side. */
static inline __attribute__((always_inline)) void scale_group(uint16_t *restrict scale,
                                                              float *restrict per_unit,
                                                              const float *restrict x,
                                                              float top)
{
    uint32_t half[BLOCKS * 8], quarter[BLOCKS * 4], unit[BLOCKS];

    for (int b = 0; b < BLOCKS; b++) {
#pragma omp simd
        for (int i = 0; i < 8; i++)
            half[8 * b + i] =
                moment_max(minifloat_bits(x[16 * b + i]) & 0x7fffffffu,
                           minifloat_bits(x[16 * b + 8 + i]) & 0x7fffffffu);
    }
    for (int b = 0; b < BLOCKS; b++) {
#pragma omp simd
        for (int i = 0; i < 4; i++)
            quarter[4 * b + i] = moment_max(half[8 * b + i], half[8 * b + 4 + i]);
    }
#pragma omp simd
    for (int b = 0; b < BLOCKS; b++) {
        const uint32_t most =
            moment_max(moment_max(quarter[4 * b], quarter[4 * b + 1]),
                       moment_max(quarter[4 * b + 2], quarter[4 * b + 3]));

        unit[b] = moment_unit_bits(most, top);
        per_unit[b] = 1.0f / minifloat_float(unit[b]);
    }
    for (int b = 0; b < BLOCKS; b++)
        scale[b] = (uint16_t)(unit[b] >> 16);
}

/* The upper or lower half of the words is the dither. */
static inline __attribute__((always_inline)) void narrow_group(
    uint8_t *restrict code, uint16_t *restrict scale, const float *restrict x,
    bool positive, const uint32_t *restrict word)
{
    float per_unit[GROUP], one[BLOCKS];
    uint32_t wide[GROUP];

    scale_group(scale, one, x, positive ? MOMENT_SQUARE_TOP : MOMENT_SIGNED_TOP);
    spread_blocks(per_unit, one);
    if (positive) {
#pragma omp simd
        for (int i = 0; i < GROUP; i++)
            wide[i] = moment_of_square(x[i], per_unit[i], moment_dither(word[i] >> 16));
    } else {
#pragma omp simd
        for (int i = 0; i < GROUP; i++)
            wide[i] = moment_of_signed(x[i], per_unit[i], moment_dither(word[i]));
    }
#pragma omp simd
    for (int i = 0; i < GROUP; i++)
        code[i] = (uint8_t)wide[i];
}

/* The arrays of an update at a group. */
struct place {
    float *p, *g;
    uint8_t *m, *v;
    uint16_t *m_scale, *v_scale;
};

static inline __attribute__((always_inline)) void step_group(const struct place *at,
                                                             const struct optim_step *k,
                                                             bool lion,
                                                             const uint32_t *word)
{
    float *restrict p = at->p, *restrict g = at->g;
    float m[GROUP], v[GROUP];

    widen_group(m, at->m, at->m_scale, false);
    if (lion) {
        const struct lion_step step = k->lion;

#pragma omp simd
        for (int i = 0; i < GROUP; i++) {
            maths_lion(&p[i], &m[i], g[i], &step);
            g[i] = 0.0f;
        }
    } else {
        const struct adamw_step step = k->adamw;

        widen_group(v, at->v, at->v_scale, true);
#pragma omp simd
        for (int i = 0; i < GROUP; i++) {
            maths_adamw(&p[i], &m[i], &v[i], g[i], &step);
            g[i] = 0.0f;
        }
        narrow_group(at->v, at->v_scale, v, true, word);
    }
    narrow_group(at->m, at->m_scale, m, false, word);
}

/* The last n elements of a range: a group filled up with zeros, which change no
 * scale. */
static void step_rest(const struct place *at, const struct optim_step *k, bool lion,
                      const uint32_t *word, size_t n)
{
    const size_t scales = moment_scales((int64_t)n);
    float p[GROUP] = { 0 }, g[GROUP] = { 0 };
    uint8_t m[GROUP] = { 0 }, v[GROUP] = { 0 };
    uint16_t m_scale[BLOCKS] = { 0 }, v_scale[BLOCKS] = { 0 };

    memcpy(p, at->p, n * sizeof(*p));
    memcpy(g, at->g, n * sizeof(*g));
    memcpy(m, at->m, n);
    memcpy(m_scale, at->m_scale, scales * sizeof(*m_scale));
    if (!lion) {
        memcpy(v, at->v, n);
        memcpy(v_scale, at->v_scale, scales * sizeof(*v_scale));
    }
    step_group(&(struct place){ p, g, m, v, m_scale, v_scale }, k, lion, word);
    memcpy(at->p, p, n * sizeof(*p));
    memset(at->g, 0, n * sizeof(*g));
    memcpy(at->m, m, n);
    memcpy(at->m_scale, m_scale, scales * sizeof(*m_scale));
    if (!lion) {
        memcpy(at->v, v, n);
        memcpy(at->v_scale, v_scale, scales * sizeof(*v_scale));
    }
}

/* ---- ranges ---------------------------------------------------------------------- */

static inline __attribute__((always_inline)) struct place place_of(
    const struct update_span *x, int64_t i, bool lion)
{
    const int64_t block = i / MOMENT_BLOCK;

    return (struct place){ x->p + i,
                           x->g + i,
                           (uint8_t *)x->m.data + i,
                           lion ? NULL : (uint8_t *)x->v.data + i,
                           x->m.scale + block,
                           lion ? NULL : x->v.scale + block };
}

/* There are many arrays, and the processor's own prefetching ends at each page: this
 * saves a tenth of the time. Beyond the end of an array a prefetch does nothing. */
static inline __attribute__((always_inline)) void fetch_ahead(const struct place *at,
                                                              bool lion)
{
    for (int i = 0; i < GROUP; i += LINE / (int)sizeof(float)) {
        __builtin_prefetch(at->p + AHEAD + i, 1);
        __builtin_prefetch(at->g + AHEAD + i, 1);
    }
    __builtin_prefetch(at->m + AHEAD, 1);
    if (!lion)
        __builtin_prefetch(at->v + AHEAD, 1);
}

/* Elements [from, to) of the range. */
static inline __attribute__((always_inline)) void step_groups(
    const struct update_span *x, int64_t from, int64_t to, const struct optim_step *k,
    bool lion)
{
    const struct moment_key key = moment_key_of(k->draws, x->name);

    for (int64_t i = from; i < to; i += GROUP) {
        const struct place at = place_of(x, i, lion);
        const uint32_t low = (uint32_t)(x->first + i);
        const uint32_t high = (uint32_t)((x->first + i) >> 32);
        uint32_t word[GROUP];

        fetch_ahead(&at, lion);
#pragma omp simd
        for (int j = 0; j < GROUP; j++) {
            const uint32_t e = low + (uint32_t)j;

            word[j] = moment_word(key, e, high + (uint32_t)(e < low));
        }
        if (to - i >= GROUP)
            step_group(&at, k, lion, word);
        else
            step_rest(&at, k, lion, word, (size_t)(to - i));
    }
}

UNROLLED ACCEL_MULTIVERSION static void adamw_groups(const struct update_span *x,
                                                     int64_t from, int64_t to,
                                                     const struct optim_step *k)
{
    step_groups(x, from, to, k, false);
}

UNROLLED ACCEL_MULTIVERSION static void lion_groups(const struct update_span *x,
                                                    int64_t from, int64_t to,
                                                    const struct optim_step *k)
{
    step_groups(x, from, to, k, true);
}

void cpu_update_moments(const struct backend *be, const struct update_span *x,
                        const struct optim_step *k)
{
#pragma omp parallel for schedule(static) num_threads(be->threads) if (x->n > TASK)
    for (int64_t i = 0; i < x->n; i += TASK) {
        const int64_t to = x->n - i < TASK ? x->n : i + TASK;

        if (k->kind == ACCEL_LION)
            lion_groups(x, i, to, k);
        else
            adamw_groups(x, i, to, k);
    }
}

/* ---- whole arrays ---------------------------------------------------------------- */

/* Group by group; the last one may be short. */
void cpu_moments_widen(const struct backend *be, float *dst, struct moments src,
                       bool positive, int64_t n)
{
    const uint8_t *code = src.data;

#pragma omp parallel for schedule(static) num_threads(be->threads) if (n > TASK)
    for (int64_t i = 0; i < n; i += GROUP) {
        const int64_t length = n - i < GROUP ? n - i : GROUP;
        uint16_t scale[BLOCKS] = { 0 };
        uint8_t whole[GROUP] = { 0 };
        float x[GROUP];

        memcpy(whole, code + i, (size_t)length);
        memcpy(scale, src.scale + i / MOMENT_BLOCK,
               moment_scales(length) * sizeof(*scale));
        widen_group(x, whole, scale, positive);
        memcpy(dst + i, x, (size_t)length * sizeof(*x));
    }
}

void cpu_moments_narrow(const struct backend *be, struct moments dst, const float *src,
                        bool positive, int64_t n)
{
    uint8_t *code = dst.data;
    uint32_t nearest[GROUP];

    for (int i = 0; i < GROUP; i++)
        nearest[i] = MOMENT_HALF_WORD | MOMENT_HALF_WORD << 16;
#pragma omp parallel for schedule(static) num_threads(be->threads) if (n > TASK)
    for (int64_t i = 0; i < n; i += GROUP) {
        const int64_t length = n - i < GROUP ? n - i : GROUP;
        uint16_t scale[BLOCKS];
        float x[GROUP] = { 0 };
        uint8_t whole[GROUP];

        memcpy(x, src + i, (size_t)length * sizeof(*x));
        narrow_group(whole, scale, x, positive, nearest);
        memcpy(code + i, whole, (size_t)length);
        memcpy(dst.scale + i / MOMENT_BLOCK, scale,
               moment_scales(length) * sizeof(*scale));
    }
}
