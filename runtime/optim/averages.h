/* SPDX-License-Identifier: Apache-2.0
 *
 * Averages of weights: the moving average over steps (EMA), and the average over ranks
 * every few steps (local SGD). Both say when and with which factors; the arrays are the
 * caller's (kernel `blend`, a reduction). Never communicates, never allocates.
 */
#ifndef ACCEL_OPTIM_AVERAGES_H
#define ACCEL_OPTIM_AVERAGES_H

#include "common/common.h"

/* Where an average stands; zeros and a rule are the start. Both counters belong into
 * checkpoints. */
struct ema {
    accel_ema_t rule;
    /* optimizer steps, and those that were averaged */
    int64_t steps, averaged;
};

/* Fills in the defaults. ACCEL_EINVAL naming what is out of range. */
accel_status_t ema_begin(struct ema *out, const accel_ema_t *rule, accel_error_t *err);
/* The decay of the average after n earlier ones. 0 for n = 0: the first average is the
 * weights themselves, as in torch's AveragedModel. */
double ema_decay(const accel_ema_t *rule, int64_t n);
/* After an optimizer step. True: average = keep average + take weights now. */
bool ema_step(struct ema *e, float *keep_out, float *take_out);

/* Local SGD (accelerate.local_sgd): no reduction of gradients; the weights become their
 * mean over the ranks every few steps. */
struct local_sgd {
    /* steps from one average to the next, at least 1 */
    int64_t every;
    /* steps since the last average; belongs into checkpoints */
    int64_t since;
};

/* After an optimizer step. True: average now. Without `every` never. */
bool local_sgd_step(struct local_sgd *l);

#endif
