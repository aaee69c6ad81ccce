/* SPDX-License-Identifier: Apache-2.0
 *
 * The constants of one AdamW step. In: options, learning rate, number of the step. Out:
 * what the kernel needs, computed in double and rounded once. Touches no array.
 */
#include "optim/optim.h"

#include <math.h>

accel_adamw_t optim_adamw_defaults(accel_adamw_t o)
{
    if (o.lr == 0)
        o.lr = 3e-4f;
    if (o.beta1 == 0)
        o.beta1 = 0.9f;
    if (o.beta2 == 0)
        o.beta2 = 0.95f;
    if (o.eps == 0)
        o.eps = 1e-8f;
    return o;
}

struct adamw_step adamw_step_of(const accel_adamw_t *options, float lr, int64_t t,
                                float grad_scale)
{
    accel_adamw_t o = optim_adamw_defaults(*options);
    double b1 = o.beta1, b2 = o.beta2;

    return (struct adamw_step){
        .beta1 = o.beta1,
        .beta2 = o.beta2,
        .one_minus_beta1 = (float)(1.0 - b1),
        .one_minus_beta2 = (float)(1.0 - b2),
        .rate = (float)(lr / (1.0 - pow(b1, (double)t))),
        .root_scale = (float)(1.0 / sqrt(1.0 - pow(b2, (double)t))),
        .eps = o.eps,
        .decay = (float)(1.0 - (double)lr * o.weight_decay),
        .grad_scale = grad_scale,
    };
}
