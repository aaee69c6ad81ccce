/* SPDX-License-Identifier: Apache-2.0
 *
 * The factor of global norm clipping. In: the sum of squares of all gradients. Clipping
 * by value needs no factor: it is the kernel `clamp`.
 */
#include "optim/optim.h"

#include <math.h>

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
