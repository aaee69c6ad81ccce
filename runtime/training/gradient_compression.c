/* SPDX-License-Identifier: Apache-2.0
 *
 * Compressed gradient reduction (PowerSGD), when the program asks for it. In: a rule.
 * Out: the rule as the shards and the plan need it; in checkpoints the rule and the
 * number of reductions so far. The reduction itself is shard/compressed.c;
 * shard/powersgd_boxes.c puts its factors and errors into checkpoints.
 */
#include <stdio.h>
#include <string.h>

#include "common/key_lines.h"
#include "common/sized.h"
#include "handle/run.h"
#include "training/gradient_compression.h"
#include "training/parts.h"

static accel_status_t compression_refuse(accel_error_t *err, const char *cure,
                                         const char *what)
{
    return accel_fail(err, A0990, cure, "accel_powersgd: %s", what);
}

accel_status_t accel_powersgd(accel_t *run, const accel_powersgd_t *rule,
                              accel_error_t *err)
{
    accel_status_t st;
    enum sharding_strategy strategy;
    accel_powersgd_t own;

    ACCEL_CHECK(st, run_given(run, "accel_powersgd", err));
    if (run->prepared)
        return compression_refuse(err, "call it between accel_open and accel_prepare",
                                  "the run is prepared already");
    if (!rule)
        return compression_refuse(err,
                                  "pass a struct accel_powersgd, zero for the defaults",
                                  "the rule is NULL");
    ACCEL_CHECK(st, sized_read(SIZED(accel_powersgd_t, batched), &own, rule, err));
    ACCEL_CHECK(st, powersgd_check(&own, err));
    strategy = plan_strategy(&run->config);
    if (strategy != SHARD_NONE)
        return accel_fail(err, A0989,
                          "use distributed_type MULTI_GPU or MULTI_CPU, or "
                          "fsdp_sharding_strategy: NO_SHARD",
                          "accel_powersgd needs a whole copy on each rank, but the "
                          "config shards by %s",
                          config_strategy_name(strategy));
    if (precision_of(&run->config).narrow_copies)
        return compression_refuse(err, "leave accel.precision.reduce out, or PowerSGD",
                                  "its sums are float32, but accel.precision.reduce "
                                  "names another dtype");
    run->compression = (struct compression){ .on = true, .rule = powersgd_rule(&own) };
    return ACCEL_OK;
}

static accel_status_t compression_begin(accel_t *run, accel_error_t *err)
{
    if (run->compression.on && run->averaging.local.every > 0)
        return compression_refuse(err, "choose one of the two",
                                  "with accel_local_sgd no gradients are summed");
    return ACCEL_OK;
}

accel_status_t compression_plan(const accel_t *run, struct plan_input *in,
                                accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < run->optims && run->compression.on && st == ACCEL_OK; i++) {
        struct powersgd_sizes sizes = { 0 };

        st = shard_powersgd_sizes(&run->units, i, &run->compression.rule, &sizes, err);
        in->compressed.on = true;
        in->compressed.memory_elems += sizes.memory;
        in->compressed.state_elems += sizes.state;
        in->compressed.sent_elems += sizes.sent;
        if (sizes.sent > in->compressed.most_sent_elems)
            in->compressed.most_sent_elems = sizes.sent;
    }
    return st;
}

/* ---- in the texts of checkpoints ------------------------------------------------- */

/* What decides the tensors that a checkpoint has. */
static void rule_text(const accel_powersgd_t *r, char *buf, size_t len)
{
    text_format(buf, len, "rank %d least %.9g feedback %d warm %d batched %d", r->rank,
                r->least, !r->no_feedback, !r->cold, r->batched != 0);
}

static void compression_put_rule(const accel_t *run, struct strbuf *b)
{
    const accel_powersgd_t *r = &run->compression.rule;
    char text[128];

    if (!run->compression.on)
        return;
    rule_text(r, text, sizeof(text));
    strbuf_printf(b, "powersgd=%s\npowersgd_start=%lld\n", text, (long long)r->start);
}

static void compression_put_progress(const accel_t *run, struct strbuf *b)
{
    for (int i = 0; i < run->optims && run->compression.on; i++) {
        char buf[RUN_NAME + 1];

        strbuf_printf(b, "powersgd_sums%s=%lld\n",
                      optim_suffix(&run->optim[i], buf, sizeof(buf)),
                      (long long)shard_sums(run->shard, i));
    }
}

static accel_status_t compression_find(const accel_t *run, const char *dir,
                                       const char *text, accel_error_t *err)
{
    char ours[128], theirs[128];

    if (!run->compression.on)
        return ACCEL_OK;
    rule_text(&run->compression.rule, ours, sizeof(ours));
    if (!key_line(text, "powersgd", theirs, sizeof(theirs)))
        snprintf(theirs, sizeof(theirs), "none");
    if (strcmp(ours, theirs) == 0)
        return ACCEL_OK;
    return accel_fail_at(err, A0991, dir,
                         "use the rule of the checkpoint, or another --out and "
                         "accel_load_part",
                         "the checkpoint's PowerSGD is %s, but the run's is %s", theirs,
                         ours);
}

static void compression_take_progress(accel_t *run, const char *text)
{
    for (int i = 0; i < run->optims && run->compression.on; i++) {
        char key[RUN_NAME + 16], buf[RUN_NAME + 1];
        int64_t sums;

        snprintf(key, sizeof(key), "powersgd_sums%s",
                 optim_suffix(&run->optim[i], buf, sizeof(buf)));
        if (key_line_i64(text, key, &sums))
            shard_set_sums(run->shard, i, sums);
    }
}

const struct training_part compression_part = {
    .begin = compression_begin,
    .put_settings = compression_put_rule,
    .put_progress = compression_put_progress,
    .find = compression_find,
    .take_progress = compression_take_progress,
};
