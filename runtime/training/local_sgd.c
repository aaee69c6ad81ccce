/* SPDX-License-Identifier: Apache-2.0
 *
 * Local SGD: each rank steps with its own gradients. The weights are averaged over the
 * ranks every few steps, at the end, and before anything shows or saves them. In: steps
 * that were taken. Out: the same weights on all ranks. The arithmetic is
 * optim/averages.c.
 */
#include <math.h>

#include "training/local_sgd.h"
#include "training/parts.h"
#include "common/key_lines.h"
#include "handle/run.h"

accel_status_t accel_local_sgd(accel_t *run, int64_t every, accel_error_t *err)
{
    accel_status_t st;
    enum sharding_strategy strategy;

    ACCEL_CHECK(st, run_given(run, "accel_local_sgd", err));
    if (run->prepared)
        return accel_fail(err, A0986, "call it between accel_open and accel_prepare",
                          "accel_local_sgd: the run is prepared already");
    if (every < 1)
        return accel_fail(err, A0984, "pass a number such as 8",
                          "accel_local_sgd: %lld is no number of steps",
                          (long long)every);
    strategy = plan_strategy(&run->config);
    if (strategy != SHARD_NONE)
        return accel_fail(err, A0988,
                          "use distributed_type MULTI_GPU or MULTI_CPU, or "
                          "fsdp_sharding_strategy: NO_SHARD",
                          "accel_local_sgd needs a whole copy on each rank, but the "
                          "config shards by %s",
                          config_strategy_name(strategy));
    run->averaging.local = (struct local_sgd){ .every = every };
    return ACCEL_OK;
}

double local_sgd_sumsq(const struct accel_optim *o, double sumsq)
{
    return o->run->averaging.local.every && isfinite(sumsq) ? o->own_sumsq : sumsq;
}

void local_sgd_stepped(accel_t *run)
{
    run->averaging.weights_apart = run->averaging.state_apart =
        run->averaging.local.every > 0;
}

/* The tape of a step reads the weights. */
accel_status_t local_sgd_meet(accel_t *run, bool state, accel_error_t *err)
{
    struct averaging *a = &run->averaging;
    accel_status_t st = ACCEL_OK;

    if (!a->weights_apart && !(state && a->state_apart))
        return ACCEL_OK;
    if (run->loop.in_micro)
        return accel_fail(err, A0986, "call it after accel_step",
                          "with local SGD the weights are shown and saved between two "
                          "steps only");
    if (a->weights_apart)
        st = shard_meet(run->shard, err);
    a->weights_apart = false;
    if (st == ACCEL_OK && state && a->state_apart) {
        st = shard_meet_state(run->shard, err);
        a->state_apart = false;
    }
    return st;
}

accel_status_t local_sgd_end_step(accel_t *run, bool last, accel_error_t *err)
{
    const bool due = local_sgd_step(&run->averaging.local);

    return due || last ? local_sgd_meet(run, false, err) : ACCEL_OK;
}

/* ---- in the texts of checkpoints ------------------------------------------------- */

static void local_sgd_put_settings(const accel_t *run, struct strbuf *b)
{
    if (run->averaging.local.every)
        strbuf_printf(b, "local_sgd=%lld\n", (long long)run->averaging.local.every);
}

static void local_sgd_put_progress(const accel_t *run, struct strbuf *b)
{
    const struct local_sgd *l = &run->averaging.local;

    if (l->every)
        strbuf_printf(b, "local_sgd_since=%lld\n", (long long)l->since);
}

/* A checkpoint has the weights of all ranks together: none is apart. */
static void local_sgd_take_progress(accel_t *run, const char *text)
{
    struct averaging *a = &run->averaging;

    a->weights_apart = a->state_apart = false;
    if (!key_line_i64(text, "local_sgd_since", &a->local.since))
        a->local.since = 0;
}

const struct training_part local_sgd_part = {
    .put_settings = local_sgd_put_settings,
    .put_progress = local_sgd_put_progress,
    .take_progress = local_sgd_take_progress,
};
