/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of the parts of training. A new part is one file and one row here.
 */
#include "training/parts.h"

/* The lines of a checkpoint's text are in this order. Averages come before what refuses
 * them. */
static const struct training_part *const parts[] = {
    &local_sgd_part, &ema_part,       &compression_part, &moments_part,
    &masters_part,   &gradients_part, &loss_scale_part,  &fp8_part,
};

accel_status_t parts_begin(accel_t *run, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(parts) && st == ACCEL_OK; i++)
        if (parts[i]->begin)
            st = parts[i]->begin(run, err);
    return st;
}

void parts_put_optimizer(const struct accel_optim *o, const char *of, struct strbuf *b)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(parts); i++)
        if (parts[i]->put_optimizer)
            parts[i]->put_optimizer(o, of, b);
}

void parts_put_settings(const accel_t *run, struct strbuf *b)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(parts); i++)
        if (parts[i]->put_settings)
            parts[i]->put_settings(run, b);
}

void parts_put_progress(const accel_t *run, struct strbuf *b)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(parts); i++)
        if (parts[i]->put_progress)
            parts[i]->put_progress(run, b);
}

accel_status_t parts_find(const accel_t *run, const char *dir, const char *text,
                          accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(parts) && st == ACCEL_OK; i++)
        if (parts[i]->find)
            st = parts[i]->find(run, dir, text, err);
    return st;
}

void parts_take_progress(accel_t *run, const char *text)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(parts); i++)
        if (parts[i]->take_progress)
            parts[i]->take_progress(run, text);
}
