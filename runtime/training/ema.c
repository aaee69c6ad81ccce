/* SPDX-License-Identifier: Apache-2.0
 *
 * The moving average of each optimizer's weights (accel_ema). In: rules, and the steps
 * that were taken. Out: averages in the shards, which are swapped with the weights on
 * request. In a checkpoint the rules are among the settings, their progress is a line
 * of the text, and the averages themselves are tensors. The arithmetic is
 * optim/averages.c.
 */
#include <stdio.h>
#include <string.h>

#include "common/key_lines.h"
#include "common/sized.h"
#include "handle/run.h"
#include "training/ema.h"
#include "training/parts.h"
#include "training/local_sgd.h"

static accel_status_t average_refuse(accel_error_t *err, const char *cure,
                                     const char *call, const char *what)
{
    return accel_fail(err, A0986, cure, "%s: %s", call, what);
}

/* ---- before the run -------------------------------------------------------------- */

accel_status_t accel_ema(accel_t *run, accel_optim_t *optim, const accel_ema_t *rule,
                         accel_error_t *err)
{
    accel_status_t st;
    accel_ema_t own;
    struct ema ema;

    ACCEL_CHECK(st, run_given(run, "accel_ema", err));
    if (run->prepared)
        return average_refuse(err, "call it between accel_open and accel_prepare",
                              "accel_ema", "the run is prepared already");
    if (optim && optim->run != run)
        return average_refuse(err, "pass what accel_optim_add returned, or NULL",
                              "accel_ema", "the optimizer is not of this run");
    if (!rule)
        return average_refuse(err,
                              "pass a struct accel_ema_rule, zero for the defaults",
                              "accel_ema", "the rule is NULL");
    ACCEL_CHECK(st, sized_read(SIZED(accel_ema_t, after), &own, rule, err));
    ACCEL_CHECK(st, ema_begin(&ema, &own, err));
    *(optim ? &optim->ema : &run->averaging.ema) = ema;
    *(optim ? &optim->averaged : &run->averaging.averaged) = true;
    return ACCEL_OK;
}

/* The name of the average's array in checkpoints is taken. */
static accel_status_t check_names(const struct accel_optim *o, accel_error_t *err)
{
    for (int k = 0; o->own.update && k < o->own.states; k++)
        if (strcmp(o->own.state[k], "ema") == 0)
            return accel_fail(err, A0986, "give that state another name",
                              "optimizer '%s' has a state called ema, which is the "
                              "name of its moving average",
                              o->name);
    return ACCEL_OK;
}

static accel_status_t averaging_begin(accel_t *run, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < run->optims && st == ACCEL_OK; i++) {
        struct accel_optim *o = &run->optim[i];

        if (run->averaging.averaged && !o->averaged) {
            o->ema = run->averaging.ema;
            o->averaged = true;
        }
        if (o->averaged)
            st = check_names(o, err);
    }
    return st;
}

/* ---- in the run ------------------------------------------------------------------ */

void averaging_step(struct accel_optim *o)
{
    float keep, take;

    if (o->averaged && ema_step(&o->ema, &keep, &take))
        shard_average(o->run->shard, o->number, keep, take);
}

accel_status_t run_trains(accel_t *run, const char *call, accel_error_t *err)
{
    accel_status_t st = run_ready(run, call, err);

    if (st != ACCEL_OK || !run->averaging.swapped)
        return st;
    return average_refuse(err, "call accel_ema_swap(run, 0, &err) first", call,
                          "the averages are in the place of the weights");
}

/* Gradients would be of other weights than those they are applied to, and their memory
 * is used for the exchange. */
static accel_status_t check_swap(const accel_t *run, bool on, accel_error_t *err)
{
    const char *const call = "accel_ema_swap";
    int averaged = 0;

    if (run->averaging.swapped == on)
        return average_refuse(err, "call it with 1 and with 0 in turn", call,
                              on ? "the averages are in the place of the weights"
                                 : "the weights are in their place");
    if (run->loop.in_micro || run->loop.micro > 0)
        return average_refuse(err, "call it after accel_step", call,
                              "in the middle of a step");
    for (int i = 0; i < run->optims; i++) {
        const struct accel_optim *o = &run->optim[i];

        averaged += o->averaged;
        if (o->averaged && o->ema.averaged == 0)
            return accel_fail(err, A0986, "swap after the first averaged step",
                              "%s: optimizer '%s' has no average yet", call, o->name);
        if (o->averaged && shard_has_gradient(run->shard, i))
            return accel_fail(err, A0986, "step it or call accel_zero_grad first",
                              "%s: optimizer '%s' has gradients", call, o->name);
    }
    if (!averaged)
        return average_refuse(err, "call accel_ema before accel_prepare", call,
                              "the run keeps no average");
    return ACCEL_OK;
}

accel_status_t accel_ema_swap(accel_t *run, int on, accel_error_t *err)
{
    accel_status_t st;
    accel_error_t e = { 0 };

    ACCEL_CHECK(st, run_ready(run, "accel_ema_swap", err));
    ACCEL_CHECK(st, check_swap(run, on != 0, err));
    graph_reset(&run->graph);
    st = local_sgd_meet(run, true, &e);
    if (st != ACCEL_OK)
        return run_report(run, st, &e, err);
    for (int i = 0; i < run->optims; i++)
        if (run->optim[i].averaged)
            shard_swap_average(run->shard, i);
    run->averaging.swapped = on != 0;
    return ACCEL_OK;
}

/* ---- in the texts of checkpoints ------------------------------------------------- */

static void average_put_rule(const struct accel_optim *o, const char *of,
                             struct strbuf *b)
{
    const accel_ema_t *r = &o->ema.rule;

    if (o->averaged)
        strbuf_printf(b,
                      "ema%s=decay %.9g warmup %d gamma %.9g power %.9g every %lld "
                      "after %lld\n",
                      of, r->decay, (int)r->warmup, r->gamma, r->power,
                      (long long)r->every, (long long)r->after);
}

static void average_put_progress(const accel_t *run, struct strbuf *b)
{
    for (int i = 0; i < run->optims; i++) {
        const struct accel_optim *o = &run->optim[i];
        char buf[RUN_NAME + 1];
        const char *of = optim_suffix(o, buf, sizeof(buf));

        if (o->averaged)
            strbuf_printf(b, "ema_steps%s=%lld\nema_averaged%s=%lld\n", of,
                          (long long)o->ema.steps, of, (long long)o->ema.averaged);
    }
}

/* Both counters of the optimizer's average; false: the text has none. */
static bool average_counters(const struct accel_optim *o, const char *text,
                             struct ema *ema_out)
{
    char key[RUN_NAME + 16], buf[RUN_NAME + 1];
    const char *of = optim_suffix(o, buf, sizeof(buf));
    int64_t steps, averaged;

    snprintf(key, sizeof(key), "ema_steps%s", of);
    if (!key_line_i64(text, key, &steps))
        return false;
    snprintf(key, sizeof(key), "ema_averaged%s", of);
    if (!key_line_i64(text, key, &averaged))
        return false;
    ema_out->steps = steps;
    ema_out->averaged = averaged;
    return true;
}

static accel_status_t average_find(const accel_t *run, const char *dir,
                                   const char *text, accel_error_t *err)
{
    struct ema ignored;

    for (int i = 0; i < run->optims; i++) {
        const struct accel_optim *o = &run->optim[i];

        if (o->averaged && !average_counters(o, text, &ignored))
            return accel_fail_at(err, A0987, dir,
                                 "leave accel_ema out, or use another --out and "
                                 "accel_load_part",
                                 "the checkpoint has no moving average of the weights "
                                 "that optimizer '%s' trains",
                                 o->name);
    }
    return ACCEL_OK;
}

static void average_take_progress(accel_t *run, const char *text)
{
    for (int i = 0; i < run->optims; i++)
        if (run->optim[i].averaged)
            average_counters(&run->optim[i], text, &run->optim[i].ema);
}

const struct training_part ema_part = {
    .begin = averaging_begin,
    .put_optimizer = average_put_rule,
    .put_progress = average_put_progress,
    .find = average_find,
    .take_progress = average_take_progress,
};
