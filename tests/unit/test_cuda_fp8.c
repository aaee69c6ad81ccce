/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs in fp8 on a device beside the CPU's: a small Llama with delayed and with current
 * scaling. Losses are near the CPU's, weights are seen alike; graphs change no bit, nor
 * does it matter whether the device wants transposed operands, or whether norms and
 * gated products narrow what they write; one without 8-bit products is refused. On a
 * GPU what only the stand-in can be is left out.
 */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env_names.h"
#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/cuda_device.h"
#include "tests/world/cuda_run.h"

enum { STEPS = 5, VOCAB = 64, LENGTH = 4, MOST = 32, MOST_ROWS = 160 };

static void (*counts_get)(struct fakecuda_counts *out); /* NULL: a GPU */
static void (*fake_reset)(void);

struct shape {
    int batch, seq, width, hidden, layers;
};
/* The rows of the second are no multiple of 16. The third has two or
 * three blocks of 128 in every direction, of which the last is not whole. */
static const struct shape whole = { 4, 16, 32, 64, 2 }, odd = { 3, 7, 32, 64, 2 },
                          large = { 9, 16, 144, 272, 1 };

struct outcome {
    accel_status_t st;
    float loss[STEPS];
    /* scales after the last step; largest weights of the first */
    float scale[MOST], weight[MOST];
    int linears;
    uint64_t fp8, fast, launches;
    int64_t kept, planned;
    char said[512];
};

static accel_status_t train_step(accel_t *run, accel_module_t *model,
                                 const struct shape *s, int step, float *loss_out,
                                 accel_error_t *err)
{
    const int64_t dims[] = { s->batch, s->seq };
    int32_t ids[MOST_ROWS], next[MOST_ROWS];
    accel_tensor_t *in[2], *loss;
    accel_status_t st = accel_batch_begin(run, err);

    for (int i = 0; i < s->batch * s->seq; i++) {
        ids[i] = (step % 2 * 7 + i / s->seq * 5 + i % s->seq * 3) % VOCAB;
        next[i] = (ids[i] + 3) % VOCAB;
    }
    in[0] = accel_input(run, ACCEL_I32, 2, dims, ids, err);
    in[1] = accel_input(run, ACCEL_I32, 2, dims, next, err);
    loss = accel_call(model, in, 2);
    if (!st)
        st = accel_backward(run, loss, err);
    if (!st)
        st = accel_tensor_read(loss, loss_out, 1, err);
    return st ? st : accel_step(run, err);
}

static void take_scales(const accel_t *run, struct outcome *o, bool first)
{
    const struct fp8_linears *l = &run->fp8.linears;

    o->linears = l->count;
    for (int i = 0; i < l->count && i < MOST && !l->recipe.current; i++) {
        if (first)
            o->weight[i] =
                fp8_history(&l->linear[i], FP8_WEIGHT)[l->recipe.history - 1];
        o->scale[i] = *fp8_scale(&l->linear[i], FP8_GRADIENT);
    }
}

static accel_status_t open_run(accel_t **run, accel_module_t **model,
                               const char *config, const struct shape *s,
                               accel_error_t *err)
{
    const accel_model_config_t llama = { .bytes = sizeof(accel_model_config_t),
                                         .model_type = "llama",
                                         .layers = s->layers,
                                         .heads = 2,
                                         .kv_heads = 1,
                                         .width = s->width,
                                         .hidden = s->hidden,
                                         .context = 16,
                                         .vocab = VOCAB };
    const accel_optimizer_t adam = { sizeof(adam), .lr = 3e-3f };
    const accel_loop_t loop = { sizeof(loop), .steps = STEPS, .batch = s->batch,
                                .seed = 5, .out_dir = cuda_run_dir };

    if (cuda_run_open(run, config, NULL, err))
        return err->code;
    *model = accel_model_new(*run, &llama, err);
    if (!*model || accel_model_add(*run, "", *model, err) ||
        !accel_optim_add(*run, "o", model, 1, &adam, err))
        return err->code;
    return accel_prepare_all(*run, &loop, err);
}

/* apart: whatever narrows is a kernel of its own. */
static struct outcome train_so(const char *config, const struct shape *s, bool apart)
{
    struct fakecuda_counts before = { 0 }, after = { 0 };
    struct outcome o = { .st = ACCEL_OK };
    accel_error_t err = { .text = "" };
    accel_module_t *model = NULL;
    accel_t *run = NULL;

    if (counts_get)
        counts_get(&before);
    o.st = open_run(&run, &model, config, s, &err);
    if (apart && !o.st)
        accel_run_graph(run)->narrows = false;
    for (int i = 0; i < STEPS && !o.st; i++) {
        o.st = train_step(run, model, s, i, &o.loss[i], &err);
        if (!o.st)
            take_scales(run, &o, i == 0);
    }
    if (!o.st) {
        o.kept = run->fp8.linears.kept_bytes;
        o.planned = run->plan.code_bytes;
    }
    accel_close(run, NULL);
    if (counts_get)
        counts_get(&after);
    o.fp8 = after.fp8_products - before.fp8_products;
    o.fast = after.fp8_fast - before.fp8_fast;
    o.launches = after.launches - before.launches;
    snprintf(o.said, sizeof(o.said), "%.300s%s%.200s", err.text,
             err.hint[0] ? ": " : "", err.hint);
    return o;
}

static struct outcome train(const char *config, const struct shape *s)
{
    return train_so(config, s, false);
}

static bool same(const struct outcome *a, const struct outcome *b)
{
    return !a->st && !b->st && !memcmp(a->loss, b->loss, sizeof(a->loss)) &&
           !memcmp(a->scale, b->scale, sizeof(a->scale));
}

/* Returns what it was. */
static const char *use_capability(const char *capability)
{
    static const char *now = "90";
    const char *was = now;

    now = capability;
    setenv("FAKE_CUDA_CAPABILITY", capability, 1);
    fake_reset();
    return was;
}

/* Other devices than the stand-in's own, of capability 9.0. */
static void test_capabilities(const char *config, const struct shape *s,
                              const struct outcome *want)
{
    struct outcome o;

    use_capability("100");
    o = train(config, s);
    tap_ok(same(want, &o) && o.fp8 == want->fp8, "capability 10.0: the same bits %s",
           o.said);
    use_capability("80");
    o = train(config, s);
    tap_ok(o.st == ACCEL_EUNSUPPORTED && strstr(o.said, "sm_80"), "%s", o.said);
    use_capability("90");
}

/* Of the six kernels of two blocks that write what fp8 linears read first, five
 * narrow it: the first projection of a model stays in bfloat16. */
static void test_apart(const char *config, const struct shape *s,
                       const struct outcome *want)
{
    struct outcome o[2];

    setenv(ENV_CUDA_GRAPHS, "0", 1);
    for (int i = 0; i < 2; i++)
        o[i] = train_so(config, s, i);
    unsetenv(ENV_CUDA_GRAPHS);
    tap_ok(same(want, &o[0]) && same(want, &o[1]),
           "narrowing in kernels of its own: the same bits");
    if (counts_get)
        tap_is_int((long long)(o[1].launches - o[0].launches), 5 * STEPS,
                   "and that many more launches");
}

/* On the CPU and on the device; its config is name_out. */
static struct outcome train_both(const char *recipe, const struct shape *s,
                                 struct outcome *cpu_out, char name_out[32])
{
    struct outcome gpu;
    double far = 0;

    for (int i = 0; i < 2; i++) {
        char yaml[512];

        snprintf(yaml, sizeof(yaml),
                 "distributed_type: 'NO'\nmixed_precision: fp8\n"
                 "fp8_config: {amax_history_len: %d}\n"
                 "accel: {checkpoint: {save: false}, precision: {fp8_recipe: %s}}\n%s",
                 LENGTH, recipe, i ? "" : "use_cpu: true\n");
        snprintf(name_out, 32, "%s%d.yaml", recipe, i);
        cuda_run_write(name_out, yaml, strlen(yaml));
        *(i ? &gpu : cpu_out) = train(name_out, s);
    }
    for (int i = 0; i < STEPS; i++)
        far = fmax(far, fabs((double)(gpu.loss[i] / cpu_out->loss[i]) - 1));
    /* the stand-in sums as the CPU does, and scales that lie elsewhere show */
    tap_ok(!cpu_out->st && !gpu.st && far < (counts_get ? 4e-3 : 1e-2) &&
               gpu.loss[STEPS - 1] < gpu.loss[0],
           "%s, %d rows: losses %.1e from the CPU's %s", recipe, s->batch * s->seq, far,
           gpu.said);
    return gpu;
}

/* Scales of blocks, with matrices that end within a block. */
static void test_large_blocks(const char *recipe)
{
    struct outcome cpu, gpu;
    char name[32];

    gpu = train_both(recipe, &large, &cpu, name);
    tap_ok(gpu.linears == cpu.linears && gpu.linears > 0 && gpu.kept > 0 &&
               gpu.planned == gpu.kept,
           "%d linears, whose weights take what is planned", gpu.linears);
    if (counts_get)
        tap_ok(gpu.fp8 == (uint64_t)(3 * STEPS * gpu.linears) && gpu.fast == 0,
               "%llu products in fp8, none with fast sums",
               (unsigned long long)gpu.fp8);
}

/* The same with rows that are no multiple of 16, without graphs, and where there are no
 * such products. */
static void test_odd_blocks(const char *recipe)
{
    struct outcome cpu, gpu, o;
    const char *was;
    char name[32];

    gpu = train_both(recipe, &odd, &cpu, name);
    setenv(ENV_CUDA_GRAPHS, "0", 1);
    o = train(name, &odd);
    unsetenv(ENV_CUDA_GRAPHS);
    tap_ok(same(&gpu, &o), "without graphs the same bits");
    if (!counts_get)
        return;
    was = use_capability("89");
    o = train(name, &odd);
    tap_ok(o.st == ACCEL_EUNSUPPORTED && strstr(o.said, "sm_89") &&
               strstr(o.said, "fp8_recipe: current"),
           "%s", o.said);
    use_capability(was);
}

static void test_recipe(const char *recipe, const struct shape *s)
{
    char name[32];
    struct outcome cpu, gpu = train_both(recipe, s, &cpu, name);

    tap_ok(gpu.linears == cpu.linears && gpu.linears > 0 &&
               !memcmp(gpu.weight, cpu.weight, sizeof(gpu.weight)),
           "%d linears, whose weights both have seen alike", gpu.linears);
    test_apart(name, s, &gpu);
    if (!counts_get)
        return;
    tap_ok(gpu.fp8 == 3 * gpu.fast && gpu.fast == (uint64_t)(STEPS * gpu.linears),
           "%llu products in fp8, forwards alone with fast sums",
           (unsigned long long)gpu.fp8);
    if (s == &whole)
        test_capabilities(name, s, &gpu);
}

/* Weights that are narrowed once per step of two micro-batches, or at each use. */
static void test_kept(const char *recipe, const struct shape *s)
{
    static const char *const words[] = { "true", "false" };
    struct outcome o[2];

    for (int i = 0; i < 2; i++) {
        char yaml[512];

        snprintf(yaml, sizeof(yaml),
                 "distributed_type: 'NO'\nmixed_precision: fp8\n"
                 "fp8_config: {amax_history_len: %d}\n"
                 "accel: {checkpoint: {save: false}, precision: "
                 "{fp8_recipe: %s, fp8_weight_cache: %s}}\n",
                 LENGTH, recipe, words[i]);
        cuda_run_write("kept.yaml", yaml, strlen(yaml));
        o[i] = train("kept.yaml", s);
    }
    tap_ok(same(&o[0], &o[1]) && o[0].fp8 == o[1].fp8 && o[0].kept > 0 &&
               o[1].kept == 0 && o[0].planned == o[0].kept,
           "%s: weights that are kept, %lld bytes: the same bits %s", recipe,
           (long long)o[0].kept, o[0].said);
}

/* Where cuBLASLt has no algorithm for any product of 8 bit: the run goes on. */
static void test_widened(const char *recipe)
{
    struct outcome cpu, gpu;
    char name[32];

    if (!counts_get)
        return;
    setenv("FAKE_CUDA_NO_TYPES", "28,29", 1);
    fake_reset();
    gpu = train_both(recipe, &odd, &cpu, name);
    tap_ok(gpu.fp8 == 0 && gpu.linears > 0, "%s: no algorithm, no product in fp8",
           recipe);
    unsetenv("FAKE_CUDA_NO_TYPES");
    fake_reset();
}

/* torchao's are current ones, which evaluations have, too. */
static void test_torchao(void)
{
    static const char ao[] = "distributed_type: 'NO'\nmixed_precision: fp8\n"
                             "fp8_config: {fp8_backend: AO}\n"
                             "accel: {checkpoint: {save: false}}\n";
    struct outcome o;

    cuda_run_write("ao.yaml", ao, strlen(ao));
    o = train("ao.yaml", &whole);
    tap_ok(!o.st && o.linears > 0 && o.loss[STEPS - 1] < o.loss[0],
           "torchao's scales: losses fall %s", o.said);
}

static void test_all_blocks(const char *recipe)
{
    test_large_blocks(recipe);
    test_odd_blocks(recipe);
    test_kept(recipe, &odd);
    test_widened(recipe);
}

/* What the device has not, and the nearest that it has. */
static void test_mx_refused(void)
{
    static const char mx[] = "distributed_type: 'NO'\nmixed_precision: fp8\n"
                             "accel: {checkpoint: {save: false}, precision: "
                             "{fp8_recipe: mxfp8}}\n";
    struct outcome o;

    cuda_run_write("mx.yaml", mx, strlen(mx));
    o = train("mx.yaml", &whole);
    tap_ok(o.st == ACCEL_EUNSUPPORTED && strstr(o.said, "'fp8_recipe: mxfp8'") &&
               strstr(o.said, "fp8_recipe: block"),
           "%s", o.said);
}

/* On the stand-in as on 9.0, and as on 10.0. */
static void test_devices_blocks(unsigned has)
{
    if (has & BACKEND_BLOCKS_128)
        test_all_blocks("block");
    if (has & BACKEND_BLOCKS_32)
        test_all_blocks("mxfp8");
    else if (has)
        test_mx_refused();
    if (!has)
        tap_skip(1, "the device has no products with scales of blocks");
    if (!counts_get)
        return;
    use_capability("100");
    test_all_blocks("block");
    test_all_blocks("mxfp8");
    use_capability("90");
}

int main(int argc, char **argv)
{
    enum backend_fp8 fp8;
    struct backend *be;
    unsigned blocks;

    (void)argc;
    cuda_run_begin(argv);
    be = cuda_device();
    fp8 = be->fp8;
    blocks = be->fp8_blocks;
    backend_close(be);
    if (fp8 == BACKEND_FP8_NONE)
        tap_skip_all("the device has no 8-bit products");
    if (cuda_stand_in("fakecuda_counts_get", &counts_get) &&
        !cuda_stand_in("fakecuda_reset", &fake_reset))
        return 1;
    test_recipe("delayed", &whole);
    test_recipe("current", &whole);
    test_recipe("delayed", &odd);
    test_recipe("current", &odd);
    test_kept("delayed", &whole);
    test_kept("current", &odd);
    test_widened("delayed");
    test_devices_blocks(blocks);
    test_torchao();
    cuda_run_end();
    return tap_done();
}
