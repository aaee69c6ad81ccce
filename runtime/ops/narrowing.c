/* SPDX-License-Identifier: Apache-2.0
 *
 * How numbers become 8-bit copies with a recipe's scales (narrowing.h): with the scale
 * that the step began with, with one made of the numbers, or with those of blocks.
 */
#include "ops/narrowing.h"

#include "numbers/fp8_blocks.h"

struct narrowing narrowing_of(const struct backend *be, const accel_tensor_t *w,
                              enum fp8_tensor t, enum fp8_product product, int64_t rows)
{
    const enum backend_fp8 has = be->fp8;
    const bool turns = has == BACKEND_FP8_TURNED ||
                       (has == BACKEND_FP8_WHOLE && rows % NARROW_MULTIPLE);

    return (struct narrowing){ .w = w,
                               .tensor = t,
                               .product = product,
                               .rows = rows,
                               .cols = w->dim[t == FP8_GRADIENT ? 0 : 1],
                               .transposed = turns && fp8_sums_rows(t, product),
                               .has = has };
}

int narrowing_place(const struct narrowing *m)
{
    const enum fp8_blocks blocks = m->w->param->fp8->recipe->blocks;
    const bool square = m->tensor == FP8_WEIGHT && blocks == FP8_BLOCKS_128 &&
                        m->has != BACKEND_FP8_WHOLE;

    return m->transposed || (blocks && !square && fp8_sums_rows(m->tensor, m->product));
}

/* cuBLASLt on 9.0 takes 128 numbers of a line with a scale in multiples of 8 lines. */
static bool is_padded(const struct narrowing *m)
{
    const enum fp8_blocks blocks = m->w->param->fp8->recipe->blocks;

    return blocks && m->has == BACKEND_FP8_TURNED && !m->transposed &&
           m->tensor != FP8_WEIGHT;
}

/* Where the scales lie that are the copy's own, after its numbers. */
static size_t own_place(const struct narrowing *m)
{
    const int64_t lines = m->transposed  ? narrow_ld(m->rows)
                          : is_padded(m) ? block_lines(m->rows)
                                         : m->rows;

    return ((size_t)(lines * m->cols) + 63) / 64 * 64;
}

/* What cuBLASLt rounds the length of a line of scales up to. */
static int64_t library_line(int64_t scales)
{
    return (scales + 3) / 4 * 4;
}

/* Tiles of bytes, which 10.x has; returns the bytes. */
static int64_t place_tiles(const struct narrowing *m, struct block_scales *s)
{
    const int64_t k = s->down ? m->rows : m->cols;
    const int64_t lines = s->down ? m->cols : m->rows;

    s->tiles = (k + 4 * SCALE_TILE_K - 1) / (4 * SCALE_TILE_K);
    return (lines + SCALE_TILE_LINES - 1) / SCALE_TILE_LINES * s->tiles *
           SCALE_TILE_BYTES;
}

/* Where scales lie; returns the bytes that they take. cuBLASLt on 9.0 has those of
 * blocks of one line side by side over all lines, and those of square blocks along
 * k. */
static int64_t place_scales(const struct narrowing *m, struct block_scales *s)
{
    const int64_t down = (m->rows + s->height - 1) / s->height;
    const int64_t across = blocks_across(s);
    const int64_t each = s->e8m0 ? 1 : (int64_t)sizeof(float);
    const bool by_library = m->has == BACKEND_FP8_TURNED;
    const bool square = s->height == s->width;

    if (m->has == BACKEND_FP8_WHOLE)
        return place_tiles(m, s);
    s->row_step = by_library ? library_line(across) : across;
    s->col_step = 1;
    if (!by_library || m->transposed != square)
        return down * s->row_step * each;
    s->row_step = 1;
    s->col_step = s->padded ? block_lines(down) : library_line(down);
    return across * s->col_step * each;
}

/* What belongs to a copy besides its numbers, with scales of blocks; *bytes_out: what
 * the scales take. */
static struct block_scales own_blocks(const struct narrowing *m, int64_t *bytes_out)
{
    const enum fp8_blocks blocks = m->w->param->fp8->recipe->blocks;
    const struct block_shape shape = fp8_block_shape(blocks, m->tensor, m->product);
    struct block_scales s = { .inverse =
                                  m->copy ? (char *)m->copy + own_place(m) : NULL,
                              .e8m0 = blocks == FP8_BLOCKS_32,
                              .height = shape.height,
                              .width = shape.width,
                              .cols = m->cols,
                              .transposed = m->transposed,
                              .padded = is_padded(m),
                              .down = fp8_sums_rows(m->tensor, m->product) };

    *bytes_out = place_scales(m, &s);
    return s;
}

int64_t narrowing_bytes(const struct narrowing *m)
{
    const struct fp8_recipe *r = m->w->param->fp8->recipe;
    int64_t bytes = r->current ? 64 : 0;

    if (r->blocks)
        own_blocks(m, &bytes);
    return (int64_t)own_place(m) + bytes;
}

/* Scale, inverse and largest magnitude of current scaling. */
static float *own_scale(const struct narrowing *m)
{
    return (float *)(void *)((char *)m->copy + own_place(m));
}

struct factor narrowing_factor(const struct narrowing *m)
{
    const struct fp8_linear *l = m->w->param->fp8;
    struct factor f = { .data = m->copy,
                        .type = l->recipe->type[m->tensor],
                        .transposed = m->transposed };
    int64_t bytes;

    if (l->recipe->blocks)
        f.blocks = own_blocks(m, &bytes);
    else
        f.inverse = l->recipe->current ? own_scale(m) + 1 : &l->live[m->tensor].inverse;
    return f;
}

/* In the kernel that makes the numbers, where that waits, else in one of its own. */
static void quantize_copy(struct graph *g, struct wide_matrix *src,
                          const struct narrow_copy *to)
{
    const struct backend *be = g->backend;

    if (src->waits)
        op_result_taken(g, to);
    else if (to->transposed)
        be->quantize_transposed(be, to->copy, to->transposed, to->type, src->data,
                                src->type, to->rows, to->cols, to->scale, to->amax);
    else
        be->quantize(be, to->copy, to->type, src->data, src->type, to->rows * to->cols,
                     to->scale, to->amax);
    src->waits = false;
}

/* m: [2], by narrowing_place. */
static struct narrow_copy whole_copy(const struct narrowing *m, const float *scale,
                                     float *amax)
{
    return (struct narrow_copy){ .type = m->w->param->fp8->recipe->type[m->tensor],
                                 .rows = m->rows,
                                 .cols = m->cols,
                                 .copy = m[0].copy,
                                 .transposed = m[1].copy,
                                 .scale = scale,
                                 .amax = amax };
}

/* Current scaling: reads the numbers twice, the first time while they are made where
 * they wait. Each copy is followed by its scale. */
static void quantize_by_itself(struct graph *g, const struct narrowing *m,
                               struct wide_matrix *src)
{
    const struct backend *be = g->backend;
    const struct fp8_recipe *r = m->w->param->fp8->recipe;
    float *own = own_scale(m[0].copy ? &m[0] : &m[1]);
    struct narrow_copy look = whole_copy(m, NULL, own + 2);
    const struct narrow_copy copies = whole_copy(m, own, NULL);

    look.copy = look.transposed = NULL;
    be->zero(be, own + 2, sizeof(*own));
    quantize_copy(g, src, &look);
    be->scale_of(be, own, look.type, r->powers, own + 2);
    if (m[0].copy && m[1].copy)
        be->scale_of(be, own_scale(&m[1]), look.type, r->powers, own + 2);
    quantize_copy(g, src, &copies);
}

/* Linears that share the copies of an input note one magnitude. Where another has
 * noted this one, and both had seen the same before, its amax is that of this linear,
 * too: one number is read in place of the input. */
static bool noted_before(const struct graph *g, const struct fp8_linear *l,
                         const accel_tensor_t *x)
{
    const struct fp8_linear *by = x->narrowed.noted_by;
    const struct backend *be = g->backend;

    if (!by || by->seen != x->narrowed.noted || l->seen != x->narrowed.noted_before)
        return false;
    be->quantize(be, NULL, l->recipe->type[FP8_INPUT], &by->live[FP8_INPUT].amax,
                 ACCEL_F32, 1, NULL, &l->live[FP8_INPUT].amax);
    return true;
}

/* A rehearsal notes nothing. */
static void note_input(struct graph *g, struct fp8_linear *l, accel_tensor_t *x)
{
    if (g->backend->shapes_only)
        return;
    x->narrowed.noted_by = l;
    x->narrowed.noted_before = l->seen;
    x->narrowed.noted = l->seen = ++g->notes;
}

/* Delayed scaling: reads the numbers once. A forward that runs again has noted all
 * magnitudes the first time, unless that has narrowed nothing. */
static void quantize_delayed(struct graph *g, const struct narrowing *m,
                             struct wide_matrix *src)
{
    struct fp8_linear *l = m->w->param->fp8;
    struct fp8_live *live = &l->live[m->tensor];
    const bool again = g->recomputing && !l->recipe->wide[FP8_FORWARD];
    const bool copies = m[0].copy || m[1].copy, notes = g->training && !again;
    const struct narrow_copy to =
        whole_copy(m, &live->scale, notes ? &live->amax : NULL);

    if (!copies && !notes)
        return;
    if (!copies && src->input && noted_before(g, l, src->input)) {
        l->seen = src->input->narrowed.noted;
        return;
    }
    quantize_copy(g, src, &to);
    if (notes && src->input)
        note_input(g, l, src->input);
}

/* m: [2]. Both copies are made of one read. */
static void quantize_blocks(const struct backend *be, const struct narrowing *m,
                            const void *src, accel_dtype_t type)
{
    void *const dst[] = { m[0].copy, m[1].copy };
    int64_t bytes;
    const struct block_scales s[] = { own_blocks(&m[0], &bytes),
                                      own_blocks(&m[1], &bytes) };

    if (dst[0] || dst[1])
        be->quantize_blocks(be, dst, m->w->param->fp8->recipe->type[m->tensor], src,
                            type, m->rows, s);
}

void narrowing_make(struct graph *g, const struct narrowing *m, struct wide_matrix src)
{
    const struct fp8_recipe *r = m->w->param->fp8->recipe;

    if (r->blocks)
        quantize_blocks(g->backend, m, src.data, src.type);
    else if (!r->current)
        quantize_delayed(g, m, &src);
    else if (m[0].copy || m[1].copy)
        quantize_by_itself(g, m, &src);
}
