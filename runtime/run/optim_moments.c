/* SPDX-License-Identifier: Apache-2.0
 *
 * In what form the optimizers keep their state: as the program says, or as the user of
 * the job does. In: settings and config. Out: settings, or why they cannot be.
 */
#include "run/run.h"

/* By value: the key and the program have the same forms. */
static const struct {
    const char *word;
    enum moments_choice choice;
} forms[] = { [ACCEL_MOMENTS_FLOAT32] = { "float32", MOMENTS_F32 },
              [ACCEL_MOMENTS_8BIT] = { "8bit", MOMENTS_8BIT },
              [ACCEL_MOMENTS_FP8] = { "fp8", MOMENTS_FP8 } };

const char *moments_word(accel_moments_t form)
{
    return forms[form].word;
}

enum moments_choice moments_choice_of(accel_moments_t form)
{
    return forms[form].choice;
}

accel_moments_t moments_form(const struct accel_optim *o)
{
    return o->own.update ? ACCEL_MOMENTS_FLOAT32 : o->settings.moments;
}

/* The user has asked for it by name, so an optimizer without such a form is a mistake,
 * not an exception. */
static accel_status_t refuse_optim(const struct accel_optim *o, accel_moments_t form,
                                   const char *why, accel_error_t *err)
{
    return accel_fail(err, A0902, "set accel.precision.moments: float32",
                      "accel.precision.moments is %s, but %s%s%s%s", moments_word(form),
                      o->name[0] ? "optimizer '" : "the optimizer", o->name,
                      o->name[0] ? "' " : " ", why);
}

/* The user's word for that of the program. */
static accel_status_t take_key(const accel_t *run, struct accel_optim *o,
                               accel_error_t *err)
{
    accel_moments_t form = ACCEL_MOMENTS_FLOAT32;

    while (forms[form].choice != run->config.moments)
        form++;
    if (form != ACCEL_MOMENTS_FLOAT32 && o->own.update)
        return refuse_optim(o, form, "is the program's, whose state is float32", err);
    if (form != ACCEL_MOMENTS_FLOAT32 && o->settings.kind == ACCEL_SGD)
        return refuse_optim(o, form, "is SGD, whose momentum is float32", err);
    o->settings.moments = form;
    return ACCEL_OK;
}

accel_status_t moments_begin(accel_t *run, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < run->optims && st == ACCEL_OK; i++)
        if (config_is_given(&run->config, "moments"))
            st = take_key(run, &run->optim[i], err);
    return st;
}
