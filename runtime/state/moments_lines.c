/* SPDX-License-Identifier: Apache-2.0
 *
 * The form of the optimizers' state in the text of a checkpoint: narrow moments have a
 * line, float32 has none. A run takes up any form.
 */
#include <stdio.h>
#include <string.h>

#include "run/run.h"

void moments_put_rule(const struct accel_optim *o, const char *of, struct strbuf *b)
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
        if (!state_lookup(text, key, word, sizeof(word)))
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
