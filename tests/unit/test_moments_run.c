/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole runs with narrow moments, or with narrow masters: the same bits on any
 * number of ranks, under every strategy, with accumulation, averages and local SGD, and
 * after a resume on other ranks; loads between them and float32; a training that ends
 * where float32's does; and what is refused. The same of gradients that rest in fp8.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "tests/world/run_net.h"

/* Sizes that end inside a block, and lie across the parts of all ranks and across pieces
 * of 4096; before them one that ends with a block, where the next parameter goes on. */
enum { EVEN = 48, WIDE = 5147, INPUT = EVEN + WIDE, ALL = INPUT + 1 };
enum { SAMPLES = 8, STEPS = 6, STOP = 3 };

struct scene {
    const char *strategy;
    int world, nodes, accumulate;
    accel_optimizer_kind_t kind;
    /* masters: of a run in bf16; NULL: one in float32 */
    const char *moments, *masters;
    /* NULL: float32 */
    const char *gradients;
    /* sums of gradients have more bits than e4m3 */
    bool fine;
    /* the program halves all gradients, and limits them; 0: it does not */
    bool halved;
    float clip;
    bool ema, local;
    int from, until;
    /* folder whose weights are taken at the start, and whether they do not fit */
    const char *part, *match;
    char dir[128];
    float (*out)[ALL]; /* shared: weights, and their average */
};

static char root[64] = "/tmp/accel-moments-XXXXXX";

/* ---- a model whose gradients are sums without rounding --------------------------- */

struct wide {
    accel_tensor_t *even, *weight, *bias;
};

static accel_tensor_t *wide_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    const struct wide *w = accel_module_state(m);

    (void)n;
    return accel_add(accel_linear(in[0], w->even, NULL, ACCEL_ACT_NONE),
                     accel_linear(in[1], w->weight, w->bias, ACCEL_ACT_NONE));
}

static accel_tensor_t *mean_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    return accel_mean(accel_call(m->child, in, n), -1);
}

static accel_module_t *wide_new(accel_t *run)
{
    static const accel_class_t wide = { sizeof(wide), "Linear", wide_forward,
                                        sizeof(struct wide) };
    static const accel_class_t mean = { sizeof(mean), "Mean", mean_forward, 0 };
    accel_module_t *net = accel_module_new(run, &mean, NULL, NULL);
    accel_module_t *m = accel_module_new(run, &wide, net, "wide");
    struct wide *w = accel_module_state(m);

    w->even = accel_param(m, "even", 2, (const int64_t[]){ 1, EVEN },
                          (accel_init_t){ ACCEL_INIT_NORMAL, 0.5f });
    w->weight = accel_param(m, "weight", 2, (const int64_t[]){ 1, WIDE },
                            (accel_init_t){ ACCEL_INIT_NORMAL, 0.5f });
    w->bias = accel_param(m, "bias", 1, (const int64_t[]){ 1 },
                          (accel_init_t){ ACCEL_INIT_CONSTANT, 1 });
    return net;
}

/* Whole multiples of 2^-17: sizes differ by 2^9 within a block. Those of `draws` up to
 * 23 have sums of 4 bits. */
static float sample(int step, int number, int i, int draws)
{
    const int draw = (step * 131 + number * 37 + i * 101) % draws - draws / 2;

    return (float)draw * ldexpf(1, -8 - i % 10);
}

static accel_status_t push_wide(accel_t *run, accel_module_t *net, int step,
                                const struct scene *p, int micro, accel_error_t *err)
{
    const int batch = SAMPLES / p->world / p->accumulate;
    const int64_t dims[] = { batch, EVEN }, wide_dims[] = { batch, WIDE };
    const int draws = p->fine ? 251 : 23;
    const int first = (micro * p->world + accel_rank(run)) * batch;
    float even[SAMPLES * EVEN], x[SAMPLES * WIDE];
    accel_tensor_t *in[2];

    for (int i = 0; i < batch * EVEN; i++)
        even[i] = sample(step, first + i / EVEN, WIDE + i % EVEN, draws);
    for (int i = 0; i < batch * WIDE; i++)
        x[i] = sample(step, first + i / WIDE, i % WIDE, draws);
    in[0] = accel_input(run, ACCEL_F32, 2, dims, even, err);
    in[1] = accel_input(run, ACCEL_F32, 2, wide_dims, x, err);
    return accel_backward(run, accel_call(net, in, 2), err);
}

/* ---- a run ----------------------------------------------------------------------- */

struct rig {
    accel_t *run;
    accel_module_t *net;
    accel_optim_t *optim;
};

static accel_status_t rig_open(struct rig *k, const struct scene *p, accel_error_t *err)
{
    const accel_optimizer_t o = { sizeof(o), .kind = p->kind, .lr = 0.01f,
                                  .weight_decay = 0.1f };
    accel_loop_t loop = { sizeof(loop),
                          .steps = STEPS,
                          .batch = SAMPLES / p->world / p->accumulate,
                          .accumulate = p->accumulate,
                          .seed = 5,
                          .out_dir = p->dir };
    char config[192];
    accel_options_t options = { sizeof(options), .config_file = config, .threads = 1 };

    snprintf(config, sizeof(config), "%s.yaml", p->dir);
    if (accel_open(&k->run, &options, err))
        return err->code;
    k->net = wide_new(k->run);
    if (accel_model_add(k->run, "", k->net, err))
        return err->code;
    k->optim = accel_optim_add(k->run, "o", &k->net, 1, &o, err);
    if (!k->optim || (p->local && accel_local_sgd(k->run, 2, err)) ||
        (p->ema && accel_ema(k->run, NULL,
                             &(accel_ema_t){ sizeof(accel_ema_t), .decay = 0.5 }, err)))
        return err->code;
    return accel_prepare_all(k->run, &loop, err);
}

static accel_status_t read_wide(struct rig *k, float *to, accel_error_t *err)
{
    accel_status_t st = accel_param_read(k->run, "wide.even", -1, to, EVEN, err);

    ACCEL_TRY(st, accel_param_read(k->run, "wide.weight", -1, to + EVEN, WIDE, err));
    return st ? st : accel_param_read(k->run, "wide.bias", -1, to + INPUT, 1, err);
}

static void halve(void *user, const char *name, float *g, int64_t first, int64_t count)
{
    (void)user;
    (void)name;
    (void)first;
    for (int64_t i = 0; i < count; i++)
        g[i] *= 0.5f;
}

/* Weights of another life. */
static accel_status_t take_part(struct rig *k, const struct scene *p,
                                accel_error_t *err)
{
    const accel_part_t part = { sizeof(part), .match = p->match };
    char dir[192];

    snprintf(dir, sizeof(dir), "%s/%s/checkpoints", root, p->part);
    return accel_load_part(k->run, dir, &part, NULL, err);
}

static int rank_main(struct boot *b, void *arg)
{
    const struct scene *p = arg;
    accel_error_t err = { 0 };
    float mine[2][ALL] = { { 0 } };
    struct rig k = { 0 };
    accel_status_t st = rig_open(&k, p, &err);

    ACCEL_TRY(st, run_net_as_planned(k.run, &err));
    if (!st && accel_steps_done(k.run) != p->from)
        st = accel_fail(&err, A0003, "", "it begins at %lld",
                        (long long)accel_steps_done(k.run));
    if (!st && p->part)
        st = take_part(&k, p, &err);
    if (!st && p->halved)
        st = accel_on_gradient(k.run, NULL, halve, NULL, &err);
    for (int s = p->from; !st && !p->part && s < p->until; s++)
        for (int micro = 0; !st && micro < p->accumulate; micro++) {
            st = accel_batch_begin(k.run, &err);
            ACCEL_TRY(st, push_wide(k.run, k.net, s, p, micro, &err));
            if (!st && p->clip > 0)
                st = accel_clip_value(k.optim, p->clip, &err);
            ACCEL_TRY(st, accel_step(k.run, &err));
        }
    ACCEL_TRY(st, read_wide(&k, mine[0], &err));
    if (p->ema) {
        ACCEL_TRY(st, accel_ema_swap(k.run, 1, &err));
        ACCEL_TRY(st, read_wide(&k, mine[1], &err));
        ACCEL_TRY(st, accel_ema_swap(k.run, 0, &err));
    }
    if (!st && p->until < STEPS && !p->part)
        st = accel_save(k.run, &err);
    if (st)
        fprintf(stderr, "# rank %d: %s: %s\n", b->rank, err.where, err.text);
    if (!st && b->rank == 0)
        memcpy(p->out, mine, sizeof(mine));
    accel_close(k.run, NULL);
    return (int)st;
}

/* A life from step `from` to `until`; out[2]. The rest is the name of its folder. */
static void __attribute__((format(printf, 3, 4)))
train(struct scene p, float (*out)[ALL], const char *fmt, ...)
{
    char dir[48], more[192];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(dir, sizeof(dir), fmt, ap);
    va_end(ap);
    p.out = fork_shared(sizeof(*p.out) * 2);
    p.strategy = p.strategy ? p.strategy : "FULL_SHARD";
    p.until = p.until ? p.until : STEPS;
    p.accumulate = p.accumulate ? p.accumulate : 1;
    p.nodes = p.nodes ? p.nodes : 1;
    snprintf(p.dir, sizeof(p.dir), "%s/%s", root, dir);
    snprintf(more, sizeof(more),
             "mixed_precision: '%s'\naccel:\n  precision:\n    moments: %s\n"
             "    masters: %s\n    gradients: %s\n    reduce: float32\n",
             p.masters ? "bf16" : "no", p.moments ? p.moments : "8bit",
             p.masters ? p.masters : "float32", p.gradients ? p.gradients : "float32");
    run_net_config(p.dir, p.strategy, p.world, p.nodes, more);
    tap_is_int(open_world(p.world, p.nodes, rank_main, &p, HANG_S), 0,
               "%s: steps %d to %d on %d ranks, %s", dir, p.from, p.until, p.world,
               p.strategy);
    memcpy(out, p.out, sizeof(*p.out) * 2);
}

static float distance(const float *a, const float *b)
{
    float far = 0;

    for (int i = 0; i < ALL; i++)
        far = fmaxf(far, fabsf(a[i] - b[i]));
    return far;
}

/* ---- tests ----------------------------------------------------------------------- */

static float alone[2][ALL], wide[2][ALL], now[2][ALL];

/* A narrow form is what a run has of its weights, and all that it has: float32 with
 * those bits zero. */
static void check_narrow(const float *x, const char *form, const char *what)
{
    const uint32_t none = strcmp(form, "fp16") ? 0xffff : 0x1fff;
    int wide_ones = 0;

    for (int i = 0; i < ALL; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof(bits));
        wide_ones += (bits & none) != 0;
    }
    tap_is_int(wide_ones, 0, "%s are %s", what, form);
}

/* The same bits on any ranks, within `near` of those of float32 masters or, where the
 * run has these, of float32 moments. Keeps one rank's in `alone`, those in `wide`. */
static void test_ranks(struct scene p, const char *name, float near)
{
    static const struct scene scenes[] = {
        { .world = 2 },
        { .world = 4, .accumulate = 2 },
        { .world = 2, .strategy = "SHARD_GRAD_OP" },
        { .world = 2, .strategy = "NO_SHARD" },
        { .world = 1, .strategy = "NO_SHARD", .accumulate = 4 },
        { .world = 4, .nodes = 2, .strategy = "HYBRID_SHARD" },
    };

    p.world = 1;
    train(p, alone, "%s", name);
    if (p.masters)
        check_narrow(alone[0], p.masters, "masters");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(scenes); i += TAP_SANITIZED ? 3 : 1) {
        struct scene more = p;

        more.world = scenes[i].world;
        more.nodes = scenes[i].nodes;
        more.strategy = scenes[i].strategy;
        more.accumulate = scenes[i].accumulate;
        train(more, now, "%s_%zu", name, i);
        tap_ok(!memcmp(now, alone, sizeof(now)), "weights and averages of one rank");
    }
    if (p.masters)
        p.masters = "float32";
    else
        p.moments = "float32";
    train(p, wide, "%s_wide", name);
    tap_ok(memcmp(wide[0], alone[0], sizeof(wide[0])) != 0 &&
               distance(wide[0], alone[0]) < near,
           "near those of float32, and not the same: %g apart",
           (double)distance(wide[0], alone[0]));
}

/* Saved by some ranks, taken up by others. HYBRID: the copies share what they save, and
 * a quarter of the unit would end inside a block. */
static void test_resume(const char *moments)
{
    static const struct scene saves[] = {
        { .world = 2 },
        { .world = 4, .nodes = 2, .strategy = "HYBRID_SHARD" },
        { .world = 2, .strategy = "NO_SHARD" },
        { .world = 4, .nodes = 4, .strategy = "HYBRID_SHARD" },
    };
    static const int worlds[] = { 4, 1, 2, 1 };

    train((struct scene){ .world = 1, .moments = moments }, alone, "whole_%s", moments);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(saves); i++) {
        struct scene p = saves[i];

        p.until = STOP;
        p.moments = moments;
        train(p, now, "resume%d_%s", (int)i, moments);
        train((struct scene){ .world = worlds[i], .from = STOP, .moments = moments },
              now, "resume%d_%s", (int)i, moments);
        tap_ok(!memcmp(now[0], alone[0], sizeof(now[0])), "the bits of one life");
    }
}

/* Between two forms: a run goes on, near what it would have been, which `alone` has;
 * the rounding does not depend on the ranks. */
static void test_forms(const char *theirs, const char *ours)
{
    static float other[2][ALL];

    for (int w = 1; w <= 2; w++) {
        memcpy(other, now, sizeof(other));
        train((struct scene){ .world = 2, .until = STOP, .moments = theirs }, now,
              "%s_to_%s%d", theirs, ours, w);
        train((struct scene){ .world = w, .from = STOP, .moments = ours }, now,
              "%s_to_%s%d", theirs, ours, w);
    }
    tap_ok(!memcmp(now[0], other[0], sizeof(now[0])) &&
               distance(now[0], alone[0]) < 0.015f,
           "%s to %s: the same on one rank and two, %g apart", theirs, ours,
           (double)distance(now[0], alone[0]));
}

/* Each rank has gradients of its own; means of weights every second step, and of
 * moments where they are saved. */
static void test_local(const char *moments)
{
    const struct scene p = {
        .world = 2, .strategy = "NO_SHARD", .local = true, .moments = moments
    };
    struct scene first = p, rest = p, plain = p;
    static float once[2][ALL];

    train(p, once, "local_%s", moments);
    plain.moments = "float32";
    train(plain, now, "local_float_%s", moments);
    tap_ok(distance(now[0], once[0]) < 0.01f, "local SGD is near that of float32: %g",
           (double)distance(now[0], once[0]));
    first.until = 4;
    rest.from = 4;
    train(first, now, "local_life_%s", moments);
    train(rest, now, "local_life_%s", moments);
    tap_ok(distance(now[0], once[0]) < 0.01f, "and goes on: %g apart",
           (double)distance(now[0], once[0]));
}

/* To the nearest there are other bits than stochastically, which `alone` has. */
static void test_nearest(const char *moments)
{
    const struct scene p = { .world = 1, .moments = moments, .masters = "none" };

    train(p, now, "none_%s", moments);
    check_narrow(now[0], "bf16", "weights without masters");
    tap_ok(memcmp(now[0], alone[0], sizeof(now[0])) != 0, "rounded otherwise");
}

/* `alone` has the weights of one life. */
static void test_masters_resume(const char *form)
{
    static float once[2][ALL];
    struct scene p = { .world = 2, .moments = "8bit", .masters = form, .until = STOP };

    train(p, now, "%s_life", form);
    p = (struct scene){ .world = 4, .moments = "8bit", .masters = form, .from = STOP };
    train(p, now, "%s_life", form);
    tap_ok(!memcmp(now[0], alone[0], sizeof(now[0])), "the bits of one life");
    /* an eighth would end inside a block of 32 */
    p = (struct scene){ .world = 1, .moments = "float32", .masters = form };
    train(p, once, "%s_copies", form);
    p = (struct scene){ .world = 8,
                        .nodes = 8,
                        .strategy = "HYBRID_SHARD",
                        .moments = "float32",
                        .masters = form,
                        .until = STOP };
    train(p, now, "%s_shared", form);
    p = (struct scene){
        .world = 1, .moments = "float32", .masters = form, .from = STOP
    };
    train(p, now, "%s_shared", form);
    tap_ok(!memcmp(now[0], once[0], sizeof(now[0])), "also where copies share a part");
}

/* One file, and flat shards, of copies that share what they save: taken up by as many
 * ranks, with 8-bit moments, to the bits of one life. Averages go with float32. */
static void test_dicts(const char *masters, const char *moments)
{
    static const char *const dicts[] = { "FULL_STATE_DICT", "LOCAL_STATE_DICT" };
    static float once[2][ALL];
    const struct scene life = { .world = 4,
                                .nodes = 2,
                                .strategy = "HYBRID_SHARD",
                                .masters = masters,
                                .moments = moments,
                                .ema = !masters };

    train(life, once, "dicts_%s", masters ? masters : "ema");
    for (int i = 0; i < 2; i++) {
        struct scene p = life;

        setenv("ACCEL_FSDP_STATE_DICT_TYPE", dicts[i], 1);
        p.until = STOP;
        train(p, now, "%s_%s", dicts[i], masters ? masters : "ema");
        p = life;
        p.from = STOP;
        train(p, now, "%s_%s", dicts[i], masters ? masters : "ema");
        unsetenv("ACCEL_FSDP_STATE_DICT_TYPE");
        tap_ok(!memcmp(now, once, sizeof(now)), "%s: the bits of one life", dicts[i]);
    }
}

/* From a checkpoint of `theirs` to `ours`, whose moments have 8 bits: the same on one
 * rank and two, and near `alone`. */
static void test_masters_forms(const char *theirs, const char *ours)
{
    for (int w = 1; w <= 2; w++) {
        static float other[2][ALL];

        /* where it begins with float32 both forms change at once */
        memcpy(other, now, sizeof(other));
        train((struct scene){ .world = 2,
                              .until = STOP,
                              .moments = strcmp(theirs, "float32") ? "8bit" : "float32",
                              .masters = theirs },
              now, "%s_to_%s%d", theirs, ours, w);
        train(
            (struct scene){
                .world = w, .from = STOP, .moments = "8bit", .masters = ours },
            now, "%s_to_%s%d", theirs, ours, w);
        check_narrow(now[0], ours, "masters");
        tap_ok(distance(now[0], alone[0]) < 0.03f, "near: %g apart",
               (double)distance(now[0], alone[0]));
        tap_ok(w == 1 || !memcmp(now[0], other[0], sizeof(now[0])),
               "the same on one rank and two");
    }
}

static void test_masters_wider(const char *form)
{
    struct scene p = { .world = 1, .moments = "8bit", .masters = form, .until = STOP };

    train(p, now, "%s_wider", form);
    p = (struct scene){
        .world = 2, .moments = "float32", .masters = "float32", .from = STOP
    };
    train(p, now, "%s_wider", form);
    tap_ok(distance(now[0], wide[0]) < 0.03f, "to float32: %g apart",
           (double)distance(now[0], wide[0]));
}

static void test_masters_local(const char *form)
{
    struct scene p = {
        .world = 2, .strategy = "NO_SHARD", .local = true, .moments = "float32"
    };
    static float once[2][ALL];

    p.masters = "float32";
    train(p, once, "%s_local_wide", form);
    p.masters = form;
    train(p, now, "%s_local", form);
    check_narrow(now[0], form, "means of ranks");
    tap_ok(distance(now[0], once[0]) < 0.03f, "near those of float32: %g apart",
           (double)distance(now[0], once[0]));
}

/* How many of n weights are farther apart than masters of that form round. Scales of
 * float16 go by the largest of a block. */
static int far_apart(const float *a, const float *b, int n, const char *form)
{
    float largest = 0;
    int far = 0;

    for (int i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(b[i]));
    for (int i = 0; i < n; i++)
        far += fabsf(a[i] - b[i]) > (!strcmp(form, "bf16")   ? fabsf(b[i]) / 256
                                     : !strcmp(form, "fp16") ? largest / 2048
                                                             : 0);
    return far;
}

/* accel_load_part takes weights of any form; what it does not take stays. */
static void test_masters_part(void)
{
    static const char *const forms[] = { "float32", "bf16", "fp16" };
    static float saved[2][ALL], first[3][2][ALL];

    for (int from = 0; from < 3; from++) {
        struct scene p = { .world = 2, .masters = forms[from], .until = STOP };
        char life[32];

        snprintf(life, sizeof(life), "part_%s", forms[from]);
        train(p, saved, "%s", life);
        p.part = life;
        p.world = 4;
        for (int to = 0; to < 3; to++) {
            const char *form = to == from || to == 0 ? "float32" : forms[to];

            p.masters = forms[to];
            p.match = "nothing";
            if (from == 0)
                train(p, first[to], "part_none_%s", forms[to]);
            if (from == to && to < 2)
                continue;
            p.match = NULL;
            train(p, now, "%s_%s", life, forms[to]);
            tap_is_int(far_apart(now[0], saved[0], ALL, form), 0,
                       "%s of a part are taken as %s", forms[from], forms[to]);
            p.match = "wide.even";
            train(p, now, "%s_%s_some", life, forms[to]);
            tap_ok(!far_apart(now[0], saved[0], EVEN, form) &&
                       !memcmp(now[0] + EVEN, first[to][0] + EVEN,
                               (ALL - EVEN) * sizeof(float)) &&
                       memcmp(now[0], first[to][0], EVEN * sizeof(float)) != 0,
                   "of %s as %s some are taken, and the others stay", forms[from],
                   forms[to]);
        }
    }
}

/* All that holds of one form; `other` is another narrow one. */
static void test_form(const char *form, const char *other)
{
    for (int i = 0; i < 2; i++) {
        const char *moments = i ? "8bit" : "float32";
        char name[32];

        snprintf(name, sizeof(name), "%s_%s", form, moments);
        test_ranks((struct scene){ .masters = form, .moments = moments }, name,
                   strcmp(form, "fp16") ? 0.03f : 0.01f);
    }
    test_masters_resume(form);
    test_masters_forms("float32", form);
    test_masters_forms(other, form);
    test_masters_wider(form);
    test_masters_local(form);
}

/* ---- gradients ------------------------------------------------------------------- */

/* The same bits on any ranks, whose sums are exact here; near float32 also where
 * earlier micro-batches or copies have been rounded before the sum is complete. */
static void test_gradients(struct scene p, const char *name)
{
    static const struct scene exact[] = {
        { .world = 2 },
        { .world = 4 },
        { .world = 2, .strategy = "SHARD_GRAD_OP" },
        { .world = 1, .strategy = "NO_SHARD" },
    };
    static const struct scene rounded[] = {
        { .world = 2, .accumulate = 2 },
        { .world = 1, .accumulate = 4 },
        { .world = 4, .nodes = 2, .strategy = "HYBRID_SHARD" },
    };
    struct scene one;

    p.fine = true;
    one = p;
    one.world = 1;
    train(one, wide, "wide_%s", name);
    one.gradients = "fp8";
    train(one, alone, "alone_%s", name);
    tap_ok(memcmp(wide[0], alone[0], sizeof(wide[0])) != 0 &&
               distance(wide[0], alone[0]) < 0.03f,
           "%s: not float32, but near: %g apart", name,
           (double)distance(wide[0], alone[0]));
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(exact) + ACCEL_ARRAY_SIZE(rounded); i++) {
        const bool same = i < ACCEL_ARRAY_SIZE(exact);
        const struct scene *on =
            same ? &exact[i] : &rounded[i - ACCEL_ARRAY_SIZE(exact)];
        struct scene more = p;

        more.gradients = "fp8";
        more.world = on->world;
        more.nodes = on->nodes;
        more.strategy = on->strategy;
        more.accumulate = on->accumulate;
        train(more, now, "%s_%d", name, (int)i);
        tap_ok(same ? !memcmp(now[0], alone[0], sizeof(now[0]))
                    : distance(now[0], wide[0]) < 0.05f,
               "%s: %g apart", same ? "the bits of one rank" : "near",
               (double)distance(now[0], same ? alone[0] : wide[0]));
    }
}

/* Micro-batches add up at rest, and end near what one has. */
static void test_accumulated(void)
{
    const struct scene p = {
        .world = 1, .moments = "float32", .gradients = "fp8", .fine = true
    };
    struct scene more = p;
    static float four[2][ALL];

    train(p, now, "at_once");
    more.accumulate = 4;
    train(more, four, "of_four");
    tap_ok(distance(now[0], four[0]) < 0.05f, "four micro-batches: %g apart",
           (double)distance(now[0], four[0]));
    more.world = 2;
    train(more, now, "of_four_on_two");
    tap_ok(!memcmp(now[0], four[0], sizeof(now[0])), "the same on two ranks");
}

int main(void)
{
    run_folder_new(root);
    test_ranks((struct scene){ .moments = "8bit", .kind = ACCEL_LION, .ema = true },
               "lion_8bit", 0.05f);
    for (int i = TAP_SANITIZED; i < 2; i++) {
        const char *moments = i ? "fp8" : "8bit";

        test_ranks((struct scene){ .moments = moments, .ema = true },
                   i ? "moments_fp8" : "moments_8bit", 0.015f);
        if (TAP_SANITIZED)
            continue;
        test_resume(moments);
        test_forms("float32", moments);
        test_forms(moments, "float32");
    }
    test_local("fp8");
    test_forms("8bit", "fp8");
    test_form("fp16", "bf16");
    if (!TAP_SANITIZED) {
        test_forms("fp8", "8bit");
        test_form("bf16", "fp16");
    }
    test_nearest("8bit");
    test_masters_part();
    test_dicts(NULL, "8bit");
    test_dicts("fp16", "fp8");
    if (!TAP_SANITIZED)
        test_gradients((struct scene){ .moments = "float32" }, "fp8");
    test_gradients((struct scene){ .moments = "8bit", .masters = "fp16" }, "fp8_fp16");
    test_gradients((struct scene){ .moments = "fp8", .masters = "fp16" }, "fp8_fp8");
    test_gradients(
        (struct scene){ .moments = "float32", .halved = true, .clip = 1e-3f },
        "fp8_changed");
    test_accumulated();
    run_folder_remove(root);
    return tap_done();
}
