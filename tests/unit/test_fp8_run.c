/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole runs in fp8: a small Llama on 1, 2 and 4 ranks, beside bf16; activation
 * checkpointing; products that are overridden; evaluations; scales through checkpoints,
 * into bf16 and back, and damaged ones; what is chosen by name.
 */
#include <float.h>
#include <ftw.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "tests/world/run_net.h"
#include "tests/world/run_tokens.h"

enum { STEPS = 9, STOP = 5, SEED = 5, SAMPLES = 8, LENGTH = 7 };
enum { LINEARS = 13, STATE = LINEARS * FP8_TENSORS * (1 + LENGTH) };

struct outcome {
    double loss[STEPS], inside, outside; /* evaluations */
    float state[STATE], inverse[LINEARS * FP8_TENSORS];
    float seen[LINEARS * FP8_TENSORS]; /* by the first step */
    int linears, candidates, warnings;
    enum fp8_blocks blocks;
    size_t peak;
    /* bytes that all ranks have read from shard files */
    int64_t read;
    /* the damage of a save is one that no save shows */
    bool good;
    /* the last warning of rank 0, or the error; a warning of damaged scales */
    char said[1024], damaged[1024];
};

struct scene {
    const char *strategy;
    int world;
    /* further lines of fp8_config, and of accel.precision */
    const char *keys, *modules;
    /* in place of delayed; "": not given */
    const char *recipe;
    /* in place of fp8 */
    const char *precision;
    bool recompute;
    /* an evaluation in the middle of the run; before each step a forward for nothing */
    bool evaluate;
    int until, save;
    /* of histories; 0: LENGTH */
    int length;
    /* damages the scales before the save */
    void (*damage)(accel_t *run);
    char dir[128];
    struct outcome *out; /* shared */
};

static char root[64] = "/tmp/accel-fp8.XXXXXX";

/* Warnings of rank 0. */
static void note_log(void *user, accel_log_level_t level, const char *line)
{
    struct outcome *o = user;

    if (level != ACCEL_LOG_WARN)
        return;
    o->warnings++;
    snprintf(o->said, sizeof(o->said), "%s", line);
    if (strstr(line, "the scales of"))
        snprintf(o->damaged, sizeof(o->damaged), "%s", line);
}

/* ---- the disk -------------------------------------------------------------------- */

static int64_t *bytes_read; /* of this rank's outcome */
static struct outcome *told;

ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
    const ssize_t got = __real_pread(fd, p, n, at);
    char path[64], to[400] = "";

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (bytes_read && got > 0 && readlink(path, to, sizeof(to) - 1) > 0 &&
        strstr(to, ".h5"))
        __atomic_fetch_add(bytes_read, got, __ATOMIC_RELAXED);
    return got;
}

/* ---- a run ----------------------------------------------------------------------- */

struct rig {
    accel_t *run;
    accel_module_t *model;
};

static accel_status_t rig_open(struct rig *k, const struct scene *p, accel_error_t *err)
{
    const accel_optimizer_t adam = { sizeof(adam), .lr = 3e-3f };
    accel_loop_t loop = { sizeof(loop), .steps = STEPS, .batch = SAMPLES / p->world,
                          .seed = SEED, .out_dir = p->dir };

    if (run_net_run(&k->run, p->dir, note_log, p->out, err))
        return err->code;
    k->model = run_tokens_llama(k->run, 64, err);
    if (!k->model || accel_model_add(k->run, "", k->model, err) ||
        !accel_optim_add(k->run, "o", &k->model, 1, &adam, err))
        return err->code;
    for (accel_module_t *m = k->model->child; p->recompute && m; m = m->next)
        for (accel_module_t *c = m->child; c; c = c->next)
            accel_module_recompute(c, 1);
    return accel_prepare_all(k->run, &loop, err);
}

static accel_status_t train_step(struct rig *k, const struct scene *p, int step,
                                 accel_error_t *err)
{
    const struct fp8_linears *l = &k->run->fp8.linears;
    accel_step_info_t info = { .bytes = sizeof(info) };
    accel_status_t st = ACCEL_OK;

    if (p->evaluate)
        st =
            run_tokens_evaluate(k->run, k->model, SAMPLES,
                                step == STOP ? &p->out->inside : &p->out->outside, err);
    ACCEL_TRY(st, run_tokens_step(k->run, k->model, SAMPLES, step % 2, err));
    for (int i = 0; !st && step == 0 && i < l->count * FP8_TENSORS; i++)
        p->out->seen[i] =
            fp8_history(&l->linear[i / FP8_TENSORS],
                        (enum fp8_tensor)(i % FP8_TENSORS))[l->recipe.history - 1];
    ACCEL_TRY(st, accel_last_step(k->run, &info, err));
    p->out->loss[step] = st ? NAN : info.loss;
    return st;
}

/* The scales of all ranks are those of rank 0. */
static accel_status_t take_scales(struct rig *k, const struct scene *p)
{
    const struct fp8_linears *l = &k->run->fp8.linears;
    const size_t bytes =
        (size_t)l->count * (size_t)fp8_state_elems(&l->recipe) * sizeof(float);
    char *all = NULL;
    size_t sizes[4];
    accel_status_t st;

    p->out->linears = l->count;
    p->out->candidates = l->candidates;
    p->out->blocks = l->recipe.blocks;
    p->out->peak = arena_peak_bytes(k->run->graph.arena);
    for (int i = 0; i < l->count * FP8_TENSORS && l->count <= LINEARS; i++)
        p->out->inverse[i] = l->linear[i / FP8_TENSORS].inverse[i % FP8_TENSORS];
    if (bytes && bytes <= sizeof(p->out->state) && accel_rank(k->run) == 0)
        memcpy(p->out->state, l->state, bytes);
    st = comm_gather(k->run->comm, l->state, bytes, 0, (void **)&all, sizes, NULL);
    for (int r = 1; !st && all && r < accel_world_size(k->run); r++)
        if (memcmp(all, all + (size_t)r * bytes, bytes) != 0)
            st = ACCEL_EMISMATCH;
    free(all);
    return st;
}

static int rank_main(struct boot *b, void *arg)
{
    const struct scene *p = arg;
    accel_error_t err = { 0 };
    struct rig k = { 0 };
    accel_status_t st;

    bytes_read = &p->out->read;
    told = p->out;
    st = rig_open(&k, p, &err);
    bytes_read = NULL;
    for (int64_t s = accel_steps_done(k.run); !st && s < p->until; s++) {
        st = train_step(&k, p, (int)s, &err);
        if (!st && s + 1 == p->save) {
            if (p->damage)
                p->damage(k.run);
            st = accel_save(k.run, &err);
        }
    }
    ACCEL_TRY(st, take_scales(&k, p));
    if (st && b->rank == 0)
        snprintf(p->out->said, sizeof(p->out->said), "%s", err.text);
    accel_close(k.run, NULL);
    return (int)st;
}

/* In a folder of that name, which a later life may have, too. */
static struct outcome __attribute__((format(printf, 3, 4)))
train(struct scene p, int status, const char *name, ...)
{
    va_list args;
    int n;
    char more[512], recipe[64] = "";

    if (!p.recipe || p.recipe[0])
        snprintf(recipe, sizeof(recipe), "    fp8_recipe: %s\n",
                 p.recipe ? p.recipe : "delayed");
    n = snprintf(p.dir, sizeof(p.dir), "%s/", root);
    va_start(args, name);
    vsnprintf(p.dir + n, sizeof(p.dir) - (size_t)n, name, args);
    va_end(args);
    snprintf(more, sizeof(more),
             "mixed_precision: %s\nfp8_config:\n  amax_history_len: %d\n%s"
             "accel:\n  precision:\n%s    modules: \"%s\"\n",
             p.precision ? p.precision : "fp8", p.length ? p.length : LENGTH,
             p.keys ? p.keys : "", recipe, p.modules ? p.modules : "");
    run_net_config(p.dir, p.strategy ? p.strategy : "FULL_SHARD", p.world, 1, more);
    p.until = p.until ? p.until : STEPS;
    p.out = fork_shared(sizeof(*p.out));
    tap_is_int(open_world(p.world, 1, rank_main, &p, HANG_S), status,
               "%s: %d ranks, %s", p.dir + n, p.world,
               p.strategy ? p.strategy : "FULL_SHARD");
    return *p.out;
}

static double apart(const struct outcome *a, const struct outcome *b)
{
    double far = 0;

    for (int i = 0; i < STEPS; i++)
        far = fmax(far, fabs(a->loss[i] / b->loss[i] - 1));
    return far;
}

static bool same_run(const struct outcome *a, const struct outcome *b, int from)
{
    return !memcmp(a->loss + from, b->loss + from,
                   (size_t)(STEPS - from) * sizeof(*a->loss)) &&
           !memcmp(a->state, b->state, sizeof(a->state));
}

/* ---- tests ----------------------------------------------------------------------- */

/* In bfloat16, on one rank. */
static struct outcome wide;

static void test_ranks(void)
{
    static const char *const strategies[] = { "FULL_SHARD", "SHARD_GRAD_OP",
                                              "NO_SHARD" };
    struct scene p = { .world = 1 };
    struct outcome one = train(p, 0, "one"), o;
    int weights = 0;

    tap_ok(one.linears == LINEARS && one.candidates == LINEARS + 2,
           "%d of %d linears: not the first, not the head", one.linears,
           one.candidates);
    tap_ok(apart(&one, &wide) < 0.03 && one.loss[STEPS - 1] != wide.loss[STEPS - 1],
           "losses near bf16: %.2g apart", apart(&one, &wide));
    tap_ok(one.loss[STEPS - 1] < 0.9 * one.loss[0], "and they fall: %g, %g",
           one.loss[0], one.loss[STEPS - 1]);
    tap_ok(one.seen[FP8_WEIGHT] > 0 &&
               one.seen[FP8_WEIGHT] != one.seen[FP8_TENSORS + FP8_WEIGHT],
           "a step sees each weight's own largest magnitude: %g, %g",
           (double)one.seen[FP8_WEIGHT], (double)one.seen[FP8_TENSORS + FP8_WEIGHT]);
    for (int i = 0; i < 6; i += TAP_SANITIZED ? 5 : 1) {
        p.world = 2 << i % 2;
        p.strategy = strategies[i / 2];
        o = train(p, 0, "ranks%d", i);
        weights = 0;
        for (int w = 0; w < LINEARS; w++)
            weights += o.seen[FP8_TENSORS * w + FP8_WEIGHT] !=
                           one.seen[FP8_TENSORS * w + FP8_WEIGHT] ||
                       o.seen[FP8_TENSORS * w + FP8_INPUT] !=
                           one.seen[FP8_TENSORS * w + FP8_INPUT];
        tap_ok(apart(&o, &one) < 5e-3 && weights == 0,
               "as on one rank, %.2g apart; all have seen the same", apart(&o, &one));
    }
}

static void test_same_bits(void)
{
    struct scene p = { .world = 2 };
    struct outcome plain = train(p, 0, "plain"), o;

    p.recompute = true;
    o = train(p, 0, "recompute");
    tap_ok(same_run(&plain, &o, 0) && o.peak < plain.peak,
           "activation checkpointing: the same bits, %zu bytes and not %zu", o.peak,
           plain.peak);
    p.recompute = false;
    p.evaluate = true;
    o = train(p, 0, "evaluate");
    tap_ok(same_run(&plain, &o, 0), "evaluations leave no trace");
    p.keys = "  use_autocast_during_eval: true\n";
    plain = train(p, 0, "autocast");
    tap_ok(!memcmp(plain.loss, o.loss, sizeof(o.loss)) && plain.inside != o.inside &&
               fabs(plain.inside / o.inside - 1) < 0.05,
           "with use_autocast_during_eval they narrow, too: %g, %g", o.inside,
           plain.inside);
}

static void test_overrides(void)
{
    struct scene p = { .world = 1 };
    struct outcome plain = train(p, 0, "overrides"), o;

    for (int i = TAP_SANITIZED ? 2 : 0; i < 4; i++) {
        char keys[96];

        snprintf(keys, sizeof(keys), "  override_linear_precision: [%s, %s, %s]\n",
                 i == 0 || i == 3 ? "true" : "false",
                 i == 1 || i == 3 ? "true" : "false",
                 i == 2 || i == 3 ? "true" : "false");
        p.keys = keys;
        o = train(p, 0, "wide%d", i);
        if (i < 3)
            tap_ok(o.loss[STEPS - 1] != plain.loss[STEPS - 1] &&
                       o.loss[STEPS - 1] != wide.loss[STEPS - 1] &&
                       apart(&o, &wide) < 0.03,
                   "product %d overridden: losses of its own", i);
        else
            tap_ok(!memcmp(o.loss, wide.loss, sizeof(o.loss)),
                   "all of them: the bits of bf16");
    }
    p.keys = "  fp8_format: E4M3\n  amax_compute_algo: max\n  margin: 1\n";
    o = train(p, 0, "e4m3");
    tap_ok(apart(&o, &wide) < 0.03 && o.loss[STEPS - 1] != plain.loss[STEPS - 1],
           "E4M3, the largest of the history, a margin: %.2g apart", apart(&o, &wide));
}

/* A run that is saved after STOP steps, and the life after it. */
static struct outcome resumed(struct scene p, const char *name)
{
    p.until = p.save = STOP;
    train(p, 0, "%s-half", name);
    p.until = p.save = 0;
    return train(p, 0, "%s-half", name);
}

/* A recipe that keeps nothing from step to step: on `from` ranks and twice as many, with
 * activation checkpointing, and resumed. Returns the run on one rank. */
static struct outcome test_recipe(const char *recipe, int from)
{
    struct scene p = { .world = 1, .recipe = recipe };
    struct outcome one = train(p, 0, "%s", recipe), o = one, again;

    tap_ok(one.linears == LINEARS && apart(&one, &wide) < 0.03 &&
               one.loss[0] != wide.loss[0],
           "%s: %.2g from bf16", recipe, apart(&one, &wide));
    tap_ok(one.loss[STEPS - 1] < 0.9 * one.loss[0], "losses fall: %g, %g", one.loss[0],
           one.loss[STEPS - 1]);
    for (p.world = from; p.world <= 4; p.world *= 2) {
        o = train(p, 0, "%s%d", recipe, p.world);
        tap_ok(apart(&o, &one) < 5e-3, "%d ranks: %.2g apart", p.world,
               apart(&o, &one));
    }
    p.world = 4;
    p.recompute = true;
    again = train(p, 0, "%s-again", recipe);
    tap_ok(!memcmp(o.loss, again.loss, sizeof(o.loss)), "the same bits, recomputed");
    p.recompute = false;
    again = resumed(p, recipe);
    tap_ok(
        !memcmp(o.loss + STOP, again.loss + STOP, (STEPS - STOP) * sizeof(*o.loss)) &&
            again.warnings == 0,
        "and resumed");
    return one;
}

/* Those of MS-AMP: the codes are others than with any current scale. */
static void test_powers(const struct outcome *current)
{
    struct scene p = { .world = 1, .recipe = "powers" };
    struct outcome one = train(p, 0, "powers"), o, plain;

    tap_ok(one.linears == LINEARS && apart(&one, &wide) < 0.03 &&
               one.loss[1] != current->loss[1] && one.loss[1] != wide.loss[1],
           "powers of two: %.2g from bf16", apart(&one, &wide));
    p.world = 4;
    o = train(p, 0, "powers4");
    tap_ok(apart(&o, &one) < 5e-3, "4 ranks: %.2g apart", apart(&o, &one));
    p.world = 1;
    p.evaluate = true;
    plain = train(p, 0, "powerseval");
    p.keys = "  use_autocast_during_eval: true\n  override_linear_precision: "
             "[true, true, true]\n";
    o = train(p, 0, "powerskeys");
    tap_ok(!memcmp(o.loss, plain.loss, sizeof(o.loss)) && o.inside == plain.inside,
           "keys of Transformer Engine have no effect: %g and %g", o.inside,
           plain.inside);
}

/* Scales of the tensors themselves, and of blocks; keys of both kinds. */
static void test_recipes(void)
{
    const int from = TAP_SANITIZED ? 4 : 2;
    struct scene p = { .world = 1, .keys = "  use_mxfp8_block_scaling: true\n" };
    const struct outcome current = test_recipe("current", 4),
                         block = test_recipe("block", from),
                         mx = test_recipe("mxfp8", from);
    struct outcome o;

    test_powers(&current);
    tap_ok(block.blocks == FP8_BLOCKS_128 && mx.blocks == FP8_BLOCKS_32 &&
               block.peak > mx.peak,
           "float32 scales take more than MXFP8's: %zu and %zu bytes at the peak",
           block.peak, mx.peak);
    p.recipe = "block";
    o = train(p, 0, "both");
    tap_ok(o.blocks == FP8_BLOCKS_128, "fp8_recipe comes first");
    p.recipe = "";
    o = train(p, 0, "switch");
    tap_ok(o.blocks == FP8_BLOCKS_32 && !memcmp(o.loss, mx.loss, sizeof(o.loss)),
           "the switch means mxfp8");
    p.keys = "  use_mxfp8_block_scaling: true\n  fp8_format: HYBRID\n";
    o = train(p, 0, "e5m2");
    tap_ok(o.loss[0] == mx.loss[0] && o.loss[2] != mx.loss[2] &&
               apart(&o, &wide) < 0.03,
           "E5M2 where it is asked for: %.2g from bf16", apart(&o, &wide));
}

static void test_modules(void)
{
    static const struct {
        const char *dir, *modules, *text;
    } refused[] = {
        { "unfit", "model.layers.7.*=bf16", "model.layers.7.*" },
        { "word", "*=fp16", "have a loss scale" },
        { "integers", "*=int8", "none of fp32, bf16, fp16 and fp8" },
        { "glob", "=fp8", "has no glob" },
    };
    struct scene p = { .world = 1 };
    struct outcome o;

    p.modules = "model.layers.0.*=bf16, *.self_attn.q_proj.weight=fp8";
    o = train(p, 0, "modules");
    tap_is_int(o.linears, 7, "the first rule that fits counts");
    p.modules = "model.layers.0.self_attn.q_proj.weight=fp8, *=bf16";
    o = train(p, 0, "alone");
    tap_ok(o.linears == 1 && o.state[LENGTH] > 0, "one alone has a history, too");
    p.modules = "*=bf16";
    o = train(p, 0, "all");
    tap_ok(o.linears == 0 && strstr(o.said, "no effect"), "none: %s", o.said);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(refused); i++) {
        p.modules = refused[i].modules;
        o = train(p, ACCEL_ECONFIG, "%s", refused[i].dir);
        tap_ok(strstr(o.said, refused[i].text) != NULL, "%s", o.said);
    }
}

/* Stopped while histories fill up. */
static void test_resume(void)
{
    struct scene p = { .world = 2 };
    struct outcome whole = train(p, 0, "whole"), before, o;

    for (int world = TAP_SANITIZED ? 4 : 1; world <= 4; world *= 2) {
        p.world = 2;
        p.until = p.save = STOP;
        before = train(p, 0, "again%d", world);
        p.world = world;
        p.save = 0;
        o = train(p, 0, "again%d", world);
        tap_ok(memcmp(o.state, before.state, sizeof(o.state)) == 0 &&
                   memcmp(o.inverse, before.inverse, sizeof(o.inverse)) == 0 &&
                   before.state[LENGTH] > 0,
               "%d ranks: scales and histories have the bits of the save", world);
        p.until = 0;
        o = train(p, 0, "again%d", world);
        if (world == 2)
            tap_ok(same_run(&whole, &o, STOP) && o.warnings == 0,
                   "resumed: the same bits");
        else
            tap_ok(fabs(o.loss[STOP] / whole.loss[STOP] - 1) < 2e-3 &&
                       fabs(o.loss[STEPS - 1] / whole.loss[STEPS - 1] - 1) < 5e-3,
                   "resumed on %d: %g and %g", world, o.loss[STOP], whole.loss[STOP]);
    }
}

static int64_t file_bytes;

static int add_file(const char *path, const struct stat *sb, int flag)
{
    (void)flag;
    if (strstr(path, ".h5"))
        file_bytes += sb->st_size;
    return 0;
}

/* Every rank has all scales, and all weights here: no byte of the files is read by two
 * ranks. Histories are longer than all else. */
static void test_read_once(void)
{
    struct scene p = { .strategy = "NO_SHARD", .world = 4, .length = 4096 };
    struct outcome before, o;
    char dir[200];

    p.until = p.save = 2;
    before = train(p, 0, "once");
    snprintf(dir, sizeof(dir), "%s/once/checkpoints", root);
    file_bytes = 0;
    tap_is_int(ftw(dir, add_file, 8), 0, "the files");
    o = train(p, 0, "once");
    tap_ok(o.warnings == 0 &&
               memcmp(o.inverse, before.inverse, sizeof(o.inverse)) == 0 &&
               o.inverse[0] > 0,
           "the scales of the checkpoint");
    tap_ok(o.read > LINEARS * FP8_TENSORS * 4096 * 4 && o.read <= file_bytes,
           "%lld of %lld bytes have left the storage", (long long)o.read,
           (long long)file_bytes);
}

/* fp8, bf16, fp8: what is lost is said. */
static void test_changes(void)
{
    struct scene p = { .world = 2, .until = 3, .save = 3 };
    struct outcome o = train(p, 0, "change");

    p.precision = "bf16";
    p.until = p.save = 5;
    o = train(p, 0, "change");
    tap_ok(strstr(o.said, "scales of the checkpoint are not used") && !o.linears, "%s",
           o.said);
    p.precision = NULL;
    p.until = p.save = 7;
    o = train(p, 0, "change");
    tap_ok(strstr(o.said, "no fp8 scales: they begin again") != NULL, "%s", o.said);
    tap_ok(o.state[1 + LENGTH - 2] > 0 && o.state[1 + LENGTH - 3] == 0,
           "and their histories have two steps");
    p.keys = "  margin: 1\n";
    p.until = p.save = 0;
    o = train(p, 0, "change");
    tap_ok(strstr(o.said, "fp8_delayed = ") && strstr(o.said, "margin 1"), "%s",
           o.said);
}

/* The newest steps of longer histories, and what there is of shorter ones. */
static void test_lengths(void)
{
    struct scene p = { .world = 1, .until = STOP, .save = STOP };
    struct outcome before = train(p, 0, "length"), o;
    const float *was = before.state + 1, *is;

    p.length = 3;
    p.until = 0;
    p.save = STEPS;
    o = train(p, 0, "length");
    is = o.state + 1;
    tap_ok(o.warnings == 0 && is[0] == 0 && is[1] > 0 && is[2] > 0 && was[1] == 0 &&
               was[2] > 0,
           "histories of 7, of which 5 are filled, become histories of 3");
    p.length = 0;
    before = o;
    o = train(p, 0, "length");
    tap_ok(o.state[LENGTH] == before.state[3] &&
               o.state[LENGTH - 1] == before.state[2] && o.state[LENGTH - 2] == 0 &&
               o.state[0] == before.state[0],
           "and those histories of 7 again");
}

/* A history that would take all memory. */
static void test_longest(void)
{
    struct scene p = { .world = 1, .length = 2000000 };
    struct outcome o = train(p, ACCEL_EUNSUPPORTED, "longest");

    tap_ok(strstr(o.said, "fp8_amax_history_len: 2000000") != NULL, "%s", o.said);
}

static void damage_scale(accel_t *run)
{
    run->fp8.linears.linear[2].state[0] = -1;
}

static void damage_history(accel_t *run)
{
    fp8_history(&run->fp8.linears.linear[LINEARS - 1], FP8_GRADIENT)[3] = NAN;
}

/* Any bits, anywhere in the scales and histories of a save. */
static uint32_t seed_of_damage;

static uint32_t draw(void)
{
    seed_of_damage = seed_of_damage * 1664525u + 1013904223u;
    return seed_of_damage >> 8 ^ seed_of_damage << 11;
}

static void damage_anything(accel_t *run)
{
    const struct fp8_linears *l = &run->fp8.linears;
    const int64_t each = 1 + LENGTH, place = draw() % (STATE / each),
                  at = draw() % each;
    const uint32_t bits = draw();
    float x;

    memcpy(&x, &bits, sizeof(x));
    l->state[place * each + at] = x;
    told->good = at == 0 ? x >= 0x1p-127f && x <= FLT_MAX : x >= 0;
}

static void test_any_damage(int seeds)
{
    int good = 0;

    for (int seed = 1; seed <= seeds; seed++) {
        struct scene p = { .world = 1, .until = 2, .save = 2 };
        struct outcome o;

        seed_of_damage = (uint32_t)seed;
        p.damage = damage_anything;
        o = train(p, 0, "any%d", seed);
        good += o.good;
        p.damage = NULL;
        p.save = 0;
        if (o.good)
            train(p, 0, "any%d", seed);
        else
            o = train(p, ACCEL_ECORRUPT, "any%d", seed);
        tap_ok(o.good || (strstr(o.damaged, ".weight in the checkpoint have numbers "
                                            "that no run leaves there") != NULL),
               "seed %d: %s", seed, o.good ? "a run may leave it" : o.damaged);
    }
    tap_ok(good > 0 && good < seeds, "%d of %d may be there", good, seeds);
}

static void test_damage(void)
{
    static const struct {
        const char *dir;
        void (*damage)(accel_t *run);
        const char *weight;
    } rows[] = {
        { "scale", damage_scale, "model.layers.0.self_attn.o_proj.weight" },
        { "history", damage_history, "model.layers.1.mlp.down_proj.weight" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        struct scene p = { .world = 2, .until = STOP, .save = STOP };
        struct outcome o;

        p.damage = rows[i].damage;
        train(p, 0, "%s", rows[i].dir);
        o = train((struct scene){ .world = 2 }, ACCEL_ECORRUPT, "%s", rows[i].dir);
        tap_ok(strstr(o.said, "none of the 1 checkpoints is intact") != NULL, "%s",
               o.said);
        tap_ok(strstr(o.damaged, rows[i].weight) != NULL, "%s", o.damaged);
    }
}

/* test_fp8_run [SEEDS]: damage of scales alone, for so many seeds. */
int main(int argc, char **argv)
{
    run_folder_new(root);
    if (argc > 1) {
        test_any_damage(atoi(argv[1]));
        run_folder_remove(root);
        return tap_done();
    }
    wide = train((struct scene){ .world = 1, .precision = "bf16" }, 0, "bf16");
    test_ranks();
    test_same_bits();
    test_overrides();
    test_recipes();
    test_modules();
    test_resume();
    test_read_once();
    test_changes();
    test_lengths();
    test_longest();
    test_damage();
    test_any_damage(TAP_SANITIZED ? 4 : 8);
    run_folder_remove(root);
    return tap_done();
}
