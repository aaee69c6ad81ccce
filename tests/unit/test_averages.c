/* SPDX-License-Identifier: Apache-2.0
 *
 * Moving averages of weights in whole runs: on worlds of several sizes and all ways of
 * sharding, against the rule in plain C over the weights of each step; swapped in and
 * out; stopped and resumed, also at another number of ranks; and every misuse.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel_safetensors.h"
#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "tests/world/run_net.h"

enum { STOP = 4 };

/* What a run of forked ranks leaves behind; step 0 is the start. */
struct outcome {
    struct net_values weights[NET_STEPS + 1], averages, after;
    /* what the model says of a sample: before, with the averages, and after */
    float says[3];
    int64_t steps, averaged;
};

struct scene {
    int world, nodes;
    const char *strategy;
    accel_ema_t rule;
    int until;
    /* averages change places after every step from the second on */
    bool restless;
    char dir[128];
    struct outcome *out; /* shared */
};

static char root[64] = "/tmp/accel-averages-XXXXXX";

/* ---- whole runs ------------------------------------------------------------------ */

static accel_status_t averages_open(struct net_run *k, const struct scene *p,
                                    bool averaged, accel_error_t *err)
{
    accel_status_t st = run_net_open(k, p->dir, 0.05f, err);
    accel_ema_t rule = p->rule;

    rule.bytes = sizeof(rule);
    if (!st && averaged)
        st = accel_ema(k->run, NULL, &rule, err);
    return st ? st : run_net_prepare(k, p->dir, err);
}

/* What the model makes of a sample, by a forward outside of steps. */
static accel_status_t ask(accel_t *run, accel_module_t *net, float *out,
                          accel_error_t *err)
{
    const int64_t dims[] = { 1, NET_IN };
    const float x[NET_IN] = { 0.5f, -1, 2 };
    accel_tensor_t *in = accel_input(run, ACCEL_F32, 2, dims, x, err);

    return accel_tensor_read(accel_call(net, &in, 1), out, 1, err);
}

/* Averages in and out; what is written while they are in are the averages. */
static accel_status_t swap_around(accel_t *run, accel_module_t *net,
                                  const struct scene *p, struct outcome *out,
                                  accel_error_t *err)
{
    char dir[160];
    accel_status_t st = ask(run, net, &out->says[0], err);

    snprintf(dir, sizeof(dir), "%s-averaged", p->dir);
    ACCEL_TRY(st, accel_ema_swap(run, 1, err));
    ACCEL_TRY(st, run_net_read(run, &out->averages, err));
    ACCEL_TRY(st, accel_save_weights(run, dir, "float32", 1 << 20, err));
    ACCEL_TRY(st, ask(run, net, &out->says[1], err));
    ACCEL_TRY(st, accel_ema_swap(run, 0, err));
    ACCEL_TRY(st, ask(run, net, &out->says[2], err));
    ACCEL_TRY(st, run_net_read(run, &out->after, err));
    return st;
}

static int rank_main(struct boot *b, void *arg)
{
    const struct scene *p = arg;
    struct outcome *mine = calloc(1, sizeof(*mine));
    accel_error_t err = { 0 };
    struct net_run k = { 0 };
    accel_status_t st = mine ? averages_open(&k, p, true, &err) : ACCEL_ENOMEM;

    for (int64_t s = accel_steps_done(k.run); !st && s <= p->until; s++) {
        st = run_net_read(k.run, &mine->weights[s], &err);
        if (!st && s < p->until)
            st = run_net_step(&k, (int)s, &err);
        for (int in = 1; in >= 0 && p->restless && s > 1 && !st; in--)
            st = accel_ema_swap(k.run, in, &err);
    }
    if (!st && p->until < NET_STEPS)
        st = accel_save(k.run, &err);
    if (!st && p->until == NET_STEPS)
        st = swap_around(k.run, k.net, p, mine, &err);
    if (st)
        fprintf(stderr, "# rank %d: %s: %s\n", b->rank, err.where, err.text);
    if (!st && b->rank == 0) {
        mine->steps = k.optim->ema.steps;
        mine->averaged = k.optim->ema.averaged;
        *p->out = *mine;
    }
    accel_close(k.run, NULL);
    free(mine);
    return st != ACCEL_OK;
}

static struct outcome train(struct scene p, const char *dir, int until)
{
    const struct net_world w = { p.world, p.nodes, p.strategy, NULL };

    snprintf(p.dir, sizeof(p.dir), "%s/%s", root, dir);
    p.until = until;
    p.out = fork_shared(sizeof(*p.out));
    run_net_life(p.dir, &w, rank_main, &p);
    return *p.out;
}

/* ---- the same in plain C --------------------------------------------------------- */

/* The average of the weights of steps 1 .. NET_STEPS by the rule's words. */
static struct net_values expected(const accel_ema_t *rule, const struct outcome *o)
{
    const int every = rule->every ? (int)rule->every : 1;
    struct net_values average = { 0 };
    int n = 0;

    for (int s = (int)rule->after + every; s <= NET_STEPS; s += every, n++) {
        const float *w = (const float *)&o->weights[s];
        float *to = (float *)&average;
        double decay = rule->decay;

        if (rule->warmup == ACCEL_EMA_BY_COUNT)
            decay = fmin(decay, (1.0 + n) / (10.0 + n));
        for (size_t i = 0; i < sizeof(average) / sizeof(float); i++)
            to[i] = n ? (float)(decay * to[i] + (1 - decay) * w[i]) : w[i];
    }
    return average;
}

/* The file that accel_save_weights has written holds the averages. */
static void check_file(const char *name, const struct outcome *o)
{
    const accel_safetensors_tensor_t *t;
    accel_safetensors_t *file = NULL;
    accel_error_t err = { 0 };
    float got[NET_HIDDEN * NET_IN];
    char path[192];

    snprintf(path, sizeof(path), "%s/%s-averaged/model.safetensors", root, name);
    if (accel_safetensors_open(&file, path, &err) == ACCEL_OK) {
        t = accel_safetensors_find(file, "first.weight");
        if (t)
            accel_safetensors_read(file, t, 0, t->elems, got, &err);
    }
    tap_ok(file && !err.code && !memcmp(got, o->averages.first, sizeof(got)),
           "%s: the averages are written %s", name, err.text);
    accel_safetensors_close(file);
}

static void test_rule(void)
{
    static const struct scene plan[] = {
        { 1, 1, "FULL_SHARD", .rule = { .decay = 0.75 } },
        { 2, 1, "FULL_SHARD", .rule = { .decay = 0.75 } },
        { 4, 1, "FULL_SHARD", .rule = { .decay = 0.9, .every = 2, .after = 1 } },
        { 2, 1, "SHARD_GRAD_OP",
          .rule = { .decay = 0.9, .warmup = ACCEL_EMA_BY_COUNT } },
        { 2, 1, "NO_SHARD", .rule = { .decay = 0.5 } },
        { 4, 2, "HYBRID_SHARD", .rule = { .decay = 0.6, .every = 3 } },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(plan); i++) {
        struct net_values want;
        struct outcome o;
        char name[32];

        snprintf(name, sizeof(name), "rule-%zu", i);
        o = train(plan[i], name, NET_STEPS);
        want = expected(&plan[i].rule, &o);
        tap_ok(run_net_distance(&o.averages, &want) < 1e-6f &&
                   run_net_distance(&want, &o.weights[NET_STEPS]) > 1e-3f,
               "%s: the average is that of plain C, within %g", name,
               (double)run_net_distance(&o.averages, &want));
        tap_ok(!memcmp(&o.after, &o.weights[NET_STEPS], sizeof(o.after)),
               "%s: the weights are back with the same bits", name);
        tap_ok(o.says[0] == o.says[2] && o.says[0] != o.says[1],
               "%s: forwards use what is in place: %g, %g", name, (double)o.says[0],
               (double)o.says[1]);
        check_file(name, &o);
    }
}

/* Swaps leave no trace in the training. */
static void test_restless(void)
{
    struct scene p = { 2, 1, "FULL_SHARD", .rule = { sizeof(p.rule), 0.5 } };
    const struct outcome calm = train(p, "calm", NET_STEPS);
    struct outcome o;

    p.restless = true;
    o = train(p, "restless", NET_STEPS);
    tap_ok(!memcmp(&o.after, &calm.after, sizeof(o.after)) &&
               !memcmp(&o.averages, &calm.averages, sizeof(o.averages)),
           "the same weights and averages as without swaps");
}

static void test_resume(void)
{
    static const accel_ema_t rule = { sizeof(rule), .decay = 0.8, .every = 2,
                                      .after = 1 };
    static const struct scene two = { 2, 1, "FULL_SHARD", .rule = rule },
                              one = { 1, 1, "FULL_SHARD", .rule = rule },
                              four = { 4, 1, "NO_SHARD", .rule = rule };
    static const struct {
        const struct scene *first, *second;
        bool same;
    } c[] = { { &two, &two, true }, { &two, &one, false }, { &two, &four, false } };
    const struct outcome whole = train(two, "unstopped", NET_STEPS);

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c); i++) {
        struct outcome o;
        char name[32];

        snprintf(name, sizeof(name), "stopped-%zu", i);
        train(*c[i].first, name, STOP);
        o = train(*c[i].second, name, NET_STEPS);
        tap_ok(c[i].same ? !memcmp(&o.averages, &whole.averages, sizeof(o.averages))
                         : run_net_distance(&o.averages, &whole.averages) < 1e-5f,
               "resumed after %d steps: %g away", STOP,
               (double)run_net_distance(&o.averages, &whole.averages));
        tap_ok(o.steps == NET_STEPS && o.averaged == whole.averaged,
               "the counters go on");
    }
}

/* ---- misuse ---------------------------------------------------------------------- */

static bool says(accel_error_t *err, const char *text)
{
    return run_net_says(err, A0986, text);
}

static struct scene alone(const char *dir)
{
    struct scene p = { 1, 1, "FULL_SHARD", .rule = { sizeof(p.rule), 0.5 } };

    snprintf(p.dir, sizeof(p.dir), "%s/%s", root, dir);
    run_net_config(p.dir, p.strategy, 1, 1, NULL);
    return p;
}

static void test_before(void)
{
    static const char *const taken[] = { "ema" };
    static const accel_own_optim_t own = {
        sizeof(own), .update = (void (*)(void *, const accel_piece_t *))1,
        .state = taken, .states = 1
    };
    const struct scene p = alone("before");
    const accel_optimizer_t sgd = { sizeof(sgd), .kind = ACCEL_SGD, .lr = 1 };
    const accel_loop_t loop = { sizeof(loop), .steps = 1, .batch = 1,
                                .out_dir = p.dir };
    char config[192];
    accel_options_t o = { sizeof(o), .config_file = config, .threads = 1 };
    accel_error_t err = { 0 };
    struct accel_optim stranger = { 0 };
    accel_module_t *net;
    accel_t *run = NULL;

    snprintf(config, sizeof(config), "%s.yaml", p.dir);
    accel_open(&run, &o, &err);
    net = run_net_new(run);
    accel_model_add(run, "", net, &err);
    tap_ok(accel_ema(run, NULL, NULL, &err) && says(&err, "NULL"), "no rule");
    tap_ok(accel_ema(run, &stranger, &p.rule, &err) && says(&err, "not of this run"),
           "an optimizer of another run");
    tap_ok(accel_ema(run, NULL, &(accel_ema_t){ sizeof(accel_ema_t), .decay = 2 },
                     &err) == ACCEL_EINVAL,
           "a decay of 2");
    accel_optim_add_own(run, "o", &net, 1, &sgd, &own, &err);
    tap_ok(!accel_ema(run, NULL, &p.rule, &err), "asked for");
    tap_ok(accel_prepare_all(run, &loop, &err) && says(&err, "state called ema"),
           "a state of that name");
    accel_close(run, NULL);
}

static void test_swap_refused(void)
{
    const struct scene p = alone("refused");
    accel_error_t err = { 0 };
    struct net_run k = { 0 };
    struct net_values v;

    tap_is_int(averages_open(&k, &p, true, &err), 0, "open %s", err.text);
    tap_ok(accel_ema(k.run, NULL, &p.rule, &err) && says(&err, "prepared already"),
           "after the run was prepared");
    tap_ok(accel_ema_swap(k.run, 1, &err) && says(&err, "no average yet"), "too early");
    tap_ok(accel_ema_swap(k.run, 0, &err) && says(&err, "in their place"), "not in");
    run_net_step(&k, 0, &err);
    accel_batch_begin(k.run, &err);
    tap_ok(accel_ema_swap(k.run, 1, &err) && says(&err, "middle of a step"),
           "in a step");
    run_net_push(k.run, k.net, 1, 1, &err);
    accel_step(k.run, &err);
    tap_ok(!accel_ema_swap(k.run, 1, &err), "in %s", err.text);
    tap_ok(accel_ema_swap(k.run, 1, &err) && says(&err, "in the place"), "twice");
    accel_batch_begin(k.run, &err);
    tap_ok(run_net_push(k.run, k.net, 2, 1, &err) && says(&err, "accel_backward"),
           "no backward");
    tap_ok(accel_step(k.run, &err) && says(&err, "accel_step"), "no step");
    tap_ok(accel_optim_step(k.optim, NULL, &err) && says(&err, "accel_optim_step"),
           "no step of the optimizer");
    tap_ok(accel_save(k.run, &err) && says(&err, "accel_save"), "no save");
    tap_ok(accel_save_state(k.run, NULL, &err) && says(&err, "accel_save_state"),
           "no save of the state");
    tap_ok(accel_load_state(k.run, p.dir, &err) && says(&err, "accel_load_state"),
           "no load");
    tap_ok(!run_net_read(k.run, &v, &err), "values are read %s", err.text);
    accel_close(k.run, NULL);
}

static void keep_line(void *user, accel_log_level_t level, const char *line)
{
    (void)level;
    snprintf(user, 256, "%s", line);
}

/* A step whose gradients are not finite is skipped, and the average does not move. */
static void test_skipped(void)
{
    const struct scene p = alone("skipped");
    accel_error_t err = { 0 };
    struct net_run k = { 0 };
    char line[256] = "";
    int updated = 1;

    tap_is_int(averages_open(&k, &p, true, &err), 0, "open %s", err.text);
    run_net_step(&k, 0, &err);
    k.run->log = (struct accel_log){ keep_line, line, ACCEL_LOG_WARN };
    accel_optim_skip(k.optim, 1, &err);
    accel_batch_begin(k.run, &err);
    run_net_push(k.run, k.net, 1, 1e30f, &err);
    tap_ok(!accel_optim_step(k.optim, &updated, &err) && !updated, "skipped %s",
           err.text);
    tap_ok(k.optim->ema.steps == 1 && k.optim->ema.averaged == 1,
           "a skipped step does not count");
    tap_is_str(line,
               "step 2: the gradients of optimizer 'o' are not finite; its step is "
               "skipped",
               "and the log says which");
    accel_close(k.run, NULL);
}

/* A run without averages wrote the checkpoint. */
static void test_without(void)
{
    const struct scene p = alone("without");
    accel_error_t err = { 0 };
    struct net_run k = { 0 };

    tap_is_int(averages_open(&k, &p, false, &err), 0, "open %s", err.text);
    tap_ok(accel_ema_swap(k.run, 1, &err) && says(&err, "keeps no average"),
           "no average to swap");
    run_net_step(&k, 0, &err);
    tap_ok(!accel_save(k.run, &err), "saved %s", err.text);
    accel_close(k.run, NULL);
    k = (struct net_run){ 0 };
    tap_ok(averages_open(&k, &p, true, &err) && message_of(&err) == A0987, "%s",
           err.text);
    accel_close(k.run, NULL);
}

int main(void)
{
    run_folder_new(root);
    test_rule();
    test_restless();
    test_resume();
    test_before();
    test_swap_refused();
    test_skipped();
    test_without();
    run_folder_remove(root);
    return tap_done();
}
