/* SPDX-License-Identifier: Apache-2.0
 *
 * Local SGD in whole runs, against the same in plain C: ranks that step by themselves
 * and meet; clipping by their own norms; saves, which are meetings, and resumed runs;
 * gradients that are not finite; and what is refused. Also copies whose gradients
 * travel in a narrow dtype.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/number_run.h"
#include "tests/world/run_folder.h"
#include "tests/world/run_net.h"

enum { STOP = 4, MOST = 4 };

#define RATE 0.2f

struct scene {
    int world, every;
    float clip;
    /* more lines of the config */
    const char *more;
    int until;
    /* rank 1 has a gradient that is infinite in this step; 0: none */
    int infinite;
    char dir[128];
    struct net_values *out; /* shared */
    int64_t *since;
};

static char root[64] = "/tmp/accel-local-XXXXXX";

static accel_status_t local_open(struct net_run *k, const struct scene *p,
                                 accel_error_t *err)
{
    accel_status_t st = run_net_open(k, p->dir, RATE, err);

    if (!st && p->every)
        st = accel_local_sgd(k->run, p->every, err);
    ACCEL_TRY(st, accel_optim_set_clip(k->optim, p->clip, err));
    ACCEL_TRY(st, accel_optim_skip(k->optim, 1, err));
    ACCEL_TRY(st, run_net_prepare(k, p->dir, err));
    return st;
}

/* *user is set in the step that is to fail. */
static void poison(void *user, const char *name, float *g, int64_t first, int64_t count)
{
    (void)name;
    (void)first;
    if (*(const bool *)user && count)
        g[0] = INFINITY;
}

/* Every run saves after STOP steps. */
static int rank_main(struct boot *b, void *arg)
{
    const struct scene *p = arg;
    accel_error_t err = { 0 };
    struct net_run k = { 0 };
    struct net_values mine;
    bool infinite = false;
    accel_status_t st = local_open(&k, p, &err);

    ACCEL_TRY(st, accel_on_gradient(k.run, NULL, poison, &infinite, &err));
    for (int64_t s = accel_steps_done(k.run); !st && s < p->until; s++) {
        infinite = b->rank == 1 && s && s == p->infinite;
        st = run_net_step(&k, (int)s, &err);
        if (!st && s + 1 == STOP)
            st = accel_save(k.run, &err);
    }
    if (!st && p->until == NET_STEPS && k.run->averaging.weights_apart)
        st = accel_fail(&err, A0003, "", "the ranks are apart at the end");
    if (!st)
        *p->since = k.run->averaging.local.since;
    ACCEL_TRY(st, run_net_read(k.run, &mine, &err));
    if (st)
        fprintf(stderr, "# rank %d: %s: %s\n", b->rank, err.where, err.text);
    if (!st && b->rank == 0)
        *p->out = mine;
    accel_close(k.run, NULL);
    return st != ACCEL_OK;
}

struct outcome {
    struct net_values values;
    int64_t since;
};

static struct outcome train(struct scene p, const char *dir, int until)
{
    const struct net_world w = { p.world, 1, "NO_SHARD", p.more };
    struct outcome *shared = fork_shared(sizeof(*shared));

    snprintf(p.dir, sizeof(p.dir), "%s/%s", root, dir);
    p.until = until;
    p.out = &shared->values;
    p.since = &shared->since;
    run_net_life(p.dir, &w, rank_main, &p);
    return *shared;
}

/* ---- the same in plain C --------------------------------------------------------- */

static struct net_values expected(const struct net_values *start, const struct scene *p)
{
    float w[MOST][NET_NUMBERS], velocity[MOST][NET_NUMBERS] = { 0 }, g[NET_NUMBERS];
    struct net_values out;

    for (int k = 0; k < p->world; k++)
        memcpy(w[k], start, sizeof(w[k]));
    for (int s = 0; s < NET_STEPS; s++) {
        for (int k = 0; k < p->world; k++) {
            run_net_gradient(w[k], s, k, NET_SAMPLES / p->world, g);
            if (!s || s != p->infinite)
                run_net_update(w[k], g, velocity[k], RATE, p->clip);
        }
        if ((s + 1) % p->every == 0 || s + 1 == NET_STEPS || s + 1 == STOP)
            run_net_mean(w, p->world, 0, NET_NUMBERS);
        if (s + 1 == STOP)
            run_net_mean(velocity, p->world, 0, NET_NUMBERS);
    }
    memcpy(&out, w[0], sizeof(out));
    return out;
}

static void test_training(void)
{
    static const struct scene plan[] = {
        { .world = 2, .every = 1 },
        { .world = 2, .every = 3 },
        { .world = 4, .every = 2 },
        { .world = 2, .every = 3, .clip = 0.2f },
        { .world = 2, .every = 3, .infinite = 2 },
    };
    const struct outcome start = train(plan[0], "start", 0);
    const struct scene plain = { .world = 2 };
    const struct outcome usual = train(plain, "usual", NET_STEPS);

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(plan); i++) {
        const struct net_values want = expected(&start.values, &plan[i]);
        struct outcome o;
        char name[32];

        snprintf(name, sizeof(name), "local-%zu", i);
        o = train(plan[i], name, NET_STEPS);
        tap_ok(run_net_distance(&o.values, &want) < 1e-5f,
               "%s: as in plain C, within %g", name,
               (double)run_net_distance(&o.values, &want));
        /* SGD is linear in the gradients: the mean of one step is the step of the mean */
        tap_is_int(run_net_distance(&o.values, &usual.values) < 1e-5f,
                   plan[i].every == 1, "%s: as with summed gradients, or not", name);
    }
}

static void test_resume(void)
{
    static const struct scene two = { .world = 2, .every = 3 },
                              four = { .world = 4, .every = 3 };
    const struct outcome whole = train(two, "unstopped", NET_STEPS);
    struct outcome o = train(two, "stopped", STOP);

    tap_is_int(o.since, 1, "a save does not move the meetings");
    o = train(two, "stopped", NET_STEPS);
    tap_ok(!memcmp(&o.values, &whole.values, sizeof(o.values)) &&
               o.since == whole.since,
           "resumed with the same bits");
    train(two, "resized", STOP);
    o = train(four, "resized", NET_STEPS);
    tap_is_int(o.since, whole.since, "resumed by 4 ranks");
}

/* Measured with Accelerate: gradients 1 and 2, lr 1, every 2 of 5 steps, and the mean
 * at the end, which is a meeting here. */
static int row_main(struct boot *b, void *arg)
{
    static const double want[2][5] = { { -1, -3, -4, -6, -7.5 },
                                       { -2, -3, -5, -6, -7.5 } };
    const accel_loop_t loop = { sizeof(loop), .steps = 5, .batch = 1, .out_dir = root };
    struct number_run k;
    int wrong = 0;

    wrong += number_open(&k, arg) || accel_local_sgd(k.run, 2, &k.err) ||
             accel_prepare_all(k.run, &loop, &k.err);
    for (int i = 0; i < 5; i++) {
        wrong += number_micro(&k, k.a, (float)b->rank + 1) != ACCEL_OK;
        wrong += accel_step(k.run, &k.err) != ACCEL_OK;
        wrong += fabs(number_of(&k, k.a) - 2 - want[b->rank][i]) > 1e-5;
    }
    if (wrong)
        fprintf(stderr, "# rank %d: %d wrong %s\n", b->rank, wrong, k.err.text);
    accel_close(k.run, NULL);
    return wrong != 0;
}

static void test_row(void)
{
    char config[96];

    snprintf(config, sizeof(config), "%s/row.yaml", root);
    number_config(config, 2, 1, "NO_SHARD", false);
    tap_is_int(open_world(2, 1, row_main, config, HANG_S), 0, "Accelerate's numbers");
}

/* The end is a meeting, also where nothing is saved. */
static void test_unsaved(void)
{
    train((struct scene){ .world = 2,
                          .every = 3,
                          .more = "accel: {checkpoint: {save: false}}\n" },
          "unsaved", NET_STEPS);
}

/* The key of the wire reaches the shards of a run. */
static void test_narrow(void)
{
    static const struct scene narrow = { .world = 2,
                                         .more =
                                             "accel: {precision: {reduce: bf16}}\n" },
                              wide = { .world = 2 };
    const struct outcome a = train(narrow, "narrow", NET_STEPS),
                         b = train(wide, "wide", NET_STEPS);
    const float away = run_net_distance(&a.values, &b.values);

    tap_ok(away > 0 && away < 1e-2f, "bfloat16 on the wire: %g away", (double)away);
}

static void test_refused(void)
{
    struct scene p = { .world = 1, .every = 2 };
    accel_error_t err = { 0 };
    struct net_values v;
    struct net_run k = { 0 };

    snprintf(p.dir, sizeof(p.dir), "%s/sharded", root);
    run_net_config(p.dir, "FULL_SHARD", 1, 1, NULL);
    run_net_run(&k.run, p.dir, NULL, NULL, &err);
    tap_ok(accel_local_sgd(k.run, 2, &err) && run_net_says(&err, A0988, "FULL_SHARD"),
           "shards");
    accel_close(k.run, NULL);
    k = (struct net_run){ 0 };
    snprintf(p.dir, sizeof(p.dir), "%s/copies", root);
    run_net_config(p.dir, "NO_SHARD", 1, 1, NULL);
    tap_ok(accel_local_sgd(NULL, 2, &err) == ACCEL_EINVAL, "no run");
    tap_is_int(local_open(&k, &p, &err), 0, "open %s", err.text);
    tap_ok(accel_local_sgd(k.run, 2, &err) &&
               run_net_says(&err, A0986, "prepared already"),
           "after the run was prepared");
    run_net_step(&k, 0, &err);
    accel_batch_begin(k.run, &err);
    tap_ok(run_net_read(k.run, &v, &err) &&
               run_net_says(&err, A0986, "between two steps"),
           "values in the middle of a step");
    accel_close(k.run, NULL);
    k = (struct net_run){ 0 };
    run_net_run(&k.run, p.dir, NULL, NULL, &err);
    tap_ok(accel_local_sgd(k.run, 0, &err) &&
               run_net_says(&err, A0984, "no number of steps"),
           "every 0 steps");
    accel_close(k.run, NULL);
}

int main(void)
{
    run_folder_new(root);
    test_training();
    test_resume();
    test_row();
    test_unsaved();
    test_narrow();
    test_refused();
    run_folder_remove(root);
    return tap_done();
}
