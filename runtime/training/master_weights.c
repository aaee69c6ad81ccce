/* SPDX-License-Identifier: Apache-2.0
 *
 * The dtype of master weights and gradients that the config asks for. In: config,
 * optimizers, backend. Out: nothing, or why the run cannot keep them so. The text of a
 * checkpoint has a line for masters of a narrow dtype and none for float32. A run can
 * resume from masters of any dtype.
 */
#include <string.h>

#include "common/key_lines.h"
#include "handle/run.h"
#include "training/master_weights.h"
#include "training/parts.h"

static accel_status_t refuse_masters(accel_error_t *err, const char *cure,
                                     const char *why)
{
    return accel_fail(err, A0902, cure,
                      "accel.precision.masters needs float32 here: %s", why);
}

/* An average is float32 and changes places with the weights, so that neither may round
 * what the other holds; an own optimizer is shown its weights as float32. */
static accel_status_t masters_begin(accel_t *run, accel_error_t *err)
{
    if (run->config.masters == MASTERS_F32)
        return ACCEL_OK;
    for (int i = 0; i < run->optims; i++) {
        if (run->optim[i].averaged)
            return refuse_masters(
                err, "leave one of the two out",
                "moving averages (accel_ema) go with float32 weights");
        if (run->optim[i].own.update)
            return refuse_masters(err, "set accel.precision.masters: float32",
                                  "an optimizer of the program works on float32");
    }
    return ACCEL_OK;
}

static accel_status_t refuse_gradients(accel_error_t *err, const char *why)
{
    return accel_fail(err, A0902, "set accel.precision.gradients: float32",
                      "accel.precision.gradients needs float32 here: %s", why);
}

/* Whole copies are summed where they rest; offloaded ones come to the device as they
 * rest. An average changes places with the weights by way of the gradients' memory; an
 * own optimizer is shown float32. */
static accel_status_t gradients_begin(accel_t *run, accel_error_t *err)
{
    if (run->config.gradients == GRADIENTS_F32)
        return ACCEL_OK;
    if (run_offloads(run))
        return refuse_gradients(err, "shards are offloaded to host memory");
    if (run->boot.size > 1 && config_strategy(&run->config) == SHARD_NONE)
        return refuse_gradients(err, "each rank has whole copies");
    for (int i = 0; i < run->optims; i++) {
        if (run->optim[i].averaged)
            return refuse_gradients(err,
                                    "moving averages (accel_ema) use their memory");
        if (run->optim[i].own.update)
            return refuse_gradients(err,
                                    "an optimizer of the program works on float32");
    }
    return ACCEL_OK;
}

/* ---- in the texts of checkpoints ------------------------------------------------- */

/* Bits that are stored alike, "bf16" and "none", differ only in how a run continues. */
static const char *const words[] = { [MASTERS_F32] = "float32",
                                     [MASTERS_BF16] = "bf16",
                                     [MASTERS_NONE] = "none",
                                     [MASTERS_FP16] = "fp16" };

static void masters_put(const accel_t *run, struct strbuf *b)
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
    if (!key_line(text, "masters", word, sizeof(word)))
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

const struct training_part masters_part = {
    .begin = masters_begin,
    .put_settings = masters_put,
};

const struct training_part gradients_part = {
    .begin = gradients_begin,
};
