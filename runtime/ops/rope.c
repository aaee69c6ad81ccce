/* SPDX-License-Identifier: Apache-2.0
 *
 * rope: rotary positions on pairs (i, i + D / 2), with two ways of
 * stretching the context, as in Hugging Face's config.json. Saves nothing: the backward
 * rotates the other way. x [B, T, heads D], D even.
 */
#include <math.h>

#include "ops/ops.h"

static const char op[] = "rope";

/* ACCEL_ROPE_LLAMA3. What counts is how often a wave fits into the original
 * context: long waves are stretched, short ones kept, and those in between get a blend
 * of both. */
static float llama3(const accel_rope_t *o, float frequency)
{
    float context = (float)o->original_context, smooth;
    /* wavelength in positions: 2 pi / frequency */
    float wave = (float)(2.0 * 3.14159265358979323846) / frequency;

    if (wave < context / o->high_freq_factor)
        return frequency;
    if (wave > context / o->low_freq_factor)
        return frequency / o->factor;
    /* 0 at the long end of the blend, 1 at the short one */
    smooth = (context / wave - o->low_freq_factor) /
             (o->high_freq_factor - o->low_freq_factor);
    return (1.0f - smooth) * frequency / o->factor + smooth * frequency;
}

/* Operations and roundings are in the order in which transformers does them: far
 * positions multiply every difference. */
void rope_frequencies(const accel_rope_t *o, int64_t head_width, float *frequency)
{
    double theta = o->theta != 0.0f ? (double)o->theta : 10000.0;

    for (int64_t i = 0; i < head_width / 2; i++) {
        /* frequency[i] = theta^(-2 i / D) */
        float power = (float)(2 * i) / (float)head_width;
        float f = 1.0f / (float)pow(theta, (double)power);

        if (o->kind == ACCEL_ROPE_LINEAR)
            f /= o->factor;
        else if (o->kind == ACCEL_ROPE_LLAMA3)
            f = llama3(o, f);
        frequency[i] = f;
    }
}

/* The call as the backend takes it. On the tape: ints: heads, first position, kind,
 * original context; reals: theta, factor, low, high. */
static void rope_describe(const accel_tensor_t *x, int64_t heads, int64_t first,
                          const accel_rope_t *o, struct rope *p)
{
    p->type = x->dtype;
    p->batch = x->dim[0];
    p->time = x->dim[1];
    p->heads = heads;
    p->head_width = x->dim[2] / heads;
    p->first = first;
    rope_frequencies(o, p->head_width, p->frequency);
}

/* A rotation's derivative is the rotation back, so the angles are all it needs. */
static bool rope_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *x = e->in[0], *dx;
    accel_rope_t o = { e->reals[0], (accel_rope_kind_t)e->ints[2],
                       e->reals[1], e->reals[2],
                       e->reals[3], (int)e->ints[3] };
    struct rope p;
    bool add;

    if (!x->needs_grad)
        return true;
    dx = grad_target(g, x, &add);
    if (!dx)
        return false;
    rope_describe(x, e->ints[0], e->ints[1], &o, &p);
    g->backend->rope(g->backend, dx->data, e->out->grad->data, &p, true, add);
    return true;
}

/* theta 0 means the default. NaN fails each comparison and is refused. */
static bool options_good(struct graph *g, const accel_rope_t *o)
{
    /* a plain rope has no factor */
    bool plain = o->kind == ACCEL_ROPE_PLAIN;
    bool good = plain || o->kind == ACCEL_ROPE_LINEAR || o->kind == ACCEL_ROPE_LLAMA3;

    good = good && o->theta >= 0.0f && isfinite(o->theta) &&
           (plain || (o->factor > 0.0f && isfinite(o->factor)));
    if (good && o->kind == ACCEL_ROPE_LLAMA3)
        good = o->original_context > 0 && o->low_freq_factor > 0.0f &&
               o->high_freq_factor > o->low_freq_factor &&
               isfinite(o->high_freq_factor);
    if (!good)
        graph_fail(g, A0605, op,
                   "use theta and factor above 0; for llama3 also 0 < low_freq_factor "
                   "< high_freq_factor and the original context",
                   "invalid rotation: kind %d, theta %g, factor %g, low_freq_factor "
                   "%g, high_freq_factor %g, original_context %d",
                   (int)o->kind, (double)o->theta, (double)o->factor,
                   (double)o->low_freq_factor, (double)o->high_freq_factor,
                   o->original_context);
    return good;
}

accel_tensor_t *accel_rope(accel_tensor_t *x, int heads, const accel_rope_t *o,
                           const accel_kv_t *cache)
{
    struct graph *g = op_graph(op, &x, 1);
    const accel_rope_t plain = { 0 };
    struct rope p;
    accel_tensor_t *y;
    char shape[96];

    /* no options: theta 10000, nothing stretched */
    o = o ? o : &plain;
    if (!g || !op_activation(g, op, x, "x") || !options_good(g, o))
        return NULL;
    /* ROPE_MAX_PAIRS: the frequencies travel with the call, as kernel arguments */
    if (x->ndim != 3 || heads < 1 || x->dim[2] % heads || x->dim[2] / heads % 2 ||
        x->dim[2] / heads / 2 > ROPE_MAX_PAIRS)
        return graph_fail(g, A0602, op,
                          "pass x as [B, T, heads D], with D even and at most 512",
                          "x %s does not fit %d heads",
                          tensor_shape_text(x, shape, sizeof(shape)), heads);
    y = graph_tensor(g, g->compute, 3, x->dim);
    if (!y)
        return NULL;
    /* with a cache, positions go on where it ends */
    rope_describe(x, heads, accel_kv_length(cache), o, &p);
    g->backend->rope(g->backend, y->data, x->data, &p, false, false);
    return op_record(
        g, &x, 1,
        &(struct tape_entry){ .op = op,
                              .backward = rope_backward,
                              .out = y,
                              .in = { x },
                              .ints = { heads, p.first, o->kind, o->original_context },
                              .reals = { o->theta, o->factor, o->low_freq_factor,
                                         o->high_freq_factor } });
}
