/* SPDX-License-Identifier: Apache-2.0
 *
 * The learning rate as a pure function of the step, so that a resumed run needs no
 * state; and the factor of global norm clipping.
 */
#include "optim/optim.h"

#include <math.h>

/* Steps out of range give the value at the nearer end; warm-up comes first even when it
 * is longer than the run. */
float optim_lr(float peak, int64_t warmup, int64_t steps, int64_t step)
{
    const double pi = 3.14159265358979323846;
    double lowest = peak * 0.1, progress;

    if (step < 1)
        step = 1;
    if (step <= warmup)
        return (float)(peak * ((double)step / (double)warmup));
    if (step >= steps)
        return (float)lowest;
    progress = (double)(step - warmup) / (double)(steps - warmup);
    return (float)(lowest + (peak - lowest) * 0.5 * (1.0 + cos(pi * progress)));
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
