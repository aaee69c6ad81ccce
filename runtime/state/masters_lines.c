/* SPDX-License-Identifier: Apache-2.0
 *
 * The form of master weights in the text of a checkpoint: narrow ones have a line,
 * float32 has none. A run takes up any form.
 */
#include <string.h>

#include "run/run.h"

/* Bits that are stored alike, "bf16" and "none", differ in how a run goes on only. */
static const char *const words[] = { [MASTERS_F32] = "float32",
                                     [MASTERS_BF16] = "bf16",
                                     [MASTERS_NONE] = "none",
                                     [MASTERS_FP16] = "fp16" };

void masters_put(const accel_t *run, struct strbuf *b)
{
    if (run->config.masters != MASTERS_F32)
        strbuf_printf(b, "masters=%s\n", words[run->config.masters]);
}

/* A word that no save writes would have tensors read as what they are not. */
accel_status_t masters_find(const char *dir, const char *text, accel_dtype_t *type_out,
                            accel_error_t *err)
{
    char word[64];

    *type_out = ACCEL_F32;
    if (!state_lookup(text, "masters", word, sizeof(word)))
        return ACCEL_OK;
    for (size_t i = MASTERS_BF16; i < ACCEL_ARRAY_SIZE(words); i++)
        if (!strcmp(word, words[i])) {
            *type_out = i == MASTERS_FP16 ? ACCEL_F16 : ACCEL_BF16;
            return ACCEL_OK;
        }
    return accel_fail_at(err, A0999, dir, "use another checkpoint",
                         "the form of its masters is not known: '%s'", word);
}

void masters_warn(const accel_t *run, accel_dtype_t theirs, bool part)
{
    const accel_dtype_t ours = precision_of(&run->config).masters;

    if (ours == theirs || run->boot.rank != 0)
        return;
    accel_logf(&run->log, ACCEL_LOG_WARN,
               "%s with masters = %s (the checkpoint had %s): %s",
               part ? "weights are loaded" : "resuming", accel_dtype_name(ours),
               accel_dtype_name(theirs),
               ours == ACCEL_F32   ? "what was rounded off stays lost"
               : ours == ACCEL_F16 ? "weights were rounded to the nearest, by up to "
                                     "0.05 %, and far smaller ones than their "
                                     "neighbours by more"
                                   : "weights were rounded to the nearest, by up to "
                                     "0.4 %");
}
