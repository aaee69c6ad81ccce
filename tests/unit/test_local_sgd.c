/* SPDX-License-Identifier: Apache-2.0
 *
 * Local SGD in whole runs, against the same in plain C: ranks that step by themselves
 * and meet; clipping by their own norms; saves, which are meetings, and resumed runs;
 * gradients that are not finite; and what is refused. Also copies whose gradients
 * travel in a narrow dtype.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "run/run.h"
#include "tests/tap.h"
#include "tests/unit/run_net.h"

enum { STEPS = 7, STOP = 4, MOST = 4 };

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

static accel_status_t open_net(const struct scene *p, accel_t **run_out,
                               accel_module_t **net_out, accel_optim_t **optim_out,
                               accel_error_t *err)
{
    const accel_optimizer_t sgd = { .kind = ACCEL_SGD, .lr = RATE, .momentum = 0.5f };
    char config[192];
    accel_options_t o = { .config_file = config, .threads = 1 };
    accel_loop_t loop = {
        .steps = STEPS, .batch = NET_SAMPLES / p->world, .seed = 5, .out_dir = p->dir
    };

    snprintf(config, sizeof(config), "%s.yaml", p->dir);
    if (accel_open(run_out, &o, err) ||
        (p->every && accel_local_sgd(*run_out, p->every, err)))
        return err->code;
    *net_out = run_net_new(*run_out);
    if (accel_model_add(*run_out, "", *net_out, err))
        return err->code;
    *optim_out = accel_optim_add(*run_out, "o", net_out, 1, &sgd, err);
    if (!*optim_out || accel_optim_set_clip(*optim_out, p->clip, err))
        return err->code;
    accel_optim_skip(*optim_out, 1, err);
    return accel_prepare_all(*run_out, &loop, err);
}

static accel_status_t train_step(accel_t *run, accel_module_t *net, int step,
                                 accel_error_t *err)
{
    accel_status_t st = accel_batch_begin(run, err);

    if (!st)
        st = run_net_push(run, net, step, 1, err);
    return st ? st : accel_step(run, err);
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
    accel_module_t *net = NULL;
    accel_optim_t *optim = NULL;
    struct net_values mine;
    bool infinite = false;
    accel_t *run = NULL;
    accel_status_t st;

    st = open_net(p, &run, &net, &optim, &err);
    if (!st)
        st = accel_on_gradient(run, NULL, poison, &infinite, &err);
    for (int64_t s = accel_steps_done(run); !st && s < p->until; s++) {
        infinite = b->rank == 1 && s && s == p->infinite;
        st = train_step(run, net, (int)s, &err);
        if (!st && s + 1 == STOP)
            st = accel_save(run, &err);
    }
    if (!st && p->until == STEPS && run->averaging.weights_apart)
        st = accel_fail(&err, A0003, "", "the ranks are apart at the end");
    if (!st)
        *p->since = run->averaging.local.since;
    if (!st)
        st = run_net_read(run, &mine, &err);
    if (st)
        fprintf(stderr, "# rank %d: %s: %s\n", b->rank, err.where, err.text);
    if (!st && b->rank == 0)
        *p->out = mine;
    accel_close(run, NULL);
    return st != ACCEL_OK;
}

struct outcome {
    struct net_values values;
    int64_t since;
};

static struct outcome train(struct scene p, const char *dir, int until)
{
    struct outcome copy, *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    snprintf(p.dir, sizeof(p.dir), "%s/%s", root, dir);
    if (!run_net_config(p.dir, "NO_SHARD", p.world, 1, p.more))
        tap_skip_all("no config can be written");
    p.until = until;
    p.out = &shared->values;
    p.since = &shared->since;
    tap_is_int(open_world(p.world, 1, rank_main, &p, 60), 0,
               "%s: %d ranks, every %d, %d steps", dir, p.world, p.every, until);
    copy = *shared;
    munmap(shared, sizeof(*shared));
    return copy;
}

/* ---- the same in plain C --------------------------------------------------------- */

#define NUMBERS (sizeof(struct net_values) / sizeof(float))

struct rank_state {
    struct net_values w, grad, velocity;
};

/* Gradients of the mean of (net(x) - 1)^2 over a rank's samples. */
static void rank_backward(struct rank_state *r, int step, int rank, int batch)
{
    memset(&r->grad, 0, sizeof(r->grad));
    for (int n = 0; n < batch; n++) {
        float h[NET_HIDDEN], x[NET_IN], y = 0, dy;

        for (int j = 0; j < NET_IN; j++)
            x[j] = run_net_sample(step, rank, batch, n * NET_IN + j);
        for (int k = 0; k < NET_HIDDEN; k++) {
            h[k] = r->w.bias[k];
            for (int j = 0; j < NET_IN; j++)
                h[k] += r->w.first[k][j] * x[j];
            h[k] = h[k] > 0 ? h[k] : 0;
            y += r->w.last[0][k] * h[k];
        }
        dy = 2 * (y - 1) / (float)batch;
        for (int k = 0; k < NET_HIDDEN; k++) {
            const float dh = h[k] > 0 ? dy * r->w.last[0][k] : 0;

            r->grad.last[0][k] += dy * h[k];
            r->grad.bias[k] += dh;
            for (int j = 0; j < NET_IN; j++)
                r->grad.first[k][j] += dh * x[j];
        }
    }
}

static void rank_update(struct rank_state *r, float clip)
{
    float *w = (float *)&r->w, *g = (float *)&r->grad, *v = (float *)&r->velocity;
    double norm = 0;
    float factor;

    for (size_t i = 0; i < NUMBERS; i++)
        norm += (double)g[i] * g[i];
    norm = sqrt(norm);
    factor = clip > 0 && norm > clip ? (float)(clip / norm) : 1;
    for (size_t i = 0; i < NUMBERS; i++) {
        v[i] = 0.5f * v[i] + factor * g[i];
        w[i] -= RATE * v[i];
    }
}

/* Array `at` of each rank becomes the mean. */
static void mean(struct rank_state *r, int world, size_t at)
{
    for (size_t i = 0; i < NUMBERS; i++) {
        float sum = 0;

        for (int k = 0; k < world; k++)
            sum += ((float *)(void *)((char *)&r[k] + at))[i];
        for (int k = 0; k < world; k++)
            ((float *)(void *)((char *)&r[k] + at))[i] = sum / (float)world;
    }
}

static struct net_values expected(const struct net_values *start, const struct scene *p)
{
    struct rank_state r[MOST] = { 0 };

    for (int k = 0; k < p->world; k++)
        r[k].w = *start;
    for (int s = 0; s < STEPS; s++) {
        for (int k = 0; k < p->world; k++) {
            rank_backward(&r[k], s, k, NET_SAMPLES / p->world);
            if (!s || s != p->infinite)
                rank_update(&r[k], p->clip);
        }
        if ((s + 1) % p->every == 0 || s + 1 == STEPS || s + 1 == STOP)
            mean(r, p->world, offsetof(struct rank_state, w));
        if (s + 1 == STOP)
            mean(r, p->world, offsetof(struct rank_state, velocity));
    }
    return r[0].w;
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
    const struct outcome usual = train(plain, "usual", STEPS);

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(plan); i++) {
        const struct net_values want = expected(&start.values, &plan[i]);
        struct outcome o;
        char name[32];

        snprintf(name, sizeof(name), "local-%zu", i);
        o = train(plan[i], name, STEPS);
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
    const struct outcome whole = train(two, "unstopped", STEPS);
    struct outcome o = train(two, "stopped", STOP);

    tap_is_int(o.since, 1, "a save does not move the meetings");
    o = train(two, "stopped", STEPS);
    tap_ok(!memcmp(&o.values, &whole.values, sizeof(o.values)) &&
               o.since == whole.since,
           "resumed with the same bits");
    train(two, "resized", STOP);
    o = train(four, "resized", STEPS);
    tap_is_int(o.since, whole.since, "resumed by 4 ranks");
}

/* The end is a meeting, also where nothing is saved. */
static void test_unsaved(void)
{
    train((struct scene){ .world = 2,
                          .every = 3,
                          .more = "accel: {checkpoint: {save: false}}\n" },
          "unsaved", STEPS);
}

/* The key of the wire reaches the shards of a run. */
static void test_narrow(void)
{
    static const struct scene narrow = { .world = 2,
                                         .more =
                                             "accel: {precision: {reduce: bf16}}\n" },
                              wide = { .world = 2 };
    const struct outcome a = train(narrow, "narrow", STEPS),
                         b = train(wide, "wide", STEPS);
    const float away = run_net_distance(&a.values, &b.values);

    tap_ok(away > 0 && away < 1e-2f, "bfloat16 on the wire: %g away", (double)away);
}

static bool says(accel_error_t *err, enum message code, const char *text)
{
    bool good = message_of(err) == code && strstr(err->text, text) && err->hint[0];

    if (!good)
        tap_diag("%d: %s", (int)err->code, err->text);
    *err = (accel_error_t){ 0 };
    return good;
}

static void test_refused(void)
{
    struct scene p = { .world = 1, .every = 2 };
    char config[192];
    accel_options_t o = { .config_file = config, .threads = 1 };
    accel_error_t err = { 0 };
    struct net_values v;
    accel_module_t *net;
    accel_optim_t *optim;
    accel_t *run = NULL;

    snprintf(p.dir, sizeof(p.dir), "%s/sharded", root);
    snprintf(config, sizeof(config), "%s.yaml", p.dir);
    run_net_config(p.dir, "FULL_SHARD", 1, 1, NULL);
    accel_open(&run, &o, &err);
    tap_ok(accel_local_sgd(run, 2, &err) && says(&err, A0988, "FULL_SHARD"), "shards");
    accel_close(run, NULL);
    run = NULL;
    snprintf(p.dir, sizeof(p.dir), "%s/copies", root);
    run_net_config(p.dir, "NO_SHARD", 1, 1, NULL);
    tap_ok(accel_local_sgd(NULL, 2, &err) == ACCEL_EINVAL, "no run");
    tap_is_int(open_net(&p, &run, &net, &optim, &err), 0, "open %s", err.text);
    tap_ok(accel_local_sgd(run, 2, &err) && says(&err, A0986, "prepared already"),
           "after the run was prepared");
    train_step(run, net, 0, &err);
    accel_batch_begin(run, &err);
    tap_ok(run_net_read(run, &v, &err) && says(&err, A0986, "between two steps"),
           "values in the middle of a step");
    accel_close(run, NULL);
    run = NULL;
    accel_open(&run, &o, &err);
    tap_ok(accel_local_sgd(run, 0, &err) && says(&err, A0984, "no number of steps"),
           "every 0 steps");
    accel_close(run, NULL);
}

int main(void)
{
    char command[96];

    unsetenv("ACCEL_CONFIG_RESOLVED");
    unsetenv("ACCEL_RESUME");
    if (!mkdtemp(root))
        tap_skip_all("no directory for temporary files");
    test_training();
    test_resume();
    test_unsaved();
    test_narrow();
    test_refused();
    snprintf(command, sizeof(command), "rm -rf %s", root);
    tap_ok(system(command) == 0, "removed");
    return tap_done();
}
