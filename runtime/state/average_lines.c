/* SPDX-License-Identifier: Apache-2.0
 *
 * Averages of weights in the text of a checkpoint: their rules among the settings, and
 * where they stand. The averages themselves are tensors (shard_boxes).
 */
#include <stdio.h>
#include <stdlib.h>

#include "run/run.h"

void average_put_rule(const struct accel_optim *o, const char *of, struct strbuf *b)
{
    const accel_ema_t *r = &o->ema.rule;

    if (o->averaged)
        strbuf_printf(b,
                      "ema%s=decay %.9g warmup %d gamma %.9g power %.9g every %lld "
                      "after %lld\n",
                      of, r->decay, (int)r->warmup, r->gamma, r->power,
                      (long long)r->every, (long long)r->after);
}

void average_put_local(const accel_t *run, struct strbuf *b)
{
    if (run->averaging.local.every)
        strbuf_printf(b, "local_sgd=%lld\n", (long long)run->averaging.local.every);
}

void average_put_progress(const accel_t *run, struct strbuf *b)
{
    const struct local_sgd *l = &run->averaging.local;

    if (l->every)
        strbuf_printf(b, "local_sgd_since=%lld\n", (long long)l->since);
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
    if (!state_lookup_i64(text, key, &steps))
        return false;
    snprintf(key, sizeof(key), "ema_averaged%s", of);
    if (!state_lookup_i64(text, key, &averaged))
        return false;
    ema_out->steps = steps;
    ema_out->averaged = averaged;
    return true;
}

accel_status_t average_check(const struct accel_optim *o, const char *dir,
                             const char *text, accel_error_t *err)
{
    struct ema ignored;

    if (!o->averaged || average_counters(o, text, &ignored))
        return ACCEL_OK;
    return accel_fail_at(err, A0987, dir,
                         "leave accel_ema out, or use another --out and "
                         "accel_load_part",
                         "the checkpoint has no moving average of the weights that "
                         "optimizer '%s' trains",
                         o->name);
}

/* A checkpoint has the weights of all ranks together: none is apart. */
void average_take_progress(accel_t *run, const char *text)
{
    struct averaging *a = &run->averaging;

    a->weights_apart = a->state_apart = false;
    if (!state_lookup_i64(text, "local_sgd_since", &a->local.since))
        a->local.since = 0;
    for (int i = 0; i < run->optims; i++)
        if (run->optim[i].averaged)
            average_counters(&run->optim[i], text, &run->optim[i].ema);
}
