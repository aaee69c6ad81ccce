/* SPDX-License-Identifier: Apache-2.0
 *
 * Moving and local averages of weights: when, and with which factors.
 */
#include "optim/averages.h"

#include <math.h>

static accel_status_t ema_refuse(accel_error_t *err, const char *what)
{
    return accel_fail(err, A0984, "see struct accel_ema_rule in accel_objects.h", "%s",
                      what);
}

/* The comparisons are written so that NaN does not pass. */
accel_status_t ema_begin(struct ema *out, const accel_ema_t *rule, accel_error_t *err)
{
    accel_ema_t r = *rule;

    r.decay = r.decay == 0 ? 0.999 : r.decay;
    r.gamma = r.gamma == 0 ? 1 : r.gamma;
    r.power = r.power == 0 ? 2.0 / 3 : r.power;
    r.every = r.every == 0 ? 1 : r.every;
    if (!(r.decay > 0 && r.decay < 1))
        return ema_refuse(err, "the decay of an average must be above 0 and below 1");
    if (!(r.gamma > 0) || isinf(r.gamma) || !(r.power > 0) || isinf(r.power))
        return ema_refuse(err, "gamma and power of an average must be positive and "
                               "finite");
    if (r.every < 1 || r.after < 0)
        return ema_refuse(err, "the steps of an average must not be negative");
    if (r.warmup < ACCEL_EMA_FULL_AT_ONCE || r.warmup > ACCEL_EMA_BY_POWER)
        return ema_refuse(err, "the warm-up of an average is none of the three");
    *out = (struct ema){ .rule = r };
    return ACCEL_OK;
}

double ema_decay(const accel_ema_t *r, int64_t n)
{
    double grown = r->decay;

    if (n <= 0)
        return 0;
    if (r->warmup == ACCEL_EMA_BY_COUNT)
        grown = (1 + (double)n) / (10 + (double)n);
    else if (r->warmup == ACCEL_EMA_BY_POWER)
        grown = 1 - pow(1 + (double)n / r->gamma, -r->power);
    return fmin(grown, r->decay);
}

/* 1 - decay is taken before rounding: of 0.9999 a float keeps three digits less. */
bool ema_step(struct ema *e, float *keep_out, float *take_out)
{
    const double decay = ema_decay(&e->rule, e->averaged);

    e->steps++;
    if (e->steps <= e->rule.after || (e->steps - e->rule.after) % e->rule.every != 0)
        return false;
    e->averaged++;
    *keep_out = (float)decay;
    *take_out = (float)(1 - decay);
    return true;
}

bool local_sgd_step(struct local_sgd *l)
{
    l->since++;
    if (l->every < 1 || l->since < l->every)
        return false;
    l->since = 0;
    return true;
}
