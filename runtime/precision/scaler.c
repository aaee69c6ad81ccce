/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule of torch's _amp_update_scale_: products in double, rounded to float32.
 */
#include "precision/scaler.h"

#include <math.h>
#include <stdlib.h>

/* From here on every finite float32 fits float16, so that what overflows still is not
 * finite by itself. */
#define SPENT 0x1p-112f
/* more iterations than any run has; a step later there is still a number */
#define CLEAN_MOST ((long long)1 << 60)

static accel_status_t scaler_refuse(accel_error_t *err, const char *what)
{
    return accel_fail(err, A0995,
                      "see struct accel_scaler_rule in accel_objects.h, or "
                      "accel.precision.loss_scale_*",
                      "%s", what);
}

/* The comparisons are written so that NaN does not pass. */
accel_status_t scaler_begin(struct scaler *out, const accel_scaler_t *rule,
                            accel_error_t *err)
{
    accel_scaler_t r = *rule;

    r.init_scale = r.init_scale == 0 ? 65536 : r.init_scale;
    r.growth_factor = r.growth_factor == 0 ? 2 : r.growth_factor;
    r.backoff_factor = r.backoff_factor == 0 ? 0.5 : r.backoff_factor;
    r.growth_interval = r.growth_interval == 0 ? 2000 : r.growth_interval;
    if (!(r.init_scale >= SPENT && r.init_scale <= 0x1p100))
        return scaler_refuse(err, "the first loss scale must be positive and at most "
                                  "2^100");
    if (!(r.growth_factor > 1) || isinf(r.growth_factor))
        return scaler_refuse(err, "the growth factor of the loss scale must be above 1 "
                                  "and finite");
    if (!(r.backoff_factor > 0 && r.backoff_factor < 1))
        return scaler_refuse(err, "the backoff factor of the loss scale must be "
                                  "between 0 and 1");
    if (r.growth_interval < 1)
        return scaler_refuse(err, "the loss scale must grow after 1 step or more");
    *out = (struct scaler){ .rule = r, .scale = (float)r.init_scale };
    return ACCEL_OK;
}

/* `>=`: the interval of a resumed run may be shorter than it was. */
void scaler_update(struct scaler *s, bool overflow)
{
    float grown;

    if (overflow) {
        s->scale = (float)((double)s->scale * s->rule.backoff_factor);
        s->clean = 0;
        return;
    }
    if (++s->clean < s->rule.growth_interval)
        return;
    grown = (float)((double)s->scale * s->rule.growth_factor);
    s->scale = isfinite(grown) ? grown : s->scale;
    s->clean = 0;
}

bool scaler_is_spent(const struct scaler *s)
{
    return s->scale < SPENT;
}

void scaler_encode(const struct scaler *s, char text_out[SCALER_TEXT])
{
    text_format(text_out, SCALER_TEXT, "%.9g %lld", (double)s->scale,
                (long long)s->clean);
}

accel_status_t scaler_decode(struct scaler *s, const char *text, const char *where,
                             accel_error_t *err)
{
    char *at = NULL, *end = NULL;
    /* written with nine digits, so rounding twice gives the same float32 */
    float scale = (float)text_number(text, &at);
    long long clean = *at == ' ' ? strtoll(at + 1, &end, 10) : -1;

    if (!(scale >= SPENT) || isinf(scale) || clean < 0 || clean > CLEAN_MOST ||
        end == at + 1 || *end)
        return accel_fail_at(
            err, A0996, where, "use another checkpoint, or begin a new run",
            "the loss scale of the checkpoint cannot be read: '%.60s'", text);
    s->scale = scale;
    s->clean = clean;
    return ACCEL_OK;
}
