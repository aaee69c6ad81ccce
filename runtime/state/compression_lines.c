/* SPDX-License-Identifier: Apache-2.0
 *
 * Compressed sums of gradients in the text of a checkpoint: the rule among the
 * settings, and how many sums there were. Factors and errors are tensors
 * (shard/powersgd_boxes.c).
 */
#include <stdio.h>
#include <string.h>

#include "run/run.h"

/* What decides the tensors that a checkpoint has. */
static void rule_text(const accel_powersgd_t *r, char *buf, size_t len)
{
    text_format(buf, len, "rank %d least %.9g feedback %d warm %d batched %d", r->rank,
                r->least, !r->no_feedback, !r->cold, r->batched != 0);
}

void compression_put_rule(const accel_t *run, struct strbuf *b)
{
    const accel_powersgd_t *r = &run->compression.rule;
    char text[128];

    if (!run->compression.on)
        return;
    rule_text(r, text, sizeof(text));
    strbuf_printf(b, "powersgd=%s\npowersgd_start=%lld\n", text, (long long)r->start);
}

void compression_put_progress(const accel_t *run, struct strbuf *b)
{
    for (int i = 0; i < run->optims && run->compression.on; i++) {
        char buf[RUN_NAME + 1];

        strbuf_printf(b, "powersgd_sums%s=%lld\n",
                      optim_suffix(&run->optim[i], buf, sizeof(buf)),
                      (long long)shard_sums(run->shard, i));
    }
}

accel_status_t compression_find(const accel_t *run, const char *dir, const char *text,
                                accel_error_t *err)
{
    char ours[128], theirs[128];

    if (!run->compression.on)
        return ACCEL_OK;
    rule_text(&run->compression.rule, ours, sizeof(ours));
    if (!state_lookup(text, "powersgd", theirs, sizeof(theirs)))
        snprintf(theirs, sizeof(theirs), "none");
    if (strcmp(ours, theirs) == 0)
        return ACCEL_OK;
    return accel_fail_at(err, A0991, dir,
                         "use the rule of the checkpoint, or another --out and "
                         "accel_load_part",
                         "the checkpoint's PowerSGD is %s, but the run's is %s", theirs,
                         ours);
}

void compression_take_progress(accel_t *run, const char *text)
{
    for (int i = 0; i < run->optims && run->compression.on; i++) {
        char key[RUN_NAME + 16], buf[RUN_NAME + 1];
        int64_t sums;

        snprintf(key, sizeof(key), "powersgd_sums%s",
                 optim_suffix(&run->optim[i], buf, sizeof(buf)));
        if (state_lookup_i64(text, key, &sums))
            shard_set_sums(run->shard, i, sums);
    }
}
