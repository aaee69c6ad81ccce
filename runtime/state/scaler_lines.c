/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss scale in the text of a checkpoint: its rule among the settings, and where it
 * stands. A checkpoint of a run without one lets it begin anew.
 */
#include "run/run.h"

void scaler_put_rule(const accel_t *run, struct strbuf *b)
{
    const accel_scaler_t *r = &run->scaling.scaler.rule;

    if (run->scaling.on)
        strbuf_printf(b, "loss_scaler=init %.9g growth %.9g backoff %.9g every %lld\n",
                      r->init_scale, r->growth_factor, r->backoff_factor,
                      (long long)r->growth_interval);
}

void scaler_put_progress(const accel_t *run, struct strbuf *b)
{
    char text[SCALER_TEXT];

    if (!run->scaling.on)
        return;
    scaler_encode(&run->scaling.scaler, text);
    strbuf_printf(b, "loss_scale=%s\n", text);
}

accel_status_t scaler_find(const accel_t *run, const char *dir, const char *text,
                           accel_error_t *err)
{
    struct scaler s = run->scaling.scaler;
    char line[SCALER_TEXT];
    accel_status_t st = ACCEL_OK;

    if (run->scaling.on && state_lookup(text, "loss_scale", line, sizeof(line)))
        st = scaler_decode(&s, line, dir, err);
    return st;
}

void scaler_take_progress(accel_t *run, const char *text)
{
    char line[SCALER_TEXT];

    if (run->scaling.on && state_lookup(text, "loss_scale", line, sizeof(line)))
        (void)scaler_decode(&run->scaling.scaler, line, "", NULL);
    loss_scale_apply(run);
}
