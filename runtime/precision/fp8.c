/* SPDX-License-Identifier: Apache-2.0
 *
 * The formulas of Transformer Engine's delayed scaling, in its order of roundings.
 */
#include "precision/fp8.h"

#include <string.h>

void fp8_begin(struct fp8_linear *l)
{
    const size_t floats = FP8_TENSORS * (size_t)(1 + l->recipe->history);

    memset(l->state, 0, floats * sizeof(*l->state));
    for (int t = 0; t < FP8_TENSORS; t++)
        *fp8_scale(l, (enum fp8_tensor)t) = l->inverse[t] = 1;
}

static float largest_of(const float *history, int64_t n)
{
    float most = 0;

    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, history[i]);
    return most;
}

/* A tensor that no forward has met keeps its history: it is no step of its own. */
static void tensor_update(struct fp8_linear *l, enum fp8_tensor t, bool due)
{
    const struct fp8_recipe *r = l->recipe;
    float *scale = fp8_scale(l, t), *history = fp8_history(l, t);
    const float last = history[0];

    if (last == 0)
        return;
    if (due)
        *scale = fp8_scale_for(r->most_recent ? last : largest_of(history, r->history),
                               r->type[t], r->margin, *scale);
    l->inverse[t] = 1 / *scale;
    memmove(history, history + 1, (size_t)(r->history - 1) * sizeof(*history));
    history[r->history - 1] = last;
    history[0] = 0;
}

void fp8_update(struct fp8_linear *l, bool due)
{
    for (int t = 0; t < FP8_TENSORS; t++)
        tensor_update(l, (enum fp8_tensor)t, due);
}

void fp8_show(const struct fp8_linear *l, struct fp8_live *out)
{
    for (int t = 0; t < FP8_TENSORS; t++)
        out[t] =
            (struct fp8_live){ *fp8_scale(l, (enum fp8_tensor)t), l->inverse[t], 0 };
}

/* The comparisons are written so that NaN does not pass. An infinite magnitude is one
 * that a step has seen. */
bool fp8_take(struct fp8_linear *l)
{
    for (int t = 0; t < FP8_TENSORS; t++) {
        const float *history = fp8_history(l, (enum fp8_tensor)t);
        const float scale = *fp8_scale(l, (enum fp8_tensor)t);

        if (!(scale > 0) || isinf(scale) || isinf(1 / scale))
            return false;
        for (int64_t i = 0; i < l->recipe->history; i++)
            if (!(history[i] >= 0))
                return false;
        l->inverse[t] = 1 / scale;
    }
    return true;
}
