/* SPDX-License-Identifier: Apache-2.0
 *
 * Several models and optimizers in one run: a generator, a critic and a frozen teacher,
 * on worlds of several sizes and all ways of sharding, against the same training in
 * plain loops of float; stopped and resumed, also at another number of ranks; and every
 * misuse of the calls.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "tests/world/run_net.h"

enum { Z = 3, X = 4, H = 5, SAMPLES = 8, STEPS = 6, STOP = 3 };

/* All parameters side by side, as the reference has them. */
struct values {
    float gw[X][Z], gb[X], w1[H][X], b1[H], w2[1][H], tw[1][X];
};

static const struct {
    const char *name;
    size_t at;
    int64_t elems;
} table[] = {
    { "generator/weight", offsetof(struct values, gw), (int64_t)X *Z },
    { "generator/bias", offsetof(struct values, gb), X },
    { "critic/first.weight", offsetof(struct values, w1), (int64_t)H *X },
    { "critic/first.bias", offsetof(struct values, b1), H },
    { "critic/last.weight", offsetof(struct values, w2), H },
    { "teacher/weight", offsetof(struct values, tw), X },
};

/* One run of forked ranks. */
struct scene {
    int world, nodes;
    const char *strategy;
    /* steps of this life; below STEPS it ends with accel_save */
    int until;
    /* the critic's optimizer is the program's own */
    bool own;
    char dir[128];
    struct values *out; /* shared */
};

static char root[64] = "/tmp/accel-objects-XXXXXX";

/* ---- data ------------------------------------------------------------------------ */

/* Numbers between -1 and 1 that depend on all arguments. */
static float number(int step, int sample, int i)
{
    return (float)((step * 37 + sample * 11 + i * 5) % 19 - 9) / 9.0f;
}

/* ---- models ---------------------------------------------------------------------- */

struct layer {
    accel_tensor_t *weight, *bias;
    accel_activation_t act;
};

static accel_tensor_t *layer_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    const struct layer *l = accel_module_state(m);

    (void)n;
    return accel_linear(in[0], l->weight, l->bias, l->act);
}

static accel_tensor_t *critic_forward(accel_module_t *m, accel_tensor_t *const *in,
                                      int n)
{
    accel_tensor_t *h = accel_call(m->child, in, n);

    return accel_call(m->child->next, &h, 1);
}

static accel_module_t *layer_new(accel_t *run, accel_module_t *parent, const char *name,
                                 int out, int in, bool bias, accel_activation_t act)
{
    static const accel_class_t cls = { sizeof(cls), "Linear", layer_forward,
                                       sizeof(struct layer) };
    const int64_t dims[] = { out, in };
    accel_module_t *m = accel_module_new(run, &cls, parent, name);
    struct layer *l = accel_module_state(m);

    l->weight =
        accel_param(m, "weight", 2, dims, (accel_init_t){ ACCEL_INIT_UNIFORM, 0.7f });
    if (bias)
        l->bias =
            accel_param(m, "bias", 1, dims, (accel_init_t){ ACCEL_INIT_UNIFORM, 0.3f });
    l->act = act;
    return m;
}

struct gan {
    accel_t *run;
    accel_module_t *g, *d, *t;
    accel_optim_t *og, *od;
};

/* torch's SGD with momentum. */
static void own_update(void *user, const accel_piece_t *p)
{
    (void)user;
    for (int64_t i = 0; i < p->count; i++) {
        p->state[0][i] = 0.5f * p->state[0][i] + p->gradient[i];
        p->values[i] -= p->lr * p->state[0][i];
    }
}

static accel_status_t gan_open(struct gan *k, const struct scene *p, accel_error_t *err)
{
    static const accel_class_t cls = { sizeof(cls), "Critic", critic_forward, 0 };
    static const char *const state[] = { "velocity" };
    static const accel_own_optim_t own = { sizeof(own), own_update, NULL, state, 1 };
    const accel_optimizer_t adamw = { sizeof(adamw), .lr = 0.01f };
    const accel_optimizer_t sgd = { sizeof(sgd), .kind = ACCEL_SGD, .lr = 0.1f,
                                    .momentum = 0.5f };
    char config[192];
    accel_options_t o = { sizeof(o), .config_file = config, .threads = 1 };
    accel_loop_t loop = { sizeof(loop), .steps = STEPS, .batch = SAMPLES / p->world,
                          .seed = 5, .out_dir = p->dir };

    snprintf(config, sizeof(config), "%s.yaml", p->dir);
    if (accel_open(&k->run, &o, err))
        return err->code;
    k->g = layer_new(k->run, NULL, NULL, X, Z, true, ACCEL_ACT_NONE);
    k->d = accel_module_new(k->run, &cls, NULL, NULL);
    layer_new(k->run, k->d, "first", H, X, true, ACCEL_ACT_RELU);
    layer_new(k->run, k->d, "last", 1, H, false, ACCEL_ACT_NONE);
    k->t = layer_new(k->run, NULL, NULL, 1, X, false, ACCEL_ACT_NONE);
    if (accel_model_add(k->run, "generator", k->g, err) ||
        accel_model_add(k->run, "critic", k->d, err) ||
        accel_model_add(k->run, "teacher", k->t, err))
        return err->code;
    k->og = accel_optim_add(k->run, "g", &k->g, 1, &adamw, err);
    k->od = p->own ? accel_optim_add_own(k->run, "d", &k->d, 1, &sgd, &own, err)
                   : accel_optim_add(k->run, "d", &k->d, 1, &sgd, err);
    return k->og && k->od ? accel_prepare_all(k->run, &loop, err) : err->code;
}

/* This rank's samples of a step. */
static accel_tensor_t *samples(const struct gan *k, int step, int width, int first)
{
    const int batch = SAMPLES / accel_world_size(k->run);
    const int64_t dims[] = { batch, width };
    float host[SAMPLES * X];

    for (int i = 0; i < batch; i++)
        for (int j = 0; j < width; j++)
            host[i * width + j] =
                number(step, accel_rank(k->run) * batch + i, first + j);
    return accel_input(k->run, ACCEL_F32, 2, dims, host, NULL);
}

/* Mean of (score - want)^2. */
static accel_tensor_t *score_loss(const struct gan *k, accel_module_t *judge,
                                  accel_tensor_t *x, float want)
{
    const int batch = SAMPLES / accel_world_size(k->run);
    const int64_t dims[] = { batch, 1 };
    float host[SAMPLES];

    for (int i = 0; i < batch; i++)
        host[i] = want;
    return accel_mse(accel_call(judge, &x, 1),
                     accel_input(k->run, ACCEL_F32, 2, dims, host, NULL));
}

/* Two losses of the critic, then one of the generator through the critic and one through
 * the teacher. */
static accel_status_t gan_step(const struct gan *k, int step, accel_error_t *err)
{
    accel_tensor_t *z, *fake, *real_loss, *fake_loss;
    accel_status_t st = accel_batch_begin(k->run, err);

    ACCEL_TRY(st, accel_model_freeze(k->run, k->g, 1, err));
    z = samples(k, step, Z, 0);
    fake = accel_call(k->g, &z, 1);
    real_loss = score_loss(k, k->d, samples(k, step, X, Z), 1);
    fake_loss = score_loss(k, k->d, fake, 0);
    ACCEL_TRY(st, accel_backward(k->run, real_loss, err));
    ACCEL_TRY(st, accel_backward(k->run, fake_loss, err));
    ACCEL_TRY(st, accel_optim_step(k->od, NULL, err));
    ACCEL_TRY(st, accel_model_freeze(k->run, k->g, 0, err));
    ACCEL_TRY(st, accel_model_freeze(k->run, k->d, 1, err));
    ACCEL_TRY(st, accel_backward(k->run,
                                 score_loss(k, k->d, accel_call(k->g, &z, 1), 1), err));
    ACCEL_TRY(st, accel_model_freeze(k->run, k->d, 0, err));
    ACCEL_TRY(st, accel_backward(k->run,
                                 score_loss(k, k->t, accel_call(k->g, &z, 1), 0), err));
    return st ? st : accel_step(k->run, err);
}

/* All values, on all ranks. */
static accel_status_t read_values(accel_t *run, struct values *out, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(table); k++)
        ACCEL_TRY(st, accel_param_read(run, table[k].name, ACCEL_ALL_RANKS,
                                       (float *)(void *)((char *)out + table[k].at),
                                       table[k].elems, err));
    return st;
}

static int rank_main(struct boot *b, void *arg)
{
    const struct scene *p = arg;
    accel_error_t err = { 0 };
    struct gan k = { 0 };
    struct values mine;
    accel_status_t st = gan_open(&k, p, &err);

    for (int64_t s = accel_steps_done(k.run); !st && s < p->until; s++)
        st = gan_step(&k, (int)s, &err);
    if (!st &&
        (accel_optim_steps(k.od) != p->until || accel_optim_steps(k.og) != p->until))
        st = ACCEL_EBUG;
    if (!st && p->until < STEPS)
        st = accel_save(k.run, &err);
    ACCEL_TRY(st, read_values(k.run, &mine, &err));
    if (!st && b->rank == 0)
        *p->out = mine;
    if (st)
        fprintf(stderr, "# rank %d: %s: %s\n", b->rank, err.where, err.text);
    accel_close(k.run, NULL);
    return st != ACCEL_OK;
}

static struct values train(struct scene p, int until, const char *dir, size_t number)
{
    const struct net_world w = { p.world, p.nodes, p.strategy, NULL };

    snprintf(p.dir, sizeof(p.dir), "%s/%s-%zu", root, dir, number);
    p.until = until;
    p.out = fork_shared(sizeof(*p.out));
    run_net_life(p.dir, &w, rank_main, &p);
    return *p.out;
}

/* ---- the same in plain C --------------------------------------------------------- */

struct reference {
    struct values p, grad, velocity, m, v;
};

/* Forward and backward of mean((judge(x) - want)^2) over all samples; dx gets the
 * derivatives by x. critic: else the teacher judges. */
static void judge(struct reference *r, bool critic, float x[SAMPLES][X], float want,
                  float dx[SAMPLES][X])
{
    for (int i = 0; i < SAMPLES; i++) {
        float h[H] = { 0 }, y = 0, dy;

        for (int k = 0; critic && k < H; k++) {
            h[k] = r->p.b1[k];
            for (int j = 0; j < X; j++)
                h[k] += r->p.w1[k][j] * x[i][j];
            h[k] = h[k] > 0 ? h[k] : 0;
            y += r->p.w2[0][k] * h[k];
        }
        for (int j = 0; !critic && j < X; j++)
            y += r->p.tw[0][j] * x[i][j];
        dy = 2 * (y - want) / SAMPLES;
        for (int j = 0; j < X; j++)
            dx[i][j] = critic ? 0 : dy * r->p.tw[0][j];
        for (int k = 0; critic && k < H; k++) {
            float dh = h[k] > 0 ? dy * r->p.w2[0][k] : 0;

            r->grad.w2[0][k] += dy * h[k];
            r->grad.b1[k] += dh;
            for (int j = 0; j < X; j++) {
                r->grad.w1[k][j] += dh * x[i][j];
                dx[i][j] += dh * r->p.w1[k][j];
            }
        }
    }
}

static void generate(const struct reference *r, int step, float z[SAMPLES][Z],
                     float x[SAMPLES][X])
{
    for (int i = 0; i < SAMPLES; i++) {
        for (int j = 0; j < Z; j++)
            z[i][j] = number(step, i, j);
        for (int o = 0; o < X; o++) {
            x[i][o] = r->p.gb[o];
            for (int j = 0; j < Z; j++)
                x[i][o] += r->p.gw[o][j] * z[i][j];
        }
    }
}

static void generate_backward(struct reference *r, float z[SAMPLES][Z],
                              float dx[SAMPLES][X])
{
    for (int i = 0; i < SAMPLES; i++)
        for (int o = 0; o < X; o++) {
            r->grad.gb[o] += dx[i][o];
            for (int j = 0; j < Z; j++)
                r->grad.gw[o][j] += dx[i][o] * z[i][j];
        }
}

static void sgd(struct reference *r)
{
    size_t from = offsetof(struct values, w1) / sizeof(float);
    size_t to = offsetof(struct values, tw) / sizeof(float);
    float *p = (float *)&r->p, *g = (float *)&r->grad, *v = (float *)&r->velocity;

    for (size_t i = from; i < to; i++) {
        v[i] = 0.5f * v[i] + g[i];
        p[i] -= 0.1f * v[i];
    }
    memset(&r->grad, 0, sizeof(r->grad));
}

static void adamw(struct reference *r, int t)
{
    size_t to = offsetof(struct values, w1) / sizeof(float);
    float *p = (float *)&r->p, *g = (float *)&r->grad;
    float *m = (float *)&r->m, *v = (float *)&r->v;

    for (size_t i = 0; i < to; i++) {
        m[i] = 0.9f * m[i] + 0.1f * g[i];
        v[i] = 0.95f * v[i] + 0.05f * g[i] * g[i];
        p[i] -= (float)(0.01 * (m[i] / (1 - pow(0.9, t))) /
                        (sqrt(v[i] / (1 - pow(0.95, t))) + 1e-8));
    }
    memset(&r->grad, 0, sizeof(r->grad));
}

static struct values reference(const struct values *start)
{
    struct reference r = { .p = *start };

    for (int s = 0; s < STEPS; s++) {
        float z[SAMPLES][Z], x[SAMPLES][X], real[SAMPLES][X], dx[SAMPLES][X];

        for (int i = 0; i < SAMPLES; i++)
            for (int j = 0; j < X; j++)
                real[i][j] = number(s, i, Z + j);
        generate(&r, s, z, x);
        judge(&r, true, real, 1, dx);
        judge(&r, true, x, 0, dx);
        sgd(&r);
        judge(&r, true, x, 1, dx);
        generate_backward(&r, z, dx);
        judge(&r, false, x, 0, dx);
        generate_backward(&r, z, dx);
        adamw(&r, s + 1);
    }
    return r.p;
}

static float distance(const struct values *a, const struct values *b)
{
    const float *x = (const float *)a, *y = (const float *)b;
    float most = 0;

    for (size_t i = 0; i < sizeof(*a) / sizeof(float); i++)
        most = fmaxf(most, fabsf(x[i] - y[i]));
    return most;
}

static void test_training(void)
{
    static const struct scene plan[] = {
        { .world = 1, .nodes = 1, .strategy = "FULL_SHARD" },
        { .world = 2, .nodes = 1, .strategy = "FULL_SHARD" },
        { .world = 4, .nodes = 1, .strategy = "FULL_SHARD", .own = true },
        { .world = 2, .nodes = 1, .strategy = "SHARD_GRAD_OP" },
        { .world = 2, .nodes = 1, .strategy = "NO_SHARD" },
        { .world = 4, .nodes = 1, .strategy = "NO_SHARD" },
        { .world = 4, .nodes = 2, .strategy = "HYBRID_SHARD" },
        { .world = 1, .nodes = 1, .strategy = "FULL_SHARD", .own = true },
    };
    struct values start = train(plan[0], 0, "start", 0), want = reference(&start);

    tap_ok(distance(&start, &want) > 0.05f, "the reference has moved by %g",
           (double)distance(&start, &want));
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(plan); i++) {
        const struct values got = train(plan[i], STEPS, "whole", i);

        tap_ok(distance(&got, &want) < 2e-5f, "as in plain loops, within %g",
               (double)distance(&got, &want));
    }
}

static void test_resume(void)
{
    static const struct scene firsts[] = {
        { .world = 2, .nodes = 1, .strategy = "FULL_SHARD" },
        { .world = 2, .nodes = 1, .strategy = "FULL_SHARD" },
        { .world = 2, .nodes = 1, .strategy = "NO_SHARD", .own = true },
    };
    static const int worlds[] = { 2, 1, 2 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(firsts); i++) {
        struct scene second = firsts[i];
        const struct values whole = train(firsts[i], STEPS, "unstopped", i);
        struct values got;

        second.world = worlds[i];
        train(firsts[i], STOP, "stopped", i);
        got = train(second, STEPS, "stopped", i);
        tap_ok(worlds[i] == 2 ? !memcmp(&got, &whole, sizeof(got))
                              : distance(&got, &whole) < 1e-5f,
               "resumed after %d steps: %g away", STOP, (double)distance(&got, &whole));
    }
}

int main(void)
{
    run_folder_new(root);
    test_training();
    test_resume();
    run_folder_remove(root);
    return tap_done();
}
