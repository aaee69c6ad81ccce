/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizers' policy: defaults, limits, names of their state, constants of a step,
 * the factor of global norm clipping. In: options of the job, learning rate, number of
 * the step, the sum of squares of all gradients. Touches no array.
 */
#include "optim/optim.h"

#include <fnmatch.h>
#include <math.h>

/* Tables by kind: AdamW, SGD, Lion. SGD has no beta1; it uses momentum. */
accel_optimizer_t optim_defaults(accel_optimizer_t o)
{
    static const float lr[] = { 3e-4f, 1e-2f, 1e-4f }, beta2[] = { 0.95f, 0.0f, 0.99f };

    if (o.lr == 0)
        o.lr = lr[o.kind];
    if (o.kind != ACCEL_SGD && o.beta1 == 0)
        o.beta1 = 0.9f;
    if (o.beta2 == 0)
        o.beta2 = beta2[o.kind];
    if (o.kind == ACCEL_ADAMW && o.eps == 0)
        o.eps = 1e-8f;
    return o;
}

static accel_status_t bad(accel_error_t *err, const char *what)
{
    return accel_fail(err, A0902, "see struct accel_optimizer in accel.h", "%s", what);
}

/* False for NaN too. */
static bool part_of_one(float x)
{
    return x >= 0 && x < 1;
}

/* The comparisons are written so that NaN does not pass. */
accel_status_t optim_check(const accel_optimizer_t *o, accel_error_t *err)
{
    if ((int)o->kind < ACCEL_ADAMW || o->kind > ACCEL_LION)
        return bad(err, "the kind of optimizer must be ADAMW, SGD or LION");
    if (!(o->lr >= 0) || isinf(o->lr) || !(o->weight_decay >= 0) ||
        isinf(o->weight_decay))
        return bad(err, "lr and weight_decay must be finite and not negative");
    if (!part_of_one(o->beta1) || !part_of_one(o->beta2) || !part_of_one(o->momentum))
        return bad(err, "beta1, beta2 and momentum must be at least 0 and below 1");
    if (!(o->eps >= 0) || isinf(o->eps))
        return bad(err, "eps must be finite and not negative");
    if ((o->momentum > 0 || o->nesterov) && o->kind != ACCEL_SGD)
        return bad(err, "momentum and nesterov are for SGD (the others use beta1)");
    if (o->nesterov && !(o->momentum > 0))
        return bad(err, "nesterov needs a momentum");
    if ((int)o->moments < ACCEL_MOMENTS_FLOAT32 || o->moments > ACCEL_MOMENTS_FP8)
        return bad(err, "moments must be FLOAT32, 8BIT or FP8");
    if (o->moments != ACCEL_MOMENTS_FLOAT32 && o->kind == ACCEL_SGD)
        return bad(err, "8-bit moments are for ADAMW and LION");
    if (o->group_count < 0 || (o->group_count > 0 && !o->groups))
        return bad(err, "group_count must be the number of groups");
    for (int i = 0; i < o->group_count; i++) {
        const accel_group_t *g = &o->groups[i];

        if (!g->match || !*g->match)
            return bad(err, "every group needs a glob that matches names");
        if (!(g->lr_scale >= 0) || isinf(g->lr_scale) || isnan(g->weight_decay) ||
            isinf(g->weight_decay))
            return bad(err, "a group's lr_scale must be finite and not negative, its "
                            "weight_decay finite");
    }
    return ACCEL_OK;
}

/* Lion keeps the first of AdamW's two averages; SGD has state with momentum only. */
const char *const *optim_state_names(const accel_optimizer_t *o, int *count_out)
{
    static const char *const averages[] = { "exp_avg", "exp_avg_sq" };
    static const char *const momentum[] = { "momentum_buffer" };

    *count_out = o->kind == ACCEL_ADAMW ? 2 : o->kind == ACCEL_LION || o->momentum > 0;
    return o->kind == ACCEL_SGD ? momentum : averages;
}

bool optim_state_is_square(const accel_optimizer_t *o, int k)
{
    return o->kind == ACCEL_ADAMW && k == 1;
}

accel_dtype_t optim_scaled_type(const accel_optimizer_t *o, int k)
{
    return optim_state_is_square(o, k) ? ACCEL_F16 : ACCEL_F8E4M3;
}

const char *optim_name(const accel_optimizer_t *o)
{
    return o->kind == ACCEL_ADAMW  ? "adamw"
           : o->kind == ACCEL_LION ? "lion"
           : o->momentum > 0       ? "sgd-momentum"
                                   : "sgd";
}

/* A group's lr_scale of 0 and a negative weight_decay mean "as without the group". */
struct optim_param optim_param_of(const accel_optimizer_t *o, const char *name,
                                  int ndim)
{
    struct optim_param p = { .lr_scale = 1,
                             .weight_decay = ndim >= 2 ? o->weight_decay : 0,
                             .group = -1 };

    for (int i = 0; i < o->group_count; i++) {
        const accel_group_t *g = &o->groups[i];

        if (fnmatch(g->match, name, 0) != 0)
            continue;
        p.group = i;
        p.frozen = g->frozen != 0;
        if (g->lr_scale > 0)
            p.lr_scale = g->lr_scale;
        if (g->weight_decay >= 0)
            p.weight_decay = g->weight_decay;
        break;
    }
    return p;
}

/* What would be worked out for every element is worked out once here, in double: the
 * bias corrections, 1 - beta, and the decay of decoupled weight decay. */
struct optim_step optim_step_of(const accel_optimizer_t *o, const struct optim_param *p,
                                float lr, int64_t t, float grad_scale)
{
    double b1 = o->beta1, b2 = o->beta2, rate = (double)lr * p->lr_scale;
    float decay = (float)(1.0 - rate * p->weight_decay);
    struct optim_step k = { .kind = o->kind };

    if (o->kind == ACCEL_ADAMW)
        k.adamw = (struct adamw_step){
            .beta1 = o->beta1,
            .beta2 = o->beta2,
            .one_minus_beta1 = (float)(1.0 - b1),
            .one_minus_beta2 = (float)(1.0 - b2),
            .rate = (float)(rate / (1.0 - pow(b1, (double)t))),
            .root_scale = (float)(1.0 / sqrt(1.0 - pow(b2, (double)t))),
            .eps = o->eps,
            .decay = decay,
            .grad_scale = grad_scale,
        };
    else if (o->kind == ACCEL_SGD)
        /* The update is own * g + mixed * buffer; Nesterov adds the gradient once more.
         * SGD's decay is added to the gradient, as in torch. */
        k.sgd = (struct sgd_step){
            .lr = (float)rate,
            .momentum = o->momentum,
            .own = o->nesterov ? 1.0f : 0.0f,
            .mixed = o->nesterov ? o->momentum : 1.0f,
            .decay = p->weight_decay,
            .grad_scale = grad_scale,
        };
    else
        k.lion = (struct lion_step){
            .lr = (float)rate,
            .beta1 = o->beta1,
            .beta2 = o->beta2,
            .one_minus_beta1 = (float)(1.0 - b1),
            .one_minus_beta2 = (float)(1.0 - b2),
            .decay = decay,
            .grad_scale = grad_scale,
        };
    return k;
}

accel_status_t optim_clip(double sumsq, float clip, float *factor_out, double *norm_out,
                          accel_error_t *err)
{
    double norm;

    if (!isfinite(sumsq) || sumsq < 0)
        return accel_fail(err, A0617,
                          "lower the learning rate or lengthen the warm-up; the last "
                          "checkpoint was saved before this step",
                          "the gradient norm is not finite (sum of squares %g)", sumsq);
    norm = sqrt(sumsq);
    /* The 1e-6 is torch's: the clipped norm stays a hair below the limit. */
    *factor_out = clip > 0 && norm > clip ? (float)(clip / (norm + 1e-6)) : 1.0f;
    if (norm_out)
        *norm_out = norm;
    return ACCEL_OK;
}
