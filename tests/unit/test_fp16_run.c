/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole runs in float16: a model whose gradients vanish without a loss scale; overflows
 * injected on one rank, which all ranks skip; two optimizers, of which one overflows;
 * gradients that a hook or clipping makes finite; the scale through checkpoints.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "tests/world/run_net.h"

enum { STEPS = 9, STOP = 5, SEED = 5 };

#define RATE 0.05f

/* By iteration: of STEPS steps one may be tried twice. */
struct outcome {
    struct net_values values;
    double loss[STEPS + 1], scale[STEPS + 1], norm[STEPS + 1], lr[STEPS + 1];
    int updated[STEPS + 1], skipped[STEPS + 1], second[STEPS + 1];
    int64_t step[STEPS + 1];
    int64_t optim_steps, steps_done;
    bool more;
};

struct scene {
    const char *strategy;
    int world;
    /* "fp16" unless it says more */
    const char *precision;
    accel_scaler_t rule;
    /* the loss is smaller by 2^-26, the rate larger */
    bool small;
    /* with it: its own weight has an optimizer, too, and what overflows */
    bool second;
    /* the last rank has a gradient that is not finite in this iteration; 0: none */
    int infinite;
    /* what the program does to gradients: a hook that empties them, clipping by value */
    bool hook, clamp;
    /* iterations, the last with a save */
    int until, save;
    char dir[128];
    struct outcome *out; /* shared */
};

static char root[64] = "/tmp/accel-fp16-XXXXXX";

/* ---- the model ------------------------------------------------------------------- */

static accel_tensor_t *small_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    accel_tensor_t **weight = accel_module_state(m);

    (void)n;
    return accel_linear(in[0], *weight, NULL, ACCEL_ACT_NONE);
}

/* x times 2^-13: it costs no digits, but a gradient that passes it is that much
 * smaller. */
static accel_module_t *small_new(accel_t *run)
{
    static const accel_class_t cls = { sizeof(cls), "Small", small_forward,
                                       sizeof(accel_tensor_t *) };
    accel_module_t *m = accel_module_new(run, &cls, NULL, NULL);
    accel_tensor_t **weight = accel_module_state(m);

    *weight = accel_param(m, "weight", 2, (const int64_t[]){ 1, 1 },
                          (accel_init_t){ ACCEL_INIT_CONSTANT, 0x1p-13f });
    return m;
}

/* As run_net_push, with the loss times 2^-26. */
static accel_status_t push_small(accel_t *run, accel_module_t *net,
                                 accel_module_t *small, int step, accel_error_t *err)
{
    const int batch = NET_SAMPLES / accel_world_size(run);
    const int64_t dims[] = { batch, NET_IN }, ones[] = { batch, 1 };
    float x[NET_SAMPLES * NET_IN], want[NET_SAMPLES];
    accel_tensor_t *in, *out;

    for (int i = 0; i < batch * NET_IN; i++)
        x[i] = run_net_sample(step % 2, accel_rank(run), batch, i);
    for (int i = 0; i < batch; i++)
        want[i] = 0x1p-13f;
    in = accel_input(run, ACCEL_F32, 2, dims, x, err);
    out = accel_call(net, &in, 1);
    out = accel_call(small, &out, 1);
    return accel_backward(
        run, accel_mse(out, accel_input(run, ACCEL_F32, 2, ones, want, err)), err);
}

static void empty(void *user, const char *name, float *gradient, int64_t first,
                  int64_t count)
{
    (void)user;
    (void)name;
    (void)first;
    memset(gradient, 0, (size_t)count * sizeof(*gradient));
}

/* ---- a run ----------------------------------------------------------------------- */

struct rig {
    accel_t *run;
    accel_module_t *net, *small;
    accel_optim_t *optim;
};

static accel_status_t rig_open(struct rig *k, const struct scene *p, accel_error_t *err)
{
    const accel_optimizer_t sgd = { sizeof(sgd), .kind = ACCEL_SGD,
                                    .lr = p->small ? RATE * 0x1p26f : RATE,
                                    .momentum = 0.5f };
    const accel_optimizer_t slow = { sizeof(slow), .kind = ACCEL_SGD, .lr = 1e-9f };
    const accel_schedule_t linear = { sizeof(linear), .kind = ACCEL_SCHEDULE_LINEAR,
                                      .steps = p->until > STEPS ? STEPS : 40 };
    accel_loop_t loop = { sizeof(loop), .steps = STEPS, .batch = NET_SAMPLES / p->world,
                          .seed = SEED, .out_dir = p->dir };
    accel_scaler_t rule = p->rule;

    rule.bytes = sizeof(rule);
    if (run_net_run(&k->run, p->dir, NULL, NULL, err) ||
        accel_scaler(k->run, &rule, err) ||
        (p->hook && accel_on_gradient(k->run, NULL, empty, NULL, err)))
        return err->code;
    k->net = run_net_new(k->run);
    k->small = p->small ? small_new(k->run) : NULL;
    if (accel_model_add(k->run, p->small ? "net" : "", k->net, err) ||
        (p->small && accel_model_add(k->run, "small", k->small, err)))
        return err->code;
    k->optim = accel_optim_add(k->run, "o", &k->net, 1, &sgd, err);
    if (p->second && !accel_optim_add(k->run, "second", &k->small, 1, &slow, err))
        return err->code;
    if (!k->optim || accel_schedule_add(k->optim, &linear, err))
        return err->code;
    return accel_prepare_all(k->run, &loop, err);
}

/* A second backward, in which one gradient of the last rank overflows before it is
 * summed; unit 0 has none. Collective. */
static accel_status_t poison(accel_t *run, int unit, accel_error_t *err)
{
    const struct residency *r = &run->graph.residency;
    float *g = NULL;
    accel_status_t st = shard_backward_begin(run->shard, 1, err);

    if (!st)
        st = r->grad(r->user, unit, &g, err);
    if (!st && accel_rank(run) == accel_world_size(run) - 1)
        g[0] = INFINITY;
    return st ? st : shard_backward_end(run->shard, err);
}

static accel_status_t train_step(struct rig *k, const struct scene *p, int step,
                                 accel_error_t *err)
{
    accel_status_t st = accel_batch_begin(k->run, err);

    ACCEL_TRY(st, p->small ? push_small(k->run, k->net, k->small, step, err)
                           : run_net_push(k->run, k->net, step, 1, err));
    if (!st && step && step == p->infinite)
        st = poison(k->run, p->second ? k->run->units.count - 1 : 1, err);
    if (!st && p->clamp)
        st = accel_clip_value(k->optim, 0.5f, err);
    return st ? st : accel_step(k->run, err);
}

static accel_status_t note(struct rig *k, struct outcome *o, int step,
                           accel_error_t *err)
{
    accel_step_info_t info = { .bytes = sizeof(info) };
    accel_status_t st = accel_last_step(k->run, &info, err);

    if (st || accel_rank(k->run) != 0)
        return st;
    o->loss[step] = info.loss;
    o->norm[step] = info.norm[0];
    o->scale[step] = info.loss_scale;
    o->updated[step] = info.updated[0];
    o->skipped[step] = info.skipped[0];
    o->lr[step] = info.lr[0];
    o->step[step] = info.step;
    o->second[step] = info.skipped[1];
    return st;
}

/* The first iteration of a life: the one that was skipped is none of the steps. */
static int first_iteration(const accel_t *run, const struct scene *p)
{
    const int done = (int)accel_steps_done(run);

    return done + (p->infinite && !p->second && done > p->infinite);
}

static int rank_main(struct boot *b, void *arg)
{
    const struct scene *p = arg;
    accel_error_t err = { 0 };
    struct net_values mine = { 0 };
    struct rig k = { 0 };
    accel_status_t st = rig_open(&k, p, &err);

    for (int s = first_iteration(k.run, p); !st && s < p->until; s++) {
        st = train_step(&k, p, s, &err);
        ACCEL_TRY(st, note(&k, p->out, s, &err));
        if (!st && s + 1 == p->save)
            st = accel_save(k.run, &err);
    }
    if (!st && !p->small)
        st = run_net_read(k.run, &mine, &err);
    if (st)
        fprintf(stderr, "# rank %d: %s: %s\n", b->rank, err.where, err.text);
    if (!st && b->rank == 0) {
        p->out->values = mine;
        p->out->optim_steps = accel_optim_steps(k.optim);
        p->out->steps_done = accel_steps_done(k.run);
        p->out->more = accel_more(k.run);
    }
    accel_close(k.run, NULL);
    return (int)st;
}

static struct outcome train(struct scene p, const char *dir, int status)
{
    char more[160];

    snprintf(p.dir, sizeof(p.dir), "%s/%s", root, dir);
    snprintf(more, sizeof(more), "mixed_precision: %s\n",
             p.precision ? p.precision : "fp16");
    run_net_config(p.dir, p.strategy ? p.strategy : "FULL_SHARD", p.world, 1, more);
    p.until = p.until ? p.until : STEPS;
    p.out = fork_shared(sizeof(*p.out));
    tap_is_int(open_world(p.world, 1, rank_main, &p, HANG_S), status,
               "%s: %d ranks, %s", dir, p.world,
               p.strategy ? p.strategy : "FULL_SHARD");
    return *p.out;
}

/* ---- tests ----------------------------------------------------------------------- */

static void test_vanishing(int world)
{
    struct scene p = { .world = world, .small = true };
    struct outcome plain, scaled, wide;
    char dir[3][32];
    double far = 0;

    for (int i = 0; i < 3; i++)
        snprintf(dir[i], sizeof(dir[i]), "vanish%d-%d", world, i);
    p.rule.disabled = 1;
    plain = train(p, dir[0], 0);
    p.rule.disabled = 0;
    scaled = train(p, dir[1], 0);
    p.precision = "'no'";
    wide = train(p, dir[2], 0);
    tap_ok(plain.loss[STEPS - 1] == plain.loss[STEPS % 2 ? 0 : 1] &&
               plain.norm[0] < 1e-9,
           "%d ranks: without a loss scale nothing is learnt: %g, %g", world,
           plain.loss[0], plain.loss[STEPS - 1]);
    tap_ok(scaled.loss[STEPS - 1] < 0.7 * scaled.loss[STEPS % 2 ? 0 : 1],
           "with it the loss falls: %g, %g", scaled.loss[0], scaled.loss[STEPS - 1]);
    for (int i = 0; i < STEPS; i++)
        far = fmax(far, fabs(scaled.loss[i] / wide.loss[i] - 1));
    tap_ok(far < 5e-3, "as in float32: %.2g apart", far);
    tap_ok(plain.scale[0] == 1 && wide.scale[0] == 1 && scaled.scale[0] == 65536,
           "and accel_last_step says so");
}

/* Step 3 is skipped on all ranks; before and after it the runs are those of one rank,
 * but for rounding. With 65536 the gradients of a few samples would overflow by
 * themselves. */
static void test_overflow(void)
{
    static const char *const strategies[] = { "FULL_SHARD", "SHARD_GRAD_OP",
                                              "NO_SHARD" };
    struct outcome alone = { 0 };

    for (int i = 0; i < 7; i++) {
        struct scene p = { .world = i ? 1 << (1 + i % 2) : 1,
                           .strategy = strategies[i / 2 % 3],
                           .infinite = 3,
                           .rule = { .init_scale = 1024 } };
        struct outcome o;
        char dir[32];
        int wrong = 0;

        snprintf(dir, sizeof(dir), "over%d", i);
        o = train(p, dir, 0);
        alone = i ? alone : o;
        for (int s = 0; s < STEPS; s++)
            wrong += o.skipped[s] != (s == 3) || o.updated[s] != (s != 3) ||
                     o.scale[s] != (s < 3 ? 1024 : 512) ||
                     isfinite(o.norm[s]) != (s != 3);
        tap_is_int(wrong, 0, "step 3 alone is skipped, and the scale halved");
        tap_is_int(o.optim_steps, STEPS - 1, "nor does the optimizer count it");
        tap_ok(run_net_distance(&o.values, &alone.values) < 2e-3,
               "values as on one rank: %g apart",
               (double)run_net_distance(&o.values, &alone.values));
    }
}

/* As many records as iterations, and the last checkpoint is that of the last step. */
static bool files_whole(const char *dir, int records)
{
    char command[512];

    snprintf(command, sizeof(command),
             "test \"$(grep -c '\"step\":' %s/%s/log.jsonl)\" = %d && "
             "test \"$(grep -c '\"step\":4,' %s/%s/log.jsonl)\" = 2 && "
             "test -d %s/%s/checkpoints/step_%08d",
             root, dir, records, root, dir, root, dir, STEPS);
    return system(command) == 0;
}

/* The run does as many optimizer steps as it was asked for, and its schedule ends. */
static void test_counts(void)
{
    struct scene p = {
        .world = 2, .infinite = 3, .until = STEPS + 1, .rule = { .init_scale = 1024 }
    };
    struct outcome o = train(p, "counts", 0), two;
    int wrong = 0;

    for (int s = 0; s <= STEPS; s++)
        wrong += o.step[s] != s + (s < 4) || o.skipped[s] != (s == 3) ||
                 fabs(o.lr[s] / RATE - (double)(STEPS + (s > 3) - s) / STEPS) > 1e-6;
    tap_is_int(wrong, 0,
               "a step that is skipped is tried again: its number, and its rate");
    tap_ok(o.optim_steps == STEPS && o.steps_done == STEPS && !o.more,
           "%d steps are %lld of the optimizer", STEPS, (long long)o.optim_steps);
    tap_ok(files_whole("counts", STEPS + 1), "and the log and the checkpoint say so");
    p.until = STEPS;
    p.small = p.second = true;
    two = train(p, "counts2", 0);
    tap_ok(two.steps_done == STEPS && two.step[3] == 4 && two.step[4] == 5 &&
               two.second[3] && !two.more,
           "a step of which one optimizer is skipped counts");
}

/* bfloat16 and a disabled scale keep the rule that such gradients end the run. */
static void test_diverged(void)
{
    struct scene p = { .world = 2, .infinite = 3, .precision = "bf16" };

    train(p, "bf16", ACCEL_EDIVERGED);
    p.precision = NULL;
    p.rule.disabled = 1;
    train(p, "disabled", ACCEL_EDIVERGED);
    p.rule = (accel_scaler_t){ sizeof(accel_scaler_t), .init_scale = 0x1p-112 };
    train(p, "spent", ACCEL_EDIVERGED);
}

/* An overflow is one whatever the program makes of it. */
static void test_made_finite(void)
{
    struct scene p = {
        .world = 2, .infinite = 3, .clamp = true, .rule = { .init_scale = 1024 }
    };
    struct outcome o = train(p, "clamp", 0);

    tap_ok(o.skipped[3] == 1 && o.updated[3] == 0 && o.scale[3] == 512,
           "clipping by value hides no overflow");
    p.clamp = false;
    p.hook = true;
    o = train(p, "hook", 0);
    tap_ok(o.skipped[3] == 1 && o.updated[3] == 0 && o.scale[3] == 512,
           "nor does a hook");
}

/* One scale for both, which moves once; only the step that overflows is skipped. */
static void test_second(void)
{
    const struct scene p = { .world = 2,
                             .small = true,
                             .second = true,
                             .infinite = 3,
                             .rule = { .init_scale = 1024 } };
    struct outcome o = train(p, "second", 0);
    int wrong = 0;

    for (int s = 0; s < STEPS; s++)
        wrong += o.skipped[s] || !o.updated[s] || o.second[s] != (s == 3) ||
                 o.scale[s] != (s < 3 ? 1024 : 512);
    tap_is_int(wrong, 0, "of two optimizers only that one is skipped");
}

static int same_scales(const struct outcome *a, const struct outcome *b, int from)
{
    return memcmp(a->scale + from, b->scale + from,
                  (size_t)(STEPS - from) * sizeof(*a->scale)) == 0;
}

/* Saved between two moves of the scale; on the same number of ranks all goes on with
 * the same bits, on another the scale does. */
static void test_resume(void)
{
    struct scene p = { .world = 2,
                       .infinite = 3,
                       .rule = { .init_scale = 1024, .growth_interval = 3 } };
    struct outcome whole = train(p, "whole", 0), o;

    for (int world = 2; world <= 4; world += 2) {
        const char *dir = world == 2 ? "same" : "other";

        p.world = 2;
        p.until = p.save = STOP;
        train(p, dir, 0);
        p.world = world;
        p.until = p.save = 0;
        o = train(p, dir, 0);
        tap_ok(same_scales(&whole, &o, STOP), "%d ranks: the scale goes on", world);
        tap_is_int(o.optim_steps, STEPS - 1, "and the optimizer's steps");
        if (world == 2)
            tap_ok(memcmp(&whole.values, &o.values, sizeof(o.values)) == 0,
                   "same bits");
    }
    tap_ok(whole.scale[2] == 2048 && whole.scale[3] == 1024 && whole.scale[5] == 1024 &&
               whole.scale[6] == 2048,
           "it grows after 3 clean steps");
}

static void first_gradient(void *user, const char *name, float *gradient, int64_t first,
                           int64_t count)
{
    (void)name;
    (void)first;
    (void)count;
    if (isnan(*(float *)user))
        *(float *)user = gradient[0];
}

/* Completes the gradients, and returns the first. */
static float completed(struct rig *k)
{
    accel_error_t err = { 0 };
    float g = NAN;

    if (shard_reduce(k->run->shard, 0, &err) ||
        shard_each_gradient(k->run->shard, 0, first_gradient, &g, &err))
        tap_diag("%s", err.text);
    return g;
}

/* Adds 4096 to the gradient of the first parameter, which has the loss scale. */
static bool add_gradient(struct rig *k)
{
    const struct residency *r = &k->run->graph.residency;
    accel_error_t err = { 0 };
    float *g = NULL;

    if (shard_backward_begin(k->run->shard, 1, &err) || r->grad(r->user, 1, &g, &err))
        return false;
    g[0] += 4096;
    return shard_backward_end(k->run->shard, &err) == ACCEL_OK;
}

/* Gradients that wait while the scale moves, before and after they are complete. */
static void test_waiting(void)
{
    struct scene p = { .world = 1, .rule = { .init_scale = 1024 } };
    accel_error_t err = { 0 };
    struct rig k = { 0 };

    snprintf(p.dir, sizeof(p.dir), "%s/waiting", root);
    run_net_config(p.dir, "NO_SHARD", 1, 1, "mixed_precision: fp16\n");
    tap_ok(rig_open(&k, &p, &err) == ACCEL_OK && add_gradient(&k), "a run %s",
           err.text);
    shard_loss_scale(k.run->shard, 2048);
    tap_is_close(completed(&k), 4, 0, "a gradient of 4 before the scale moved");
    shard_loss_scale(k.run->shard, 512);
    tap_ok(add_gradient(&k), "a second backward");
    tap_is_close(completed(&k), 4 + 8, 0, "adds 8 to it at another scale");
    accel_close(k.run, NULL);
}

static void test_refused(void)
{
    const struct scene p = {
        .world = 1,
        .precision = "fp16\naccel: {precision: {loss_scale_growth_factor: 1}}"
    };
    accel_scaler_t wrong = { sizeof(wrong), .backoff_factor = 2 };
    accel_options_t o = { sizeof(o), .threads = 1 };
    accel_error_t err = { 0 };
    accel_t *run = NULL;

    train(p, "config", ACCEL_EINVAL);
    tap_ok(accel_open(&run, &o, &err) == ACCEL_OK &&
               accel_scaler(run, &wrong, &err) == ACCEL_EINVAL &&
               accel_scaler(run, NULL, &err) == ACCEL_EINVAL &&
               accel_scaler(NULL, &wrong, &err) == ACCEL_EINVAL,
           "a setting out of range, no rule, no run: %s", err.text);
    tap_ok(accel_loss_scale(run) == 1 && accel_loss_scale(NULL) == 1,
           "no scale before the run is prepared");
    accel_close(run, NULL);
}

int main(void)
{
    run_folder_new(root);
    for (int world = 1 + TAP_SANITIZED; world <= 4; world *= TAP_SANITIZED ? 4 : 2)
        test_vanishing(world);
    test_overflow();
    test_counts();
    test_diverged();
    test_made_finite();
    test_second();
    test_resume();
    test_waiting();
    test_refused();
    run_folder_remove(root);
    return tap_done();
}
