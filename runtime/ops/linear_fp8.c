/* SPDX-License-Identifier: Apache-2.0
 *
 * Narrowing of what a linear multiplies: a scale for each of input, weight and
 * gradient. In a step all micro-batches have the same scales, so a forward that runs
 * again in the backward gives the same bits, and finds the same largest magnitudes.
 */
#include "ops/linear_fp8.h"

#include "precision/fp8_blocks.h"

bool fp8_narrows(const struct graph *g, const accel_tensor_t *w,
                 enum fp8_product product)
{
    return w->fp8 && (g->training || w->fp8->recipe->evaluation) &&
           !w->fp8->recipe->wide[product];
}

/* Is the input kept for the backward in 8 bits? */
static bool fp8_keeps(const struct graph *g, const accel_tensor_t *w)
{
    return w->needs_grad && g->recording && fp8_narrows(g, w, FP8_WEIGHT_GRADIENT);
}

/* A matrix of the linear of weight w, as one of its products takes it. */
struct narrowing {
    const accel_tensor_t *w;
    enum fp8_tensor tensor;
    enum fp8_product product;
    int64_t rows, cols;
    /* the copy is [cols, narrow_ld(rows)] */
    bool turned;
    void *copy; /* NULL: none is made */
};

static struct narrowing narrowing_of(const struct backend *be, const accel_tensor_t *w,
                                     enum fp8_tensor t, enum fp8_product product,
                                     int64_t rows)
{
    const enum backend_fp8 has = be->fp8;
    const bool turns = has == BACKEND_FP8_TURNED ||
                       (has == BACKEND_FP8_WHOLE && rows % NARROW_MULTIPLE);

    return (struct narrowing){ .w = w,
                               .tensor = t,
                               .product = product,
                               .rows = rows,
                               .cols = w->dim[t == FP8_GRADIENT ? 0 : 1],
                               .turned = turns && fp8_sums_rows(t, product) };
}

/* Of the two copies that there may be of a matrix, the number of this one. The second
 * is for sums over rows, where these cannot take the first: turned, or in blocks that
 * are not square. */
static int place_of(const struct narrowing *m)
{
    const enum fp8_blocks blocks = m->w->fp8->recipe->blocks;
    const bool square = m->tensor == FP8_WEIGHT && blocks == FP8_BLOCKS_128;

    return m->turned || (blocks && !square && fp8_sums_rows(m->tensor, m->product));
}

/* Where the scales lie that are the copy's own, behind its numbers. */
static size_t own_place(const struct narrowing *m)
{
    const int64_t lines = m->turned ? narrow_ld(m->rows) : m->rows;

    return ((size_t)(lines * m->cols) + 63) / 64 * 64;
}

/* What belongs to a copy besides its numbers, with scales of blocks. */
static struct block_scales own_blocks(const struct narrowing *m)
{
    const enum fp8_blocks blocks = m->w->fp8->recipe->blocks;
    const struct block_shape shape = fp8_block_shape(blocks, m->tensor, m->product);

    return (struct block_scales){ .inverse =
                                      m->copy ? (char *)m->copy + own_place(m) : NULL,
                                  .e8m0 = blocks == FP8_BLOCKS_32,
                                  .height = shape.height,
                                  .width = shape.width,
                                  .cols = m->cols };
}

/* Bytes of a copy, with the scales that are its own. */
static int64_t copy_bytes(const struct narrowing *m)
{
    const struct fp8_recipe *r = m->w->fp8->recipe;
    struct block_scales s;

    if (!r->blocks)
        return (int64_t)own_place(m) + (r->current ? 64 : 0);
    s = own_blocks(m);
    return (int64_t)own_place(m) + (m->rows + s.height - 1) / s.height *
                                       blocks_across(&s) *
                                       (s.e8m0 ? 1 : (int64_t)sizeof(float));
}

/* Scale, inverse and largest magnitude of current scaling. */
static float *own_scale(const struct narrowing *m)
{
    return (float *)(void *)((char *)m->copy + own_place(m));
}

static struct factor copy_factor(const struct narrowing *m)
{
    const struct fp8_linear *l = m->w->fp8;
    struct factor f = { .data = m->copy,
                        .type = l->recipe->type[m->tensor],
                        .turned = m->turned };

    if (l->recipe->blocks)
        f.blocks = own_blocks(m);
    else
        f.inverse = l->recipe->current ? own_scale(m) + 1 : &l->live[m->tensor].inverse;
    return f;
}

/* Numbers that are narrowed. */
struct wide_matrix {
    const void *data;
    accel_dtype_t type;
    /* what makes them is not queued yet, and can narrow on the way (g->result) */
    bool waits;
};

/* In the kernel that makes the numbers, where that waits, else in one of its own. */
static void quantize_copy(struct graph *g, struct wide_matrix *src,
                          const struct narrow_copy *to)
{
    const struct backend *be = g->backend;

    if (src->waits)
        op_result_taken(g, to);
    else if (to->turned)
        be->quantize_turned(be, to->copy, to->turned, to->type, src->data, src->type,
                            to->rows, to->cols, to->scale, to->amax);
    else
        be->quantize(be, to->copy, to->type, src->data, src->type, to->rows * to->cols,
                     to->scale, to->amax);
    src->waits = false;
}

/* m: [2], by place_of. */
static struct narrow_copy whole_copy(const struct narrowing *m, const float *scale,
                                     float *amax)
{
    return (struct narrow_copy){ .type = m->w->fp8->recipe->type[m->tensor],
                                 .rows = m->rows,
                                 .cols = m->cols,
                                 .copy = m[0].copy,
                                 .turned = m[1].copy,
                                 .scale = scale,
                                 .amax = amax };
}

/* Scale and inverse from a largest magnitude, in the memory of the backend; a rehearsal
 * has none. */
static void make_scale(const struct backend *be, const struct fp8_recipe *r,
                       float *scale, accel_dtype_t to, const float *amax)
{
    if (!r->powers)
        be->scale_of(be, scale, to, amax);
    else if (!be->shapes_only)
        fp8_power_scale(scale, to, *amax);
}

/* Current scaling: reads the numbers twice, the first time while they are made where
 * they wait. Each copy has the scale behind it. */
static void quantize_by_itself(struct graph *g, const struct narrowing *m,
                               struct wide_matrix *src)
{
    const struct backend *be = g->backend;
    const struct fp8_recipe *r = m->w->fp8->recipe;
    float *own = own_scale(m[0].copy ? &m[0] : &m[1]);
    struct narrow_copy look = whole_copy(m, NULL, own + 2);
    const struct narrow_copy copies = whole_copy(m, own, NULL);

    look.copy = look.turned = NULL;
    be->zero(be, own + 2, sizeof(*own));
    quantize_copy(g, src, &look);
    make_scale(be, r, own, look.type, own + 2);
    if (m[0].copy && m[1].copy)
        make_scale(be, r, own_scale(&m[1]), look.type, own + 2);
    quantize_copy(g, src, &copies);
}

static void quantize_blocks(const struct backend *be, const struct narrowing *m,
                            const void *src, accel_dtype_t type)
{
    const struct block_scales s = own_blocks(m);

    if (m->copy)
        be->quantize_blocks(be, m->copy, m->w->fp8->recipe->type[m->tensor], src, type,
                            m->rows, &s);
}

/* Makes the copies of a matrix that there is room for. Without any, it is only looked
 * at. m: [2], by place_of. */
static void quantize(struct graph *g, const struct narrowing *m, struct wide_matrix src)
{
    const struct fp8_linear *l = m->w->fp8;
    struct fp8_live *live = &l->live[m->tensor];
    const bool copies = m[0].copy || m[1].copy;
    const struct narrow_copy delayed =
        whole_copy(m, &live->scale, g->training ? &live->amax : NULL);

    if (l->recipe->blocks)
        for (int i = 0; i < 2; i++)
            quantize_blocks(g->backend, &m[i], src.data, src.type);
    else if (l->recipe->current && copies)
        quantize_by_itself(g, m, &src);
    else if (!l->recipe->current && (copies || g->training))
        quantize_copy(g, &src, &delayed);
}

/* The copies of x are from here on those with w's scale. */
static void input_share(accel_tensor_t *x, const accel_tensor_t *w)
{
    const struct fp8_recipe *r = w->fp8->recipe;
    const accel_dtype_t type = r->type[FP8_INPUT];
    const float scale = r->current ? 0 : *fp8_scale(w->fp8, FP8_INPUT);

    if (x->narrow_type != type || x->narrow_scale != scale)
        x->narrow[0] = x->narrow[1] = NULL;
    x->narrow_type = type;
    x->narrow_scale = scale;
}

/* What another linear has made of x, or room for it. NULL: sticky error. */
static accel_tensor_t *input_copy(struct graph *g, accel_tensor_t *x,
                                  struct narrowing *m)
{
    const int place = place_of(m);
    const int64_t bytes = copy_bytes(m);
    accel_tensor_t *t = x->narrow[place];

    if (t && t->data)
        return t;
    t = graph_tensor(g, ACCEL_U8, 1, &bytes);
    if (!t)
        return NULL;
    m->copy = t->data;
    /* a buffer outlives the micro-batch, and with it what it would point to */
    x->narrow[place] = x->buffer ? NULL : t;
    return t;
}

void fp8_input(struct graph *g, accel_tensor_t *x, const accel_tensor_t *w,
               struct narrow_input *out)
{
    const int64_t rows = x->elems / w->dim[1];
    const bool now = fp8_narrows(g, w, FP8_FORWARD), keeps = fp8_keeps(g, w);
    struct narrowing m[] = { narrowing_of(g->backend, w, FP8_INPUT, FP8_FORWARD, rows),
                             narrowing_of(g->backend, w, FP8_INPUT, FP8_WEIGHT_GRADIENT,
                                          rows) };
    bool apart, waits;

    *out = (struct narrow_input){ NULL };
    waits = g->result.out == x && (now || keeps) && !w->fp8->recipe->blocks;
    if (!waits)
        graph_queue_waiting(g);
    if (!now && !keeps)
        return;
    input_share(x, w);
    apart = place_of(&m[1]);
    if (now)
        out->now = input_copy(g, x, &m[0]);
    if (keeps)
        out->kept = now && !apart ? out->now : input_copy(g, x, &m[apart]);
    if (!g->error.code)
        quantize(g, m,
                 (struct wide_matrix){
                     .data = x->data, .type = g->compute, .waits = waits });
}

struct factor fp8_taken(const struct graph *g, const accel_tensor_t *w,
                        const accel_tensor_t *x, enum fp8_product product, int64_t rows)
{
    struct narrowing m;

    if (x->dtype != ACCEL_U8)
        return (struct factor){ .data = x->data, .type = x->dtype };
    m = narrowing_of(g->backend, w, FP8_INPUT, product, rows);
    m.copy = x->data;
    return copy_factor(&m);
}

/* Room for a copy in scratch. */
static bool scratch_copy(struct graph *g, struct narrowing *m, struct factor *out)
{
    m->copy = graph_scratch(g, (size_t)copy_bytes(m));
    if (!m->copy)
        return false;
    *out = copy_factor(m);
    out->scratch = m->copy;
    return true;
}

/* A weight as its two products take it. */
static void weight_forms(const struct backend *be, const accel_tensor_t *w,
                         struct narrowing form[2])
{
    form[0] = narrowing_of(be, w, FP8_WEIGHT, FP8_FORWARD, w->dim[0]);
    form[1] = narrowing_of(be, w, FP8_WEIGHT, FP8_INPUT_GRADIENT, w->dim[0]);
}

int64_t fp8_weight_bytes(const struct backend *be, const accel_tensor_t *w, int place)
{
    struct narrowing form[2];
    int64_t bytes = 0;

    weight_forms(be, w, form);
    for (int i = 0; i < 2; i++)
        if (place_of(&form[i]) == place && !w->fp8->recipe->wide[form[i].product])
            bytes = copy_bytes(&form[i]);
    return bytes;
}

/* Makes the copies that are kept, unless they are those of the weights as they are. A
 * step has to note the largest magnitude: what an evaluation has made is not taken by
 * it. */
static void keep_weight(struct graph *g, const accel_tensor_t *w, const void *values)
{
    const uint64_t now = *g->residency.changed + 1;
    struct fp8_linear *l = w->fp8;
    struct narrowing form[2];

    if (l->kept_of == now)
        return;
    weight_forms(g->backend, w, form);
    for (int i = 0; i < 2; i++)
        form[i].copy = l->kept[i];
    quantize(g, form, (struct wide_matrix){ .data = values, .type = g->compute });
    l->kept_of = g->training || l->recipe->current ? now : 0;
}

bool fp8_weight(struct graph *g, const accel_tensor_t *w, enum fp8_product product,
                const void *values, struct factor *out)
{
    struct narrowing one = narrowing_of(g->backend, w, FP8_WEIGHT, product, w->dim[0]);
    struct narrowing m[] = { one, one };

    *out = (struct factor){ .data = values, .type = g->compute };
    /* the recipe has no wide products then: none asks for other values */
    if (w->coded) {
        out->type = w->fp8->recipe->type[FP8_WEIGHT];
        out->inverse = &w->fp8->inverse[FP8_WEIGHT];
        return true;
    }
    if (!fp8_narrows(g, w, product))
        return true;
    if (w->fp8->kept_bytes[place_of(&one)]) {
        out->turned = one.turned;
        /* a rehearsal has no memory for them yet */
        if (g->backend->shapes_only)
            return true;
        keep_weight(g, w, values);
        one.copy = w->fp8->kept[place_of(&one)];
        *out = copy_factor(&one);
        return true;
    }
    if (!scratch_copy(g, &m[place_of(&one)], out))
        return false;
    quantize(g, m, (struct wide_matrix){ .data = values, .type = g->compute });
    return true;
}

bool fp8_gradient(struct graph *g, const struct tape_entry *e, const void *values,
                  accel_dtype_t type, struct factor *for_input,
                  struct factor *for_weight)
{
    const accel_tensor_t *x = e->in[0], *w = e->in[1];
    const int64_t rows = e->out->elems / w->dim[0];
    const bool input = x->needs_grad && fp8_narrows(g, w, FP8_INPUT_GRADIENT);
    const bool weight = w->needs_grad && e->saved[0]->dtype == ACCEL_U8;
    struct narrowing m[] = {
        narrowing_of(g->backend, w, FP8_GRADIENT, FP8_INPUT_GRADIENT, rows),
        narrowing_of(g->backend, w, FP8_GRADIENT, FP8_WEIGHT_GRADIENT, rows)
    };
    bool apart;

    *for_input = *for_weight = (struct factor){ NULL };
    if (!input && !weight)
        return true;
    apart = place_of(&m[1]);
    if ((input || !apart) && !scratch_copy(g, &m[0], for_input))
        return false;
    if (weight && apart && !scratch_copy(g, &m[1], for_weight))
        return false;
    quantize(g, m, (struct wide_matrix){ .data = values, .type = type });
    /* one copy serves both; who frees it is for_input */
    if (weight && !apart) {
        *for_weight = *for_input;
        for_weight->scratch = NULL;
    }
    return true;
}

void factors_take(struct gemm *p, const struct factor *a, const struct factor *b)
{
    p->a = a->data;
    p->a_type = a->type;
    p->a_inverse = a->inverse;
    p->a_blocks = a->blocks;
    p->b = b->data;
    p->b_type = b->type;
    p->b_inverse = b->inverse;
    p->b_blocks = b->blocks;
}
