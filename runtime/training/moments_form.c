/* SPDX-License-Identifier: Apache-2.0
 *
 * The format that optimizers keep their state in: the program's choice, or that of the
 * job's user. In: settings and config. Out: settings, or why they are impossible. The
 * text of a checkpoint has a line for quantised moments and none for float32. A run can
 * resume from moments of any format.
 */
#include <stdio.h>
#include <string.h>

#include "common/key_lines.h"
#include "handle/run.h"
#include "training/moments_form.h"
#include "training/parts.h"

/* By value: the key and the program have the same forms. */
static const struct {
    const char *word;
    enum moments_choice choice;
} forms[] = { [ACCEL_MOMENTS_FLOAT32] = { "float32", MOMENTS_F32 },
              [ACCEL_MOMENTS_8BIT] = { "8bit", MOMENTS_8BIT },
              [ACCEL_MOMENTS_FP8] = { "fp8", MOMENTS_FP8 } };

/* "float32", "8bit" or "fp8"; static. */
static const char *moments_word(accel_moments_t form)
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

static accel_status_t moments_begin(accel_t *run, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < run->optims && st == ACCEL_OK; i++)
        if (config_is_given(&run->config, "moments"))
            st = take_key(run, &run->optim[i], err);
    return st;
}

/* ---- in the texts of checkpoints ------------------------------------------------- */

static void moments_put_rule(const struct accel_optim *o, const char *of,
                             struct strbuf *b)
{
    const accel_moments_t form = moments_form(o);

    if (form != ACCEL_MOMENTS_FLOAT32)
        strbuf_printf(b, "moments%s=%s\n", of, moments_word(form));
}

void moments_own(const accel_t *run, accel_moments_t forms_out[ACCEL_MAX_OPTIMS])
{
    memset(forms_out, 0, ACCEL_MAX_OPTIMS * sizeof(*forms_out));
    for (int i = 0; i < run->optims; i++)
        forms_out[i] = moments_form(&run->optim[i]);
}

/* A word that no save writes would have tensors read as what they are not. */
accel_status_t moments_find(const accel_t *run, const char *dir, const char *text,
                            accel_moments_t forms_out[ACCEL_MAX_OPTIMS],
                            accel_error_t *err)
{
    memset(forms_out, 0, ACCEL_MAX_OPTIMS * sizeof(*forms_out));
    for (int i = 0; i < run->optims; i++) {
        char key[RUN_NAME + 16], buf[RUN_NAME + 1], word[16];

        snprintf(key, sizeof(key), "moments%s",
                 optim_suffix(&run->optim[i], buf, sizeof(buf)));
        if (!key_line(text, key, word, sizeof(word)))
            continue;
        forms_out[i] = !strcmp(word, moments_word(ACCEL_MOMENTS_8BIT))
                           ? ACCEL_MOMENTS_8BIT
                           : ACCEL_MOMENTS_FP8;
        if (strcmp(word, moments_word(forms_out[i])) != 0)
            return accel_fail_at(err, A0999, dir, "use another checkpoint",
                                 "the form of its moments is not known: '%s'", word);
    }
    return ACCEL_OK;
}

void moments_warn(const accel_t *run, const accel_moments_t theirs[ACCEL_MAX_OPTIMS])
{
    static const char *const lost[] = {
        [ACCEL_MOMENTS_FLOAT32] = "what was rounded off stays lost",
        [ACCEL_MOMENTS_8BIT] = "they were rounded, by up to 3 % and small ones by more",
        [ACCEL_MOMENTS_FP8] =
            "they were rounded, exp_avg by up to 6 % and small ones by more"
    };

    for (int i = 0; i < run->optims && run->boot.rank == 0; i++) {
        const struct accel_optim *o = &run->optim[i];
        const accel_moments_t ours = moments_form(o);
        char buf[RUN_NAME + 1];

        if (ours != theirs[i])
            accel_logf(&run->log, ACCEL_LOG_WARN,
                       "resuming with moments%s = %s (the checkpoint had %s): %s",
                       optim_suffix(o, buf, sizeof(buf)), moments_word(ours),
                       moments_word(theirs[i]), lost[ours]);
    }
}

const struct training_part moments_part = {
    .begin = moments_begin,
    .put_optimizer = moments_put_rule,
};
