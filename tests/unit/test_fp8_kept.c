/* SPDX-License-Identifier: Apache-2.0
 *
 * fp8 weights that are kept over micro-batches: runs with and without have the
 * same bits, also where weights change in the middle of a step, are exchanged for their
 * averages or come from a checkpoint; each weight is narrowed as often as its copies
 * are; the plan has the bytes that are held.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "tests/world/run_net.h"
#include "tests/world/run_tokens.h"

enum { STEPS = 6, MICROS = 3, SAMPLES = 4, LENGTH = 4 };
/* What a script does besides: a weight is written in the middle of the step, an
 * evaluation of the averages, a save, and back to it. */
enum { WRITTEN = 2, SWAPPED = 3, SAVED = 4, BACK = 5 };

struct outcome {
    double loss[STEPS], evaluated[STEPS], averaged;
    /* of the largest magnitudes and scales */
    uint64_t state;
    int64_t copies; /* that were made in fp8 */
    int64_t planned, held, elems;
    int linears;
    char said[1024];
};

struct scene {
    const char *name;
    /* NULL: NO_SHARD, and delayed scaling */
    const char *strategy, *recipe;
    const char *keys;
    int world;
    /* copies that are made of a weight where they are kept; 0: they are not */
    int forms;
    bool recompute;
    /* the run */
    bool kept, script;
    char dir[128];
    struct outcome *out; /* shared; of rank 0 */
};

static char root[64] = "/tmp/accel-fp8k.XXXXXX";

/* ---- copies (the linker puts these in front of the backend's own) ---------------- */

static int64_t copies;

void __real_cpu_quantize(const struct backend *be, void *dst, accel_dtype_t to,
                         const void *src, accel_dtype_t type, int64_t n,
                         const float *scale, float *amax);
void __wrap_cpu_quantize(const struct backend *be, void *dst, accel_dtype_t to,
                         const void *src, accel_dtype_t type, int64_t n,
                         const float *scale, float *amax);
void __real_cpu_quantize_blocks(const struct backend *be, void *const dst[2],
                                accel_dtype_t to, const void *src, accel_dtype_t type,
                                int64_t rows, const struct block_scales s[2]);
void __wrap_cpu_quantize_blocks(const struct backend *be, void *const dst[2],
                                accel_dtype_t to, const void *src, accel_dtype_t type,
                                int64_t rows, const struct block_scales s[2]);

void __wrap_cpu_quantize(const struct backend *be, void *dst, accel_dtype_t to,
                         const void *src, accel_dtype_t type, int64_t n,
                         const float *scale, float *amax)
{
    copies += dst != NULL;
    __real_cpu_quantize(be, dst, to, src, type, n, scale, amax);
}

void __wrap_cpu_quantize_blocks(const struct backend *be, void *const dst[2],
                                accel_dtype_t to, const void *src, accel_dtype_t type,
                                int64_t rows, const struct block_scales s[2])
{
    copies += (dst[0] != NULL) + (dst[1] != NULL);
    __real_cpu_quantize_blocks(be, dst, to, src, type, rows, s);
}

/* ---- a run ----------------------------------------------------------------------- */

struct rig {
    accel_t *run;
    accel_module_t *model;
};

static accel_status_t rig_open(struct rig *k, const struct scene *p, accel_error_t *err)
{
    const accel_optimizer_t adam = { sizeof(adam), .lr = 3e-3f };
    const accel_ema_t average = { sizeof(average), .decay = 0.5 };
    accel_loop_t loop = {
        sizeof(loop),         .steps = STEPS, .batch = SAMPLES / p->world,
        .accumulate = MICROS, .seed = 5,      .out_dir = p->dir
    };
    accel_optim_t *optim;

    if (run_net_run(&k->run, p->dir, NULL, NULL, err))
        return err->code;
    k->model = run_tokens_llama(k->run, 64, err);
    if (!k->model || accel_model_add(k->run, "", k->model, err))
        return err->code;
    optim = accel_optim_add(k->run, "o", &k->model, 1, &adam, err);
    if (!optim || (p->script && accel_ema(k->run, optim, &average, err)))
        return err->code;
    for (accel_module_t *m = k->model->child; p->recompute && m; m = m->next)
        for (accel_module_t *c = m->child; c; c = c->next)
            accel_module_recompute(c, 1);
    return accel_prepare_all(k->run, &loop, err);
}

/* Rank 0 alone writes to what all share. */
static accel_status_t evaluate(struct rig *k, double *loss_out, accel_error_t *err)
{
    double own;
    accel_status_t st = run_tokens_evaluate(k->run, k->model, SAMPLES, &own, err);

    if (accel_rank(k->run) == 0)
        *loss_out = own;
    return st;
}

/* Another weight in the middle of a step. */
static accel_status_t write_weight(struct rig *k, accel_error_t *err)
{
    const accel_tensor_t *w = k->run->fp8.linears.weight[3];
    float *values = calloc((size_t)w->elems, sizeof(*values));
    accel_status_t st;

    for (int64_t i = 0; i < w->elems; i++)
        values[i] = (float)(i % 13 - 6) / 4;
    st = accel_param_write(k->run, tensor_full_name(w), values, w->elems, err);
    free(values);
    return st;
}

/* What it has seen is not a step's. */
static accel_status_t attempt(void *user, int batch, accel_error_t *err)
{
    struct rig *k = user;
    accel_status_t st = accel_batch_begin(k->run, err);

    (void)batch;
    return st ? st
              : accel_backward(k->run,
                               run_tokens_loss(k->run, k->model, SAMPLES, 7, err), err);
}

static accel_status_t before_step(struct rig *k, const struct scene *p, int step,
                                  accel_error_t *err)
{
    int batch;
    accel_status_t st =
        accel_find_batch_size(k->run, SAMPLES / p->world, attempt, k, &batch, err);

    ACCEL_TRY(st, evaluate(k, &p->out->evaluated[step], err));
    if (step != SWAPPED)
        return st;
    ACCEL_TRY(st, accel_ema_swap(k->run, 1, err));
    ACCEL_TRY(st, evaluate(k, &p->out->averaged, err));
    ACCEL_TRY(st, accel_ema_swap(k->run, 0, err));
    return st;
}

static accel_status_t train_step(struct rig *k, const struct scene *p, int step,
                                 accel_error_t *err)
{
    accel_step_info_t info = { sizeof(info), .loss = NAN };
    accel_status_t st = p->script ? before_step(k, p, step, err) : ACCEL_OK;

    for (int i = 0; i < MICROS && !st; i++) {
        if (p->script && step == WRITTEN && i == 1)
            st = write_weight(k, err);
        ACCEL_TRY(st,
                  run_tokens_step(k->run, k->model, SAMPLES, step * MICROS + i, err));
    }
    ACCEL_TRY(st, accel_last_step(k->run, &info, err));
    if (accel_rank(k->run) == 0)
        p->out->loss[step] = info.loss;
    return st;
}

static void look(const struct rig *k, struct outcome *o)
{
    const struct fp8_linears *l = &k->run->fp8.linears;
    const uint8_t *bytes = (const uint8_t *)l->state;
    const size_t n =
        (size_t)l->count * (size_t)fp8_state_elems(&l->recipe) * sizeof(float);

    o->linears = l->count;
    o->planned = k->run->plan.code_bytes;
    o->held = l->kept ? l->kept_bytes : 0;
    for (int i = 0; i < l->count; i++)
        o->elems += l->weight[i]->elems;
    o->state = 1469598103934665603u;
    for (size_t i = 0; i < n; i++)
        o->state = (o->state ^ bytes[i]) * 1099511628211u;
    o->copies = copies;
}

static int rank_main(struct boot *b, void *arg)
{
    const struct scene *p = arg;
    accel_error_t err = { 0 };
    struct rig k = { 0 };
    accel_status_t st = rig_open(&k, p, &err);
    bool back = !p->script;
    char saved[sizeof(p->dir) + 8];

    snprintf(saved, sizeof(saved), "%s-saved", p->dir);
    copies = 0;
    for (int64_t s = 0; !st && s < STEPS; s = accel_steps_done(k.run)) {
        if (s == BACK && !back) {
            back = true;
            st = accel_load_state(k.run, saved, &err);
            continue;
        }
        st = train_step(&k, p, (int)s, &err);
        if (!st && p->script && s + 1 == SAVED && !back)
            st = accel_save_state(k.run, saved, &err);
    }
    if (!st && b->rank == 0)
        look(&k, p->out);
    if (st && b->rank == 0)
        snprintf(p->out->said, sizeof(p->out->said), "%s", err.text);
    accel_close(k.run, NULL);
    return (int)st;
}

static struct outcome train(struct scene p)
{
    struct outcome *shared = fork_shared(sizeof(*shared));
    char more[512];
    int st;

    snprintf(p.dir, sizeof(p.dir), "%s/%s-%d%d%d", root, p.name, p.world, p.kept,
             p.script);
    snprintf(more, sizeof(more),
             "mixed_precision: fp8\nfp8_config:\n%s"
             "accel:\n  precision:\n    %s\n    fp8_weight_cache: %s\n",
             p.keys, p.recipe ? p.recipe : "fp8_recipe: delayed",
             p.kept ? "true" : "false");
    run_net_config(p.dir, p.strategy ? p.strategy : "NO_SHARD", p.world, 1, more);
    p.out = shared;
    st = open_world(p.world, 1, rank_main, &p, HANG_S);
    if (st)
        tap_ok(false, "%s: %d %s", p.name, st, shared->said);
    return *shared;
}

static bool same(const struct outcome *a, const struct outcome *b)
{
    return !memcmp(a->loss, b->loss, sizeof(a->loss)) &&
           !memcmp(a->evaluated, b->evaluated, sizeof(a->evaluated)) &&
           !memcmp(&a->averaged, &b->averaged, sizeof(a->averaged)) &&
           a->state == b->state && isfinite(a->loss[STEPS - 1]);
}

static void test_scene(struct scene p)
{
    struct outcome kept, not_kept;
    /* a forward and a gradient of each micro-batch, and the forward again */
    const int uses = (p.recompute ? 3 : 2) * MICROS;
    const int64_t saved = p.forms ? (int64_t)(uses - p.forms) * STEPS : 0;

    not_kept = train(p);
    p.kept = true;
    kept = train(p);
    tap_ok(same(&kept, &not_kept) && kept.linears > 0, "%s, %d ranks: the same bits",
           p.name, p.world);
    tap_is_int(not_kept.copies - kept.copies, saved * kept.linears,
               "%s: copies that are not made", p.name);
    tap_ok(kept.planned == kept.held && not_kept.held == 0 && not_kept.planned == 0 &&
               (p.forms ? kept.held >= p.forms * kept.elems : kept.held == 0) &&
               kept.held < (p.forms + 1) * kept.elems,
           "%s: %lld bytes are kept for %lld weights, as planned", p.name,
           (long long)kept.held, (long long)kept.elems);
}

/* Weights that change at all times. */
static void test_script(struct scene p)
{
    struct outcome kept, not_kept, plain;

    p.kept = true;
    plain = train(p);
    p.script = true;
    kept = train(p);
    p.kept = false;
    not_kept = train(p);
    tap_ok(same(&kept, &not_kept), "%s, weights that change: the same bits", p.name);
    tap_ok(plain.loss[SWAPPED] != kept.loss[SWAPPED] && kept.averaged > 0 &&
               kept.averaged != kept.evaluated[SWAPPED],
           "%s: they do change", p.name);
}

int main(void)
{
    static const char none[] = "  margin: 0\n";
    static const char seen[] = "  use_autocast_during_eval: true\n"
                               "  amax_history_len: 4\n";
    static const char wide[] = "  override_linear_precision: [true, false, false]\n";
    static const char ao[] = "  fp8_backend: AO\n";
    static const struct scene scenes[] = {
        { "delayed", NULL, NULL, seen, 1, .forms = 1 },
        { "again", NULL, NULL, none, 1, .forms = 1, .recompute = true },
        { "current", "SHARD_GRAD_OP", "fp8_recipe: current", none, 2, .forms = 1 },
        { "block", NULL, "fp8_recipe: block", none, 2, .forms = 1 },
        { "mxfp8", "FULL_SHARD", "fp8_recipe: mxfp8", seen, 1, .forms = 2 },
        { "masters", NULL, "masters: bf16", none, 1, .forms = 1 },
        { "cut", "FULL_SHARD", NULL, none, 2, .forms = 0 },
        { "coded", "SHARD_GRAD_OP", "reduce: auto", ao, 2, .forms = 0 },
    };
    struct scene p;

    run_folder_new(root);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(scenes); i += 1 + TAP_SANITIZED)
        test_scene(scenes[i]);
    test_script(scenes[0]);
    test_script(scenes[2]);
    test_script(scenes[4]);
    p = scenes[0];
    p.name = "wide";
    p.keys = wide;
    test_script(p);
    run_folder_remove(root);
    return tap_done();
}
