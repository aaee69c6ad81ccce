/* SPDX-License-Identifier: Apache-2.0
 *
 * Loss scaling of runs that compute in float16. In: the program's rule and the config's
 * keys; which optimizers have found gradients that are not finite. Out: the scale of
 * the next backward. One scale serves all optimizers and changes once, at the end of an
 * iteration, as that of torch's GradScaler does. The ranks agree on whether gradients
 * are finite along with the norms, so nothing here communicates. If a checkpoint has no
 * scale, the run starts with the initial one.
 */

#include "common/key_lines.h"
#include "common/sized.h"
#include "handle/run.h"
#include "training/loss_scale.h"
#include "training/parts.h"

accel_status_t accel_scaler(accel_t *run, const accel_scaler_t *rule,
                            accel_error_t *err)
{
    accel_status_t st;
    struct scaler scaler;
    accel_scaler_t own;

    ACCEL_CHECK(st, run_given(run, "accel_scaler", err));
    if (run->prepared || !rule)
        return accel_fail(
            err, A0995,
            rule ? "call it between accel_open and accel_prepare"
                 : "pass a struct accel_scaler_rule, zero for the defaults",
            "accel_scaler: the %s", rule ? "run is prepared already" : "rule is NULL");
    st = sized_read(SIZED(accel_scaler_t, disabled), &own, rule, err);
    ACCEL_TRY(st, scaler_begin(&scaler, &own, err));
    if (st == ACCEL_OK)
        run->scaling = (struct loss_scaling){ .asked = true, .rule = scaler.rule };
    return st;
}

double accel_loss_scale(const accel_t *run)
{
    return run && run->scaling.on ? (double)run->scaling.scaler.scale : 1;
}

/* The program's rule, with the config's values where it has some: they are what the
 * user of the job has set. Values of a DeepSpeed file do not count as given. */
static accel_scaler_t rule_of(const accel_t *run)
{
    const struct config *c = &run->config;
    const bool file = c->distributed_type == DIST_DEEPSPEED;
    accel_scaler_t r = run->scaling.rule;

    if (config_is_given(c, "loss_scale_init_scale") || file)
        r.init_scale = c->loss_scale_init;
    if (config_is_given(c, "loss_scale_growth_factor"))
        r.growth_factor = c->loss_scale_growth;
    if (config_is_given(c, "loss_scale_backoff_factor"))
        r.backoff_factor = c->loss_scale_backoff;
    if (config_is_given(c, "loss_scale_growth_interval") || file)
        r.growth_interval = c->loss_scale_interval;
    if (config_is_given(c, "loss_scale_enabled"))
        r.disabled = !c->loss_scale_enabled;
    return r;
}

/* A program with its own backward has to multiply its loss itself, which it promises
 * by asking for a scale. */
static accel_status_t loss_scale_begin(accel_t *run, accel_error_t *err)
{
    struct loss_scaling *l = &run->scaling;

    l->rule = rule_of(run);
    l->on = precision_of(&run->config).scaled && !l->rule.disabled &&
            (l->asked || run->own_units == 0);
    return l->on ? scaler_begin(&l->scaler, &l->rule, err) : ACCEL_OK;
}

void loss_scale_apply(accel_t *run)
{
    if (run->scaling.on)
        shard_loss_scale(run->shard, run->scaling.scaler.scale);
}

void loss_scale_found(accel_t *run, bool overflow)
{
    run->scaling.checked = true;
    run->scaling.overflow = run->scaling.overflow || overflow;
}

/* torch continues with ever smaller scales; what is said here is what it leaves to its
 * users to find out. */
static void warn_of_small_scale(accel_t *run)
{
    struct loss_scaling *l = &run->scaling;

    if (l->warned || l->scaler.scale >= 1)
        return;
    l->warned = true;
    if (run->boot.rank == 0)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "step %lld: the loss scale has fallen to %g: gradients overflow "
                   "float16 even unscaled; lower the learning rate, or use bf16",
                   (long long)run->progress.step + 1, (double)l->scaler.scale);
}

bool loss_scale_end_step(accel_t *run)
{
    struct loss_scaling *l = &run->scaling;

    if (!l->on || !l->checked)
        return true;
    scaler_update(&l->scaler, l->overflow);
    l->checked = l->overflow = false;
    warn_of_small_scale(run);
    loss_scale_apply(run);
    return !scaler_is_spent(&l->scaler);
}

/* ---- in the texts of checkpoints ------------------------------------------------- */

static void scaler_put_rule(const accel_t *run, struct strbuf *b)
{
    const accel_scaler_t *r = &run->scaling.scaler.rule;

    if (run->scaling.on)
        strbuf_printf(b, "loss_scaler=init %.9g growth %.9g backoff %.9g every %lld\n",
                      r->init_scale, r->growth_factor, r->backoff_factor,
                      (long long)r->growth_interval);
}

static void scaler_put_progress(const accel_t *run, struct strbuf *b)
{
    char text[SCALER_TEXT];

    if (!run->scaling.on)
        return;
    scaler_encode(&run->scaling.scaler, text);
    strbuf_printf(b, "loss_scale=%s\n", text);
}

static accel_status_t scaler_find(const accel_t *run, const char *dir, const char *text,
                                  accel_error_t *err)
{
    struct scaler s = run->scaling.scaler;
    char line[SCALER_TEXT];
    accel_status_t st = ACCEL_OK;

    if (run->scaling.on && key_line(text, "loss_scale", line, sizeof(line)))
        st = scaler_decode(&s, line, dir, err);
    return st;
}

static void scaler_take_progress(accel_t *run, const char *text)
{
    char line[SCALER_TEXT];

    if (run->scaling.on && key_line(text, "loss_scale", line, sizeof(line)))
        (void)scaler_decode(&run->scaling.scaler, line, "", NULL);
    loss_scale_apply(run);
}

const struct training_part loss_scale_part = {
    .begin = loss_scale_begin,
    .put_settings = scaler_put_rule,
    .put_progress = scaler_put_progress,
    .find = scaler_find,
    .take_progress = scaler_take_progress,
};
