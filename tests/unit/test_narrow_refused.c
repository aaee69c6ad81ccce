/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights or gradients that are kept narrow where something needs float32: the run is
 * refused before its first step, with the setting that cures it, and without that goes
 * on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env_names.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "tests/world/run_net.h"

enum with { NOTHING, AVERAGE, OWN };

static const struct row {
    const char *what, *strategy, *masters, *gradients;
    int world;
    enum with with;
    const char *says, *cure; /* NULL: prepared */
} rows[] = {
    { "all in float32, with an average", "FULL_SHARD", "float32", "float32", 1, AVERAGE,
      NULL, NULL },
    { "all in float32, with an own optimizer", "FULL_SHARD", "float32", "float32", 1,
      OWN, NULL, NULL },
    { "narrow weights", "FULL_SHARD", "fp16", "float32", 1, NOTHING, NULL, NULL },
    { "narrow weights with an average", "FULL_SHARD", "fp16", "float32", 1, AVERAGE,
      "accel.precision.masters needs float32 here: moving averages",
      "leave one of the two out" },
    { "narrow weights with an own optimizer", "FULL_SHARD", "fp16", "float32", 1, OWN,
      "accel.precision.masters needs float32 here: an optimizer of the program",
      "set accel.precision.masters: float32" },
    { "narrow gradients", "FULL_SHARD", "float32", "fp8", 1, NOTHING, NULL, NULL },
    { "narrow gradients with an average", "FULL_SHARD", "float32", "fp8", 1, AVERAGE,
      "accel.precision.gradients needs float32 here: moving averages",
      "set accel.precision.gradients: float32" },
    { "narrow gradients with an own optimizer", "FULL_SHARD", "float32", "fp8", 1, OWN,
      "accel.precision.gradients needs float32 here: an optimizer of the program",
      "set accel.precision.gradients: float32" },
    { "narrow gradients of shards", "FULL_SHARD", "float32", "fp8", 2, NOTHING, NULL,
      NULL },
    { "narrow gradients of one copy", "NO_SHARD", "float32", "fp8", 1, NOTHING, NULL,
      NULL },
    { "narrow gradients of two copies", "NO_SHARD", "float32", "fp8", 2, NOTHING,
      "accel.precision.gradients needs float32 here: each rank has whole copies",
      "set accel.precision.gradients: float32" },
};

static char path[64] = "/tmp/accel-narrow-XXXXXX";

static void no_update(void *user, const accel_piece_t *piece)
{
    (void)user, (void)piece;
}

static accel_status_t open_own(struct net_run *k, const char *run, accel_error_t *err)
{
    static const accel_own_optim_t own = { sizeof(own), .update = no_update };
    const accel_optimizer_t settings = { sizeof(settings), .lr = 0.1f };

    if (run_net_begin(k, run, err))
        return err->code;
    k->optim = accel_optim_add_own(k->run, "o", &k->net, 1, &settings, &own, err);
    return k->optim ? ACCEL_OK : err->code;
}

static int rank_of_row(struct boot *b, void *arg)
{
    const struct row *r = arg;
    struct net_run k = { 0 };
    accel_error_t err = { 0 };
    char run[80];
    accel_status_t st;
    bool good;

    open_world_join(b);
    snprintf(run, sizeof(run), "%s/run", path);
    st = r->with == OWN ? open_own(&k, run, &err) : run_net_open(&k, run, 0.1f, &err);
    if (!st && r->with == AVERAGE)
        st = accel_ema(k.run, NULL, &(accel_ema_t){ sizeof(accel_ema_t), .decay = 0.9 },
                       &err);
    if (st) {
        fprintf(stderr, "# %s\n", err.text);
        return 1;
    }
    st = run_net_prepare(&k, run, &err);
    good = st == (r->says ? ACCEL_EINVAL : ACCEL_OK);
    if (r->says && open_world_rank() == 0) { /* it says why for all */
        good = good && strstr(err.hint, r->cure);
        good = run_net_says(&err, A0902, r->says) && good;
    }
    if (!good)
        fprintf(stderr, "# %d: %s (%s)\n", (int)st, err.text, err.hint);
    accel_close(k.run, NULL);
    open_world_join(NULL);
    return good ? 0 : 2;
}

static void try(const struct row *r)
{
    char run[80], more[160];

    snprintf(run, sizeof(run), "%s/run", path);
    snprintf(more, sizeof(more),
             "mixed_precision: bf16\naccel:\n  precision:\n    masters: %s\n"
             "    gradients: %s\n",
             r->masters, r->gradients);
    run_net_config(run, r->strategy, r->world, 1, more);
    tap_is_int(open_world(r->world, 1, rank_of_row, (void *)(uintptr_t)r, HANG_S), 0,
               "%s: %s", r->what, r->says ? "refused" : "prepared");
}

int main(void)
{
    unsetenv(ENV_CONFIG);
    run_folder_new(path);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        try(&rows[i]);
    run_folder_remove(path);
    return tap_done();
}
