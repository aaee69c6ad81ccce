/* SPDX-License-Identifier: Apache-2.0
 *
 * Twins of what goes element by element: fill, casts, sums, activations, dropout,
 * optimizers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/maths.h"
#include "tests/unit/twin.h"

/* Nothing, one, around a pack and a block, primes, more than a grid has threads for. */
static const int64_t lengths[] = { 0, 1, 2, 7, 8, 9, 31, 1021, 4099, 70001 };

#define EACH_LENGTH(i) for (size_t i = 0; i < ACCEL_ARRAY_SIZE(lengths); i++)
#define EACH_TYPE(type)                                                                \
    for (accel_dtype_t type = ACCEL_F32; type <= ACCEL_BF16;                           \
         type = (accel_dtype_t)(type + 1))

static void fill(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->fill(be, a[0], c->type, c->n, c->by);
}

static void add(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->add(be, c->flag ? a[1] : a[0], a[1], a[2], c->type, c->n);
}

static void act(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->act(be, c->flag ? a[1] : a[0], a[1], c->type, c->n, (accel_activation_t)c->act,
            NULL);
}

static void act_grad(const struct backend *be, void *const *a,
                     const struct twin_call *c)
{
    be->act_grad(be, a[0], c->add, a[1], a[2], c->type, c->n,
                 (accel_activation_t)c->act);
}

static void gated(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->gated(be, a[0], a[1], a[2], c->type, c->n, (accel_activation_t)c->act, NULL);
}

static void gated_grad(const struct backend *be, void *const *a,
                       const struct twin_call *c)
{
    be->gated_grad(be, a[0], c->add, a[1], c->flag, a[2], a[3], a[4], c->type, c->n,
                   (accel_activation_t)c->act);
}

static void dropout(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->dropout(be, a[0], c->add, a[1], c->type, c->n, (const struct mask *)c->more);
}

static void multiply(const struct backend *be, void *const *a,
                     const struct twin_call *c)
{
    be->multiply(be, a[0], c->add, a[1], c->type, c->n, c->by);
}

static void cast(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->cast(be, a[0], c->type, c->add, a[1], c->other, c->n);
}

static void narrow(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->narrow(be, a[0], ACCEL_BF16, a[1], c->n);
    be->widen(be, (float *)a[2], a[0], ACCEL_BF16, c->n);
}

static void quantize(const struct backend *be, void *const *a,
                     const struct twin_call *c)
{
    const float *scale = a[2];

    be->quantize(be, a[0], c->other, a[1], c->type, c->n, scale, (float *)a[3]);
    be->quantize(be, NULL, c->other, a[1], c->type, c->n, scale, (float *)a[4]);
}

static void quantize_transposed(const struct backend *be, void *const *a,
                                const struct twin_call *c)
{
    be->quantize_transposed(be, c->flag ? a[0] : NULL, a[1], c->other, a[2], c->type,
                            c->dim[0], c->dim[1], a[3], c->add ? (float *)a[4] : NULL);
}

static void scale_of(const struct backend *be, void *const *a,
                     const struct twin_call *c)
{
    be->scale_of(be, a[0], c->other, c->flag, a[1]);
}

static void narrow_in_place(const struct backend *be, void *const *a,
                            const struct twin_call *c)
{
    be->narrow(be, a[0], ACCEL_BF16, a[0], c->n);
}

static void activations(struct twin *t, struct twin_call c, int64_t shift)
{
    for (c.act = ACCEL_ACT_NONE; c.act <= ACCEL_ACT_LOG; c.act++) {
        const char *type = accel_dtype_name(c.type);

        for (int k = 0; k < 2; k++)
            twin_values(t, c.type, c.n, shift, -9, 9);
        twin_run(t, act, &c, "act %d of %lld %s", c.act, (long long)c.n, type);
        for (int k = 0; k < 3; k++)
            twin_values(t, c.type, c.n, shift, -9, 9);
        twin_run(t, act_grad, &c, "act_grad %d of %lld %s, add %d", c.act,
                 (long long)c.n, type, c.add);
        for (int k = 0; k < 3; k++)
            twin_values(t, c.type, c.n, shift, -9, 9);
        twin_run(t, gated, &c, "gated %d of %lld %s", c.act, (long long)c.n, type);
        for (int k = 0; k < 5; k++)
            if (k == (c.act % 3 == 2 ? 0 : c.act % 3 == 1 ? 1 : 5))
                twin_none(t);
            else
                twin_values(t, c.type, c.n, shift, -9, 9);
        twin_run(t, gated_grad, &c, "gated_grad %d of %lld %s, add %d %d", c.act,
                 (long long)c.n, type, c.add, c.flag);
    }
}

static void dropouts(struct twin *t, struct twin_call c, int64_t shift)
{
    static const uint64_t first[] = { 0, 4, 1, 2, 3, 0x3fffffffdu };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(first); i++) {
        const struct mask mask = { 42, MATHS_MASK_STREAM + 3, first[i], 0x40000000u,
                                   4.0f / 3.0f };

        c.more = &mask;
        for (int k = 0; k < 2; k++)
            twin_values(t, c.type, c.n, shift, -1, 1);
        twin_run(t, dropout, &c, "dropout of %lld %s from %llu on, add %d",
                 (long long)c.n, accel_dtype_name(c.type), (unsigned long long)first[i],
                 c.add);
    }
}

static void multiplies(struct twin *t, struct twin_call c, int64_t shift)
{
    c.by = -0.7f;
    for (int k = 0; k < 2; k++)
        twin_values(t, c.type, c.n, shift, -1, 1);
    twin_run(t, multiply, &c, "multiply %lld %s, add %d", (long long)c.n,
             accel_dtype_name(c.type), c.add);
}

static void casts(struct twin *t, struct twin_call c, int64_t shift)
{
    for (int from = ACCEL_F32; from <= ACCEL_I64; from++) {
        const bool is_signed = from != ACCEL_U16 && from != ACCEL_U8;

        c.other = (accel_dtype_t)from;
        twin_values(t, c.type, c.n, shift, -200, 200);
        twin_values(t, c.other, c.n, shift, is_signed ? -250 : 0, 250);
        twin_run(t, cast, &c, "cast of %lld %s to %s, add %d", (long long)c.n,
                 accel_dtype_name(c.other), accel_dtype_name(c.type), c.add);
    }
}

static void narrows(struct twin *t, struct twin_call c, int64_t shift)
{
    twin_values(t, ACCEL_BF16, c.n, shift, 0, 1);
    twin_values(t, ACCEL_F32, c.n, shift, -1, 1);
    twin_values(t, ACCEL_F32, c.n, shift, 0, 1);
    twin_run(t, narrow, &c, "narrow and widen %lld", (long long)c.n);
    twin_values(t, ACCEL_F32, c.n, shift, -1, 1);
    if (c.n > 3) {
        ((float *)twin_host(t, 0))[1] = NAN;
        ((float *)twin_host(t, 0))[3] = -INFINITY;
    }
    twin_run(t, narrow_in_place, &c, "narrow %lld in place", (long long)c.n);
}

static void quantizes(struct twin *t, struct twin_call c, int64_t shift)
{
    for (int to = ACCEL_F8E4M3; to <= ACCEL_F8E5M2; to++) {
        c.other = (accel_dtype_t)to;
        twin_values(t, ACCEL_U8, c.n, shift, 0, 1);
        twin_values(t, c.type, c.n, shift, -900, 900);
        twin_values(t, ACCEL_F32, 1, 0, 0.1, 100);
        twin_values(t, ACCEL_F32, 1, 0, 0, 1);
        twin_values(t, ACCEL_F32, 1, 0, 1000, 1001);
        if (c.type == ACCEL_F32 && c.n > 3)
            ((float *)twin_host(t, 1))[3] = NAN;
        twin_run(t, quantize, &c, "quantize %lld %s to %s", (long long)c.n,
                 accel_dtype_name(c.type), accel_dtype_name(c.other));
        twin_values(t, ACCEL_F32, 2, 0, 0, 1);
        twin_values(t, ACCEL_F32, 1, 0, -0.1, 1);
        if (c.n % 2)
            ((float *)twin_host(t, 1))[0] = 0;
        c.flag = c.n % 3 == 0;
        twin_run(t, scale_of, &c, "scale for %s%s", accel_dtype_name(c.other),
                 c.flag ? ", a power of two" : "");
    }
}

/* Squares that are full, cut and smaller; transposed copies lie as a run's do. */
static void turns(struct twin *t)
{
    static const int64_t dims[][2] = { { 1, 1 },     { 16, 16 },  { 21, 48 },
                                       { 64, 64 },   { 65, 130 }, { 200, 17 },
                                       { 133, 136 }, { 3, 72 } };

    for (size_t i = 0; i < 6 * ACCEL_ARRAY_SIZE(dims); i++) {
        const int64_t rows = dims[i / 6][0], cols = dims[i / 6][1], shift = i % 5 == 4;
        struct twin_call c = { .type = i % 3 == 0   ? ACCEL_F32
                                       : i % 3 == 1 ? ACCEL_BF16
                                                    : ACCEL_F16,
                               .other = i % 2 ? ACCEL_F8E4M3 : ACCEL_F8E5M2,
                               .dim = { rows, cols },
                               .flag = i % 6 != 4,
                               .add = i % 6 != 5 };

        twin_values(t, ACCEL_U8, rows * cols, 0, 0, 1);
        twin_values(t, ACCEL_U8, cols * narrow_ld(rows), 0, 0, 1);
        twin_values(t, c.type, rows * cols, shift, -900, 900);
        twin_values(t, ACCEL_F32, 1, 0, 0.1, 100);
        twin_values(t, ACCEL_F32, 1, 0, 0, i % 4 ? 1 : 5000);
        if (c.type == ACCEL_F32 && cols > 100) {
            ((float *)twin_host(t, 2))[cols + 70] = NAN;
            ((float *)twin_host(t, 2))[2 * cols + 9] = i % 2 ? -2000 : -INFINITY;
        }
        twin_run(t, quantize_transposed, &c, "quantize and turn %lld x %lld %s to %s",
                 (long long)rows, (long long)cols, accel_dtype_name(c.type),
                 accel_dtype_name(c.other));
    }
}

/* a[1] in codes becomes a[0]. */
static void turn_codes(const struct backend *be, void *const *a,
                       const struct twin_call *c)
{
    be->quantize_transposed(be, NULL, a[0], c->other, a[1], c->other, c->dim[0],
                            c->dim[1], NULL, NULL);
}

static void transposed_codes(struct twin *t)
{
    static const int64_t dims[][2] = { { 16, 16 }, { 48, 80 }, { 65, 130 } };

    for (size_t i = 0; i < 2 * ACCEL_ARRAY_SIZE(dims); i++) {
        const int64_t rows = dims[i / 2][0], cols = dims[i / 2][1];
        const struct twin_call c = { .other = i % 2 ? ACCEL_F8E4M3 : ACCEL_F8E5M2,
                                     .dim = { rows, cols } };

        twin_values(t, ACCEL_U8, cols * narrow_ld(rows), 0, 0, 1);
        twin_values(t, ACCEL_U8, rows * cols, 0, 0, 256);
        twin_run(t, turn_codes, &c, "turn %lld x %lld codes of %s", (long long)rows,
                 (long long)cols, accel_dtype_name(c.other));
    }
}

/* Brings the scales of a CPU to where a device's library looks for them, each either in
 * one place or, in tiles, in all that its block takes. */
static void place_scales(void *dst, const struct block_scales *s, const float *inverse,
                         int64_t rows)
{
    const int64_t across = blocks_across(s), down = (rows + s->height - 1) / s->height;

    for (int64_t k = 0; !s->tiles && k < down * across; k++)
        ((float *)dst)[k / across * s->row_step + k % across * s->col_step] =
            inverse[k];
    for (int64_t at = 0; s->tiles && at < rows * s->cols; at++) {
        const int64_t r = at / s->cols, c = at % s->cols;
        const int64_t line = s->down ? c : r, k = s->down ? r : c;
        int exponent;

        frexpf(inverse[r / s->height * across + c / s->width], &exponent);
        ((uint8_t *)dst)[(line / 128 * s->tiles + k / 128) * 512 + line % 32 * 16 +
                         line % 128 / 32 * 4 + k % 128 / 32] =
            (uint8_t)(exponent + 126);
    }
}

/* What the CPU made, as a device has it: codes transposed or not, scales in its places.
 * */
static void place_copy(uint8_t *codes, void *scales, int64_t bytes,
                       const struct block_scales *s, const uint8_t *code,
                       float *inverse, int64_t rows)
{
    const int64_t blocks = (rows + s->height - 1) / s->height * blocks_across(s);
    const uint8_t *byte = (const uint8_t *)inverse;

    for (int64_t k = blocks - 1; s->e8m0 && k >= 0; k--)
        inverse[k] = ldexpf(1, byte[k] - 127);
    if (s->tiles)
        memset(scales, 0, (size_t)bytes);
    for (int64_t k = 0; s->padded && k < blocks_across(s) * s->col_step; k++)
        ((float *)scales)[k] = 1;
    place_scales(scales, s, inverse, rows);
    if (s->transposed)
        memset(codes, 0, (size_t)(s->cols * narrow_ld(rows)));
    if (s->padded)
        memset(codes, 0, (size_t)(s->cols * block_lines(rows)));
    for (int64_t k = 0; k < rows * s->cols; k++)
        codes[s->transposed ? k % s->cols * narrow_ld(rows) + k / s->cols : k] =
            code[k];
}

/* Two copies of a[4], or one where the other's codes are NULL: scales as a[1] and a[3],
 * codes as a[0] and a[2]. The CPU's lie in its own way, from where they are brought to
 * the device's. */
static void quantize_blocks(const struct backend *be, void *const *a,
                            const struct twin_call *c)
{
    const struct block_scales *s = (const struct block_scales *)c->more;
    const int64_t rows = c->dim[0], elems = rows * s->cols;
    struct block_scales own[2] = { s[0], s[1] };
    void *dst[2] = { a[0], a[2] };

    for (int i = 0; i < 2; i++) {
        own[i].inverse = a[2 * i + 1];
        if (!be->device && a[2 * i]) {
            own[i].inverse = malloc((size_t)elems * sizeof(float));
            dst[i] = malloc((size_t)elems);
        }
    }
    be->quantize_blocks(be, dst, c->other, a[4], c->type, rows, own);
    for (int i = 0; i < 2 && !be->device; i++) {
        if (!a[2 * i])
            continue;
        place_copy((uint8_t *)a[2 * i], a[2 * i + 1], c->dim[1 + i], &s[i],
                   (const uint8_t *)dst[i], (float *)own[i].inverse, rows);
        free(own[i].inverse);
        free(dst[i]);
    }
}

/* Room for a copy: of rows or transposed codes, and of scales in places of their own,
 * or in tiles. Returns the bytes of the scales. */
static int64_t block_room(struct twin *t, int64_t rows, struct block_scales *s)
{
    const int64_t lines = s->down ? s->cols : rows, k = s->down ? rows : s->cols;
    const bool by_column = s->width == 1 || s->padded;
    int64_t down, bytes;

    if (!s->height) {
        twin_none(t);
        twin_none(t);
        return 0;
    }
    down = (rows + s->height - 1) / s->height;
    s->tiles = s->tiles ? (k + 127) / 128 : 0;
    s->row_step = by_column ? 1 : blocks_across(s) + 3;
    s->col_step = s->padded ? block_lines(rows) : by_column ? down + 2 : 1;
    bytes = s->tiles    ? (lines + 127) / 128 * s->tiles * 512
            : by_column ? blocks_across(s) * s->col_step * 4
                        : down * s->row_step * 4;
    twin_values(t, ACCEL_U8,
                s->cols * (s->transposed ? narrow_ld(rows)
                           : s->padded   ? block_lines(rows)
                                         : rows),
                0, 0, 1);
    if (s->tiles)
        twin_values(t, ACCEL_U8, bytes, 0, 100, 250);
    else
        twin_values(t, ACCEL_F32, bytes / 4, 0, 0, 1);
    return bytes;
}

/* s: [2]; numbers are up to `largest`, some of them infinite or NaN. */
static void blocks_of_shapes(struct twin *t, struct twin_call c, struct block_scales *s,
                             int64_t cols, double largest, int64_t shift)
{
    const int64_t rows = c.dim[0];

    for (int i = 0; i < 2; i++)
        c.dim[1 + i] = block_room(t, rows, &s[i]);
    c.more = s;
    twin_values(t, c.type, rows * cols, shift, -largest, largest);
    if (c.type == ACCEL_F32 && cols > 200) {
        ((float *)twin_host(t, 4))[cols + 7] = NAN;
        ((float *)twin_host(t, 4))[3 * cols + 140] = -INFINITY;
    }
    twin_run(
        t, quantize_blocks, &c,
        "%lld x %lld %s from %lld on, up to %g, in blocks of %lld x %lld%s%s and %lld "
        "x %lld%s%s",
        (long long)rows, (long long)cols, accel_dtype_name(c.type), (long long)shift,
        largest, (long long)s[0].height, (long long)s[0].width,
        s[0].transposed ? ", transposed"
        : s[0].padded   ? ", padded"
                        : "",
        s[0].tiles ? ", tiles" : "", (long long)s[1].height, (long long)s[1].width,
        s[1].transposed ? ", transposed" : "", s[1].tiles ? ", tiles" : "");
}

/* Lines of 128 and 32 along either dimension, and squares for both; with a second copy
 * in two of three cases, which is transposed where the first is not. */
static void blocks(struct twin *t)
{
    static const int64_t dims[][2] = {
        { 16, 16 }, { 130, 300 }, { 256, 128 }, { 131, 261 }, { 1, 136 }
    };
    static const int shapes[][4] = {
        /* height, width, down, tiles */
        { 1, 128, 0, 0 },   { 128, 1, 1, 0 }, { 128, 128, 0, 0 },
        { 1, 128, 0, 1 },   { 128, 1, 1, 1 }, { 128, 128, 0, 1 },
        { 128, 128, 1, 1 }, { 1, 32, 0, 1 },  { 32, 1, 1, 1 },
    };

    /* the last ones of zeros alone */
    for (int i = 0; i < 99; i++) {
        const int64_t *dim = dims[i / 18 % 5];
        struct block_scales s[2] = { { .cols = dim[1] } };

        for (int k = i % 3 == 0; k < 2; k++) {
            const int *shape = shapes[(i + k * (i / 9 % 4 + 1)) % 9];

            s[k] = (struct block_scales){ .e8m0 = shape[0] == 32 || shape[1] == 32,
                                          .height = shape[0],
                                          .width = shape[1],
                                          .cols = dim[1],
                                          .transposed = (i / 9 + k) % 2,
                                          .down = shape[2],
                                          .tiles = shape[3] };
        }
        blocks_of_shapes(
            t,
            (struct twin_call){ .type = i % 4 == 0   ? ACCEL_F32
                                        : i % 4 == 1 ? ACCEL_F16
                                                     : ACCEL_BF16,
                                .other = i % 5 ? ACCEL_F8E4M3 : ACCEL_F8E5M2,
                                .dim = { dim[0] } },
            s, dim[1], i < 90 ? 900 : 0, i % 7 == 0);
    }
    for (int i = 0; i < 3; i++) {
        struct block_scales s[2] = {
            { .height = 1, .width = 128, .cols = dims[i][1], .padded = true },
            { .height = 128,
              .width = 1,
              .cols = dims[i][1],
              .transposed = true,
              .down = true }
        };

        blocks_of_shapes(t,
                         (struct twin_call){ .type = ACCEL_BF16,
                                             .other = ACCEL_F8E4M3,
                                             .dim = { dims[i][0] + i } },
                         s, dims[i][1], 900, 0);
    }
}

static void sums(struct twin *t, struct twin_call c, int64_t shift)
{
    twin_values(t, c.type, c.n, shift, 0, 1);
    twin_run(t, fill, &c, "fill of %lld %s", (long long)c.n, accel_dtype_name(c.type));
    for (int k = 0; k < 3; k++)
        twin_values(t, c.type, c.n, k == 1 ? 0 : shift, -1, 1);
    twin_run(t, add, &c, "add of %lld %s, in place %d", (long long)c.n,
             accel_dtype_name(c.type), c.flag);
}

void twin_elements(struct twin *t)
{
    turns(t);
    transposed_codes(t);
    blocks(t);
    EACH_LENGTH(i)
    EACH_TYPE(type)
    {
        struct twin_call c = {
            .type = type, .n = lengths[i], .add = i % 2, .flag = i % 3 == 0, .by = -1.7f
        };
        const int64_t shift = i % 4 == 3 ? 1 : 0;

        sums(t, c, shift);
        casts(t, c, shift);
        quantizes(t, c, shift);
        dropouts(t, c, shift);
        multiplies(t, c, shift);
        if (c.n < 5000)
            activations(t, c, shift);
        if (type == ACCEL_F32)
            narrows(t, c, shift);
    }
}
