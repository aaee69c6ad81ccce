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
#include <sys/mman.h>
#include <unistd.h>

#include "accel_safetensors.h"
#include "run/run.h"
#include "tests/tap.h"
#include "tests/unit/run_net.h"

enum { STEPS = 7, STOP = 4 };

/* What a run of forked ranks leaves behind; step 0 is the start. */
struct outcome {
    struct net_values weights[STEPS + 1], averages, after;
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

static accel_status_t train_step(accel_t *run, accel_module_t *net, int step,
                                 accel_error_t *err)
{
    accel_status_t st = accel_batch_begin(run, err);

    if (!st)
        st = run_net_push(run, net, step, 1, err);
    return st ? st : accel_step(run, err);
}

/* ---- whole runs ------------------------------------------------------------------ */

static accel_status_t open_net(const struct scene *p, bool averaged, accel_t **run_out,
                               accel_module_t **net_out, accel_optim_t **optim_out,
                               accel_error_t *err)
{
    const accel_optimizer_t sgd = { .kind = ACCEL_SGD, .lr = 0.05f, .momentum = 0.5f };
    char config[192];
    accel_options_t o = { .config_file = config, .threads = 1 };
    accel_loop_t loop = {
        .steps = STEPS, .batch = NET_SAMPLES / p->world, .seed = 5, .out_dir = p->dir
    };

    snprintf(config, sizeof(config), "%s.yaml", p->dir);
    if (accel_open(run_out, &o, err))
        return err->code;
    *net_out = run_net_new(*run_out);
    if (accel_model_add(*run_out, "", *net_out, err))
        return err->code;
    *optim_out = accel_optim_add(*run_out, "o", net_out, 1, &sgd, err);
    if (!*optim_out || (averaged && accel_ema(*run_out, NULL, &p->rule, err)))
        return err->code;
    return accel_prepare_all(*run_out, &loop, err);
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

    if (!st)
        st = accel_ema_swap(run, 1, err);

    snprintf(dir, sizeof(dir), "%s-averaged", p->dir);
    if (!st)
        st = run_net_read(run, &out->averages, err);
    if (!st)
        st = accel_save_weights(run, dir, "float32", 1 << 20, err);
    if (!st)
        st = ask(run, net, &out->says[1], err);
    if (!st)
        st = accel_ema_swap(run, 0, err);
    if (!st)
        st = ask(run, net, &out->says[2], err);
    return st ? st : run_net_read(run, &out->after, err);
}

static int rank_main(struct boot *b, void *arg)
{
    const struct scene *p = arg;
    struct outcome *mine = calloc(1, sizeof(*mine));
    accel_error_t err = { 0 };
    accel_module_t *net = NULL;
    accel_optim_t *optim = NULL;
    accel_t *run = NULL;
    accel_status_t st;

    st = mine ? open_net(p, true, &run, &net, &optim, &err) : ACCEL_ENOMEM;
    for (int64_t s = accel_steps_done(run); !st && s <= p->until; s++) {
        st = run_net_read(run, &mine->weights[s], &err);
        if (!st && s < p->until)
            st = train_step(run, net, (int)s, &err);
        for (int in = 1; in >= 0 && p->restless && s > 1 && !st; in--)
            st = accel_ema_swap(run, in, &err);
    }
    if (!st && p->until < STEPS)
        st = accel_save(run, &err);
    if (!st && p->until == STEPS)
        st = swap_around(run, net, p, mine, &err);
    if (st)
        fprintf(stderr, "# rank %d: %s: %s\n", b->rank, err.where, err.text);
    if (!st && b->rank == 0) {
        mine->steps = optim->ema.steps;
        mine->averaged = optim->ema.averaged;
        *p->out = *mine;
    }
    accel_close(run, NULL);
    free(mine);
    return st != ACCEL_OK;
}

static struct outcome train(struct scene p, const char *dir, int until)
{
    struct outcome copy, *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    snprintf(p.dir, sizeof(p.dir), "%s/%s", root, dir);
    if (!run_net_config(p.dir, p.strategy, p.world, p.nodes, NULL))
        tap_skip_all("no config can be written");
    p.until = until;
    p.out = shared;
    tap_is_int(open_world(p.world, p.nodes, rank_main, &p, 60), 0,
               "%s: %d ranks, %s, %d steps", dir, p.world, p.strategy, until);
    copy = *shared;
    munmap(shared, sizeof(*shared));
    return copy;
}

/* ---- the same in plain C --------------------------------------------------------- */

/* The average of the weights of steps 1 .. STEPS by the rule's words. */
static struct net_values expected(const accel_ema_t *rule, const struct outcome *o)
{
    const int every = rule->every ? (int)rule->every : 1;
    struct net_values average = { 0 };
    int n = 0;

    for (int s = (int)rule->after + every; s <= STEPS; s += every, n++) {
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
        o = train(plan[i], name, STEPS);
        want = expected(&plan[i].rule, &o);
        tap_ok(run_net_distance(&o.averages, &want) < 1e-6f &&
                   run_net_distance(&want, &o.weights[STEPS]) > 1e-3f,
               "%s: the average is that of plain C, within %g", name,
               (double)run_net_distance(&o.averages, &want));
        tap_ok(!memcmp(&o.after, &o.weights[STEPS], sizeof(o.after)),
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
    struct scene p = { 2, 1, "FULL_SHARD", .rule = { .decay = 0.5 } };
    const struct outcome calm = train(p, "calm", STEPS);
    struct outcome o;

    p.restless = true;
    o = train(p, "restless", STEPS);
    tap_ok(!memcmp(&o.after, &calm.after, sizeof(o.after)) &&
               !memcmp(&o.averages, &calm.averages, sizeof(o.averages)),
           "the same weights and averages as without swaps");
}

static void test_resume(void)
{
    static const accel_ema_t rule = { .decay = 0.8, .every = 2, .after = 1 };
    static const struct scene two = { 2, 1, "FULL_SHARD", .rule = rule },
                              one = { 1, 1, "FULL_SHARD", .rule = rule },
                              four = { 4, 1, "NO_SHARD", .rule = rule };
    static const struct {
        const struct scene *first, *second;
        bool same;
    } c[] = { { &two, &two, true }, { &two, &one, false }, { &two, &four, false } };
    const struct outcome whole = train(two, "unstopped", STEPS);

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c); i++) {
        struct outcome o;
        char name[32];

        snprintf(name, sizeof(name), "stopped-%zu", i);
        train(*c[i].first, name, STOP);
        o = train(*c[i].second, name, STEPS);
        tap_ok(c[i].same ? !memcmp(&o.averages, &whole.averages, sizeof(o.averages))
                         : run_net_distance(&o.averages, &whole.averages) < 1e-5f,
               "resumed after %d steps: %g away", STOP,
               (double)run_net_distance(&o.averages, &whole.averages));
        tap_ok(o.steps == STEPS && o.averaged == whole.averaged, "the counters go on");
    }
}

/* ---- misuse ---------------------------------------------------------------------- */

static bool says(accel_error_t *err, const char *text)
{
    bool good = message_of(err) == A0986 && strstr(err->text, text) && err->hint[0];

    if (!good)
        tap_diag("%d: %s", (int)err->code, err->text);
    *err = (accel_error_t){ 0 };
    return good;
}

static struct scene alone(const char *dir)
{
    struct scene p = { 1, 1, "FULL_SHARD", .rule = { .decay = 0.5 } };

    snprintf(p.dir, sizeof(p.dir), "%s/%s", root, dir);
    if (!run_net_config(p.dir, p.strategy, 1, 1, NULL))
        tap_skip_all("no config can be written");
    return p;
}

static void test_before(void)
{
    static const char *const taken[] = { "ema" };
    static const accel_own_optim_t own = { .update = (void (*)(void *,
                                                               const accel_piece_t *))1,
                                           .state = taken,
                                           .states = 1 };
    const struct scene p = alone("before");
    const accel_optimizer_t sgd = { .kind = ACCEL_SGD, .lr = 1 };
    const accel_loop_t loop = { .steps = 1, .batch = 1, .out_dir = p.dir };
    char config[192];
    accel_options_t o = { .config_file = config, .threads = 1 };
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
    tap_ok(accel_ema(run, NULL, &(accel_ema_t){ .decay = 2 }, &err) == ACCEL_EINVAL,
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
    accel_module_t *net;
    accel_optim_t *optim;
    accel_t *run = NULL;
    struct net_values v;

    tap_is_int(open_net(&p, true, &run, &net, &optim, &err), 0, "open %s", err.text);
    tap_ok(accel_ema(run, NULL, &p.rule, &err) && says(&err, "prepared already"),
           "after the run was prepared");
    tap_ok(accel_ema_swap(run, 1, &err) && says(&err, "no average yet"), "too early");
    tap_ok(accel_ema_swap(run, 0, &err) && says(&err, "in their place"), "not in");
    train_step(run, net, 0, &err);
    accel_batch_begin(run, &err);
    tap_ok(accel_ema_swap(run, 1, &err) && says(&err, "middle of a step"), "in a step");
    run_net_push(run, net, 1, 1, &err);
    accel_step(run, &err);
    tap_ok(!accel_ema_swap(run, 1, &err), "in %s", err.text);
    tap_ok(accel_ema_swap(run, 1, &err) && says(&err, "in the place"), "twice");
    accel_batch_begin(run, &err);
    tap_ok(run_net_push(run, net, 2, 1, &err) && says(&err, "accel_backward"),
           "no backward");
    tap_ok(accel_step(run, &err) && says(&err, "accel_step"), "no step");
    tap_ok(accel_optim_step(optim, NULL, &err) && says(&err, "accel_optim_step"),
           "no step of the optimizer");
    tap_ok(accel_save(run, &err) && says(&err, "accel_save"), "no save");
    tap_ok(accel_save_state(run, NULL, &err) && says(&err, "accel_save_state"),
           "no save of the state");
    tap_ok(accel_load_state(run, p.dir, &err) && says(&err, "accel_load_state"),
           "no load");
    tap_ok(!run_net_read(run, &v, &err), "values are read %s", err.text);
    accel_close(run, NULL);
}

/* A step whose gradients are not finite is skipped, and the average does not move. */
static void test_skipped(void)
{
    const struct scene p = alone("skipped");
    accel_error_t err = { 0 };
    accel_module_t *net;
    accel_optim_t *optim;
    accel_t *run = NULL;
    int updated = 1;

    tap_is_int(open_net(&p, true, &run, &net, &optim, &err), 0, "open %s", err.text);
    train_step(run, net, 0, &err);
    accel_optim_skip(optim, 1, &err);
    accel_batch_begin(run, &err);
    run_net_push(run, net, 1, 1e30f, &err);
    tap_ok(!accel_optim_step(optim, &updated, &err) && !updated, "skipped %s",
           err.text);
    tap_ok(optim->ema.steps == 1 && optim->ema.averaged == 1,
           "a skipped step does not count");
    accel_close(run, NULL);
}

/* A run without averages wrote the checkpoint. */
static void test_without(void)
{
    const struct scene p = alone("without");
    accel_error_t err = { 0 };
    accel_module_t *net;
    accel_optim_t *optim;
    accel_t *run = NULL;

    tap_is_int(open_net(&p, false, &run, &net, &optim, &err), 0, "open %s", err.text);
    tap_ok(accel_ema_swap(run, 1, &err) && says(&err, "keeps no average"),
           "no average to swap");
    train_step(run, net, 0, &err);
    tap_ok(!accel_save(run, &err), "saved %s", err.text);
    accel_close(run, NULL);
    run = NULL;
    tap_ok(open_net(&p, true, &run, &net, &optim, &err) && message_of(&err) == A0987,
           "%s", err.text);
    accel_close(run, NULL);
}

int main(void)
{
    char command[96];

    unsetenv("ACCEL_CONFIG_RESOLVED");
    unsetenv("ACCEL_RESUME");
    if (!mkdtemp(root))
        tap_skip_all("no directory for temporary files");
    test_rule();
    test_restless();
    test_resume();
    test_before();
    test_swap_refused();
    test_skipped();
    test_without();
    snprintf(command, sizeof(command), "rm -rf %s", root);
    tap_ok(system(command) == 0, "removed");
    return tap_done();
}
