/* SPDX-License-Identifier: Apache-2.0
 *
 * Dynamic loss scaling, as torch.amp.GradScaler does it: the scale grows after a number
 * of steps without an overflow and shrinks with each overflow. Numbers only: who scales
 * the loss, divides the gradients and looks for overflows is the loop.
 */
#ifndef ACCEL_PRECISION_SCALER_H
#define ACCEL_PRECISION_SCALER_H

#include "common/common.h"

/* Characters of scaler_encode, with the NUL. */
#define SCALER_TEXT 64

struct scaler {
    accel_scaler_t rule;
    /* float32 as torch's; 1 where there is no scaling */
    float scale;
    /* steps without an overflow since the scale last changed */
    int64_t clean;
};

/* Fills in the defaults, and the scale to begin with. ACCEL_EINVAL naming what is out
 * of range. */
accel_status_t scaler_begin(struct scaler *out, const accel_scaler_t *rule,
                            accel_error_t *err);
/* At the end of a step, once: was any gradient not finite? */
void scaler_update(struct scaler *s, bool overflow);
/* No gradient is finite at any scale: it has fallen so far that dividing by it is not
 * exact any more. torch continues, and divides by 0 in the end. */
bool scaler_is_spent(const struct scaler *s);
/* Where it stands, for checkpoints, to the bit; and back. ACCEL_ECORRUPT, with the
 * place `where`: no such text. */
void scaler_encode(const struct scaler *s, char text_out[SCALER_TEXT]);
accel_status_t scaler_decode(struct scaler *s, const char *text, const char *where,
                             accel_error_t *err);

#endif
