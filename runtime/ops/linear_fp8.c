/* SPDX-License-Identifier: Apache-2.0
 *
 * Which copies of input, weight and gradient a linear multiplies, and who holds them.
 * In a step all micro-batches have the same scales, so a forward that runs again in the
 * backward gives the same bits. How numbers are narrowed: narrowing.h.
 */
#include "ops/linear_fp8.h"
#include "ops/narrowing.h"

bool fp8_narrows(const struct graph *g, const accel_tensor_t *w,
                 enum fp8_product product)
{
    return w->param->fp8 && (g->training || w->param->fp8->recipe->evaluation) &&
           !w->param->fp8->recipe->wide[product];
}

/* The copies of x are from here on those with w's scale. */
static void input_share(accel_tensor_t *x, const accel_tensor_t *w)
{
    const struct fp8_recipe *r = w->param->fp8->recipe;
    const accel_dtype_t type = r->type[FP8_INPUT];
    const float scale = r->current ? 0 : *fp8_scale(w->param->fp8, FP8_INPUT);

    if (x->narrowed.type != type || x->narrowed.scale != scale)
        x->narrowed.copy[0] = x->narrowed.copy[1] = NULL;
    x->narrowed.type = type;
    x->narrowed.scale = scale;
}

/* What another linear has made of x, or room for it. NULL: sticky error. */
static accel_tensor_t *input_copy(struct graph *g, accel_tensor_t *x,
                                  struct narrowing *m)
{
    const int place = narrowing_place(m);
    const int64_t bytes = narrowing_bytes(m);
    accel_tensor_t *t = x->narrowed.copy[place];

    if (t && t->data)
        return t;
    t = graph_tensor(g, ACCEL_U8, 1, &bytes);
    if (!t)
        return NULL;
    m->copy = t->data;
    /* a buffer outlives the micro-batch, and with it what it would point to */
    x->narrowed.copy[place] = x->buffer ? NULL : t;
    return t;
}

void fp8_input(struct graph *g, accel_tensor_t *x, const accel_tensor_t *w,
               struct narrow_input *out)
{
    const int64_t rows = x->elems / w->dim[1];
    const bool now = fp8_narrows(g, w, FP8_FORWARD);
    /* the input, in fp8, for the backward */
    const bool keeps =
        w->needs_grad && g->recording && fp8_narrows(g, w, FP8_WEIGHT_GRADIENT);
    struct narrowing m[] = { narrowing_of(g->backend, w, FP8_INPUT, FP8_FORWARD, rows),
                             narrowing_of(g->backend, w, FP8_INPUT, FP8_WEIGHT_GRADIENT,
                                          rows) };
    bool apart, waits;

    *out = (struct narrow_input){ NULL };
    waits = g->result.out == x && (now || keeps) && !w->param->fp8->recipe->blocks;
    if (!waits)
        graph_queue_waiting(g);
    if (!now && !keeps)
        return;
    input_share(x, w);
    apart = narrowing_place(&m[1]);
    if (now)
        out->now = input_copy(g, x, &m[0]);
    if (keeps)
        out->kept = now && !apart ? out->now : input_copy(g, x, &m[apart]);
    if (!g->error.code)
        narrowing_make(
            g, m,
            (struct wide_matrix){
                .data = x->data, .type = g->compute, .waits = waits, .input = x });
}

struct factor fp8_taken(const struct graph *g, const accel_tensor_t *w,
                        const accel_tensor_t *x, enum fp8_product product, int64_t rows)
{
    struct narrowing m;

    if (x->dtype != ACCEL_U8)
        return (struct factor){ .data = x->data, .type = x->dtype };
    m = narrowing_of(g->backend, w, FP8_INPUT, product, rows);
    m.copy = x->data;
    return narrowing_factor(&m);
}

/* Room for a copy in scratch. */
static bool scratch_copy(struct graph *g, struct narrowing *m, struct factor *out)
{
    m->copy = graph_scratch(g, (size_t)narrowing_bytes(m));
    if (!m->copy)
        return false;
    *out = narrowing_factor(m);
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
        if (narrowing_place(&form[i]) == place &&
            !w->param->fp8->recipe->wide[form[i].product])
            bytes = narrowing_bytes(&form[i]);
    return bytes;
}

/* Makes the copies that are kept, unless they are those of the weights as they are. A
 * step has to note the largest magnitude: what an evaluation has made is not taken by
 * it. */
static void keep_weight(struct graph *g, const accel_tensor_t *w, const void *values)
{
    const uint64_t now = *g->residency.changed + 1;
    struct fp8_linear *l = w->param->fp8;
    struct narrowing form[2];

    if (l->kept_of == now)
        return;
    weight_forms(g->backend, w, form);
    for (int i = 0; i < 2; i++)
        form[i].copy = l->kept[i];
    narrowing_make(g, form, (struct wide_matrix){ .data = values, .type = g->compute });
    l->kept_of = g->training || l->recipe->current ? now : 0;
}

/* Gathered codes, transposed where the backend wants them so. */
static bool coded_weight(struct graph *g, const accel_tensor_t *w,
                         struct narrowing *form, const void *values, struct factor *out)
{
    const struct backend *be = g->backend;

    out->type = w->param->fp8->recipe->type[FP8_WEIGHT];
    if (form->transposed) {
        if (!scratch_copy(g, form, out))
            return false;
        be->quantize_transposed(be, NULL, form->copy, out->type, values, out->type,
                                form->rows, form->cols, NULL, NULL);
    }
    out->inverse = w->param->coded_inverse;
    return true;
}

bool fp8_weight(struct graph *g, const accel_tensor_t *w, enum fp8_product product,
                const void *values, struct factor *out)
{
    struct narrowing one = narrowing_of(g->backend, w, FP8_WEIGHT, product, w->dim[0]);
    struct narrowing m[] = { one, one };

    *out = (struct factor){ .data = values, .type = g->compute };
    /* the recipe has no wide products then: none asks for other values */
    if (w->param->coded)
        return coded_weight(g, w, &one, values, out);
    if (!fp8_narrows(g, w, product))
        return true;
    if (w->param->fp8->kept_bytes[narrowing_place(&one)]) {
        out->transposed = one.transposed;
        /* a rehearsal has no memory for them yet */
        if (g->backend->shapes_only)
            return true;
        keep_weight(g, w, values);
        one.copy = w->param->fp8->kept[narrowing_place(&one)];
        *out = narrowing_factor(&one);
        return true;
    }
    if (!scratch_copy(g, &m[narrowing_place(&one)], out))
        return false;
    narrowing_make(g, m, (struct wide_matrix){ .data = values, .type = g->compute });
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
    apart = narrowing_place(&m[1]);
    if ((input || !apart) && !scratch_copy(g, &m[0], for_input))
        return false;
    if (weight && apart && !scratch_copy(g, &m[1], for_weight))
        return false;
    narrowing_make(g, m, (struct wide_matrix){ .data = values, .type = type });
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
