/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs with narrow weights, gradients and moments on a device beside the CPU's: the same
 * first weights, bits that graphs do not change, losses near those of the CPU, weights
 * that are written and read, checkpoints that go on with the same bits and on the other
 * side, and shards in host memory.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/bf16.h"
#include "common/env_names.h"
#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/cuda_run.h"

enum { STEPS = 4, STOP = 2, BATCH = 4, MICRO = 2, SEQ = 16, VOCAB = 136, WIDTH = 32 };
enum { TABLE = VOCAB * WIDTH };

static const char table[] = "model.embed_tokens.weight";

struct scene {
    const char *config, *dir;
    int until;
    bool save, write;
};

struct outcome {
    accel_status_t st;
    float loss[STEPS];
    float first[TABLE], last[TABLE];
    int64_t master_bytes, gradient_bytes, moment_bytes;
    /* gathered, as planned and as it is; with room for codes where there are any */
    int64_t gather_bytes, held_bytes;
    bool coded;
    char said[256];
};

static accel_status_t open_run(accel_t **run, accel_module_t **model,
                               const struct scene *p, accel_error_t *err)
{
    const accel_model_config_t llama = { .bytes = sizeof(accel_model_config_t),
                                         .model_type = "llama",
                                         .layers = 1,
                                         .heads = 2,
                                         .kv_heads = 1,
                                         .width = WIDTH,
                                         .hidden = 64,
                                         .context = SEQ,
                                         .vocab = VOCAB };
    const accel_optimizer_t adam = { sizeof(adam), .lr = 3e-3f };
    char dir[192];
    const accel_loop_t loop = { sizeof(loop),        .steps = STEPS, .batch = BATCH,
                                .accumulate = MICRO, .seed = 5,      .out_dir = dir };

    snprintf(dir, sizeof(dir), "%s/%s", cuda_run_dir, p->dir);
    if (cuda_run_open(run, p->config, NULL, err))
        return err->code;
    *model = accel_model_new(*run, &llama, err);
    if (!*model || accel_model_add(*run, "", *model, err) ||
        !accel_optim_add(*run, "o", model, 1, &adam, err))
        return err->code;
    return accel_prepare_all(*run, &loop, err);
}

/* A micro-batch, and behind the last one the step. */
static accel_status_t train_micro(accel_t *run, accel_module_t *model, int number,
                                  float *loss_out, accel_error_t *err)
{
    const int64_t dims[] = { BATCH, SEQ };
    int32_t ids[BATCH * SEQ], next[BATCH * SEQ];
    accel_tensor_t *in[2], *loss;
    accel_status_t st = accel_batch_begin(run, err);

    for (int i = 0; i < BATCH * SEQ; i++) {
        ids[i] = (number % 3 * 7 + i / SEQ * 5 + i % SEQ * 3) % VOCAB;
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

/* Values between those of bfloat16. */
static accel_status_t write_table(accel_t *run, accel_error_t *err)
{
    float values[TABLE];

    for (int i = 0; i < TABLE; i++)
        values[i] = (float)(i % 1031 - 515) / 3072;
    return accel_param_write(run, table, values, TABLE, err);
}

static struct outcome train(struct scene p)
{
    static struct outcome o;
    struct shard_memory m;
    accel_error_t err = { .text = "" };
    accel_module_t *model = NULL;
    accel_t *run = NULL;

    memset(&o, 0, sizeof(o));
    o.st = open_run(&run, &model, &p, &err);
    if (!o.st && p.write)
        o.st = write_table(run, &err);
    if (!o.st)
        o.st = accel_param_read(run, table, 0, o.first, TABLE, &err);
    for (int i = (int)accel_steps_done(run) * MICRO; i < p.until * MICRO && !o.st; i++)
        o.st = train_micro(run, model, i, &o.loss[i / MICRO], &err);
    if (!o.st && p.save)
        o.st = accel_save(run, &err);
    if (!o.st)
        o.st = accel_param_read(run, table, 0, o.last, TABLE, &err);
    if (!o.st) {
        o.master_bytes = run->plan.param_bytes;
        o.gradient_bytes = run->plan.gradient_bytes;
        o.moment_bytes = run->plan.moment_bytes;
        o.gather_bytes = run->plan.gather_bytes;
        shard_memory(run->shard, &m);
        o.held_bytes = (int64_t)(m.gather_slots + m.coded_room);
        o.coded = m.coded_room > 0;
    }
    snprintf(o.said, sizeof(o.said), "%.255s", err.text);
    accel_close(run, NULL);
    return o;
}

static bool same(const struct outcome *a, const struct outcome *b, int from)
{
    return !a->st && !b->st &&
           !memcmp(a->loss + from, b->loss + from,
                   (size_t)(STEPS - from) * sizeof(*a->loss)) &&
           !memcmp(a->last, b->last, sizeof(a->last));
}

static double apart(const struct outcome *a, const struct outcome *b)
{
    double far = 0;

    for (int i = 0; i < STEPS; i++)
        far = fmax(far, fabs((double)(a->loss[i] / b->loss[i]) - 1));
    return far;
}

/* gpu.yaml and cpu.yaml. more: lines that go with mixed_precision. */
static void write_configs(const char *precision, const char *more, bool offload)
{
    char yaml[768];

    for (int cpu = 0; cpu < 2; cpu++) {
        snprintf(yaml, sizeof(yaml),
                 "distributed_type: %s\n%s%s%s"
                 "accel: {precision: {%s}}\n",
                 offload ? "FSDP" : "'NO'", cpu ? "use_cpu: true\n" : "",
                 offload ? "fsdp_config: {fsdp_offload_params: true, "
                           "fsdp_sharding_strategy: FULL_SHARD}\n"
                         : "",
                 more ? more : "mixed_precision: bf16\n", precision);
        cuda_run_write(cpu ? CUDA_RUN_CPU : CUDA_RUN_GPU, yaml, strlen(yaml));
    }
}

/* Bytes of 32 numbers on the way from float32: of weights, gradients and all moments. */
struct form {
    const char *name, *precision, *more;
    int weights, gradients, moments;
    bool offload, coded;
};

/* Do `bytes` stand to those of float32 as `now` to `before` of 32 numbers? Units are
 * padded, and so are their scales. */
static bool takes(int64_t bytes, int64_t wide, int now, int before)
{
    return llabs(bytes * before - wide * now) <= 256 * before;
}

static bool takes_bytes(const struct outcome *o, const struct outcome *wide,
                        const struct form *f)
{
    tap_diag("bytes of weights %lld, gradients %lld, moments %lld",
             (long long)o->master_bytes, (long long)o->gradient_bytes,
             (long long)o->moment_bytes);
    return takes(o->master_bytes, wide->master_bytes, f->weights, 128) &&
           takes(o->gradient_bytes, wide->gradient_bytes, f->gradients, 128) &&
           takes(o->moment_bytes, wide->moment_bytes, f->moments, 256);
}

static struct outcome test_form(const struct form *f)
{
    /* with float32 all else, on the device and offloaded */
    static struct outcome all_wide[2];
    static bool known[2];
    static int forms;
    char dir[4][64];
    struct scene p = { .config = CUDA_RUN_GPU, .until = STEPS };
    struct outcome wide, cpu, gpu, o;

    forms++;
    for (int i = 0; i < 4; i++)
        snprintf(dir[i], sizeof(dir[i]), "form-%d-%d", forms, i);
    if (!known[f->offload]) {
        write_configs("", NULL, f->offload);
        p.dir = dir[0];
        all_wide[f->offload] = train(p);
        known[f->offload] = true;
    }
    wide = all_wide[f->offload];
    write_configs(f->precision, f->more, f->offload);
    p.dir = dir[1];
    gpu = train(p);
    p.dir = dir[2];
    p.config = CUDA_RUN_CPU;
    cpu = train(p);
    tap_ok(!gpu.st && !cpu.st && !memcmp(gpu.first, cpu.first, sizeof(cpu.first)),
           "%s%s: the CPU's first weights %s%s", f->name ? f->name : f->precision,
           f->offload ? ", offloaded" : "", gpu.said, cpu.said);
    tap_ok(apart(&gpu, &cpu) < 1e-2 && gpu.loss[STEPS - 1] < gpu.loss[0],
           "losses %.1e from the CPU's", apart(&gpu, &cpu));
    tap_ok(!wide.st && gpu.loss[STEPS - 1] != wide.loss[STEPS - 1] &&
               apart(&gpu, &wide) < 0.05,
           "%.1e from those of bf16 with float32 all else %s", apart(&gpu, &wide),
           wide.said);
    tap_ok(takes_bytes(&gpu, &wide, f), "and the bytes of their forms");
    tap_ok(f->offload || (gpu.gather_bytes == gpu.held_bytes && gpu.coded == f->coded),
           "%lld bytes are gathered, as planned%s", (long long)gpu.held_bytes,
           gpu.coded ? ", codes" : "");
    p.config = CUDA_RUN_GPU;
    p.dir = dir[3];
    p.until = STOP;
    p.save = true;
    o = train(p);
    p.until = STEPS;
    setenv(ENV_CUDA_GRAPHS, "0", 1);
    o = train(p);
    unsetenv(ENV_CUDA_GRAPHS);
    tap_ok(same(&gpu, &o, STOP), "resumed, without graphs: the same bits %s", o.said);
    return gpu;
}

#define MSAMP(level)                                                                   \
    "mixed_precision: fp8\nfp8_config: {backend: MSAMP, opt_level: " level "}\n"

static void test_all_forms(void)
{
    static const struct form forms[] = {
        { NULL, "masters: bf16", NULL, 64, 128, 256, false, false },
        { NULL, "masters: none", NULL, 64, 128, 256, false, false },
        { NULL, "masters: bf16, moments: 8bit", NULL, 64, 128, 72, false, false },
        { NULL, "masters: bf16", NULL, 64, 128, 256, true, false },
        { NULL, "masters: fp16", NULL, 65, 128, 256, false, false },
        { NULL, "masters: fp16, moments: 8bit, gradients: fp8", NULL, 65, 33, 72, false,
          false },
        { NULL, "gradients: fp8", NULL, 128, 33, 256, false, false },
        { NULL, "moments: fp8", NULL, 128, 128, 98, false, false },
        { NULL, "masters: fp16, moments: fp8", NULL, 65, 128, 98, true, false },
        { "MS-AMP O1", "", MSAMP("O1"), 65, 33, 256, false, false },
        { "MS-AMP O2", "", MSAMP("O2"), 65, 33, 98, false, false },
        { "MS-AMP O3", "", MSAMP("O3"), 65, 33, 98, false, true },
    };

    struct outcome before = { .st = ACCEL_EINVAL }, o;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(forms); i++) {
        o = test_form(&forms[i]);
        if (o.coded)
            tap_ok(same(&before, &o, 0), "codes change no bit of the level before");
        before = o;
    }
}

/* The next step of a run that is saved after each. */
static struct outcome go_on(struct scene *p, const char *config, const char *precision)
{
    write_configs(precision, NULL, false);
    p->config = config;
    p->until++;
    return train(*p);
}

static int differ(const float *got, const float *before, float (*rounded)(float))
{
    int off = 0;

    for (int i = 0; i < TABLE; i++)
        off += got[i] != (rounded ? rounded(before[i]) : before[i]);
    return off;
}

/* The mean distance. */
static double between(const float *a, const float *b)
{
    double sum = 0;

    for (int i = 0; i < TABLE; i++)
        sum += fabs((double)(a[i] - b[i]));
    return sum / TABLE;
}

static float written(int i)
{
    return (float)(i % 1031 - 515) / 3072;
}

static float to_bf16(float x)
{
    return bf16_to_f32(f32_to_bf16(x));
}

/* A checkpoint of a device goes on there, with the other form, and on the CPU. */
static void test_forms(void)
{
    struct scene p = { .dir = "forms", .save = true, .write = true };
    struct outcome o, before;
    int off = 0;

    o = go_on(&p, CUDA_RUN_GPU, "masters: bf16");
    for (int i = 0; i < TABLE; i++)
        off += o.first[i] != to_bf16(written(i));
    tap_ok(!o.st && off == 0, "what is written is rounded to the nearest: %d %s", off,
           o.said);
    p.write = false;
    before = o;
    o = go_on(&p, CUDA_RUN_CPU, "masters: bf16");
    tap_ok(!o.st && !differ(o.first, before.last, NULL),
           "the CPU goes on with the same weights %s", o.said);
    before = o;
    o = go_on(&p, CUDA_RUN_GPU, "");
    tap_ok(!o.st && !differ(o.first, before.last, NULL),
           "the device with float32 masters, too %s", o.said);
    before = o;
    o = go_on(&p, CUDA_RUN_GPU, "masters: bf16");
    tap_ok(!o.st && !differ(o.first, before.last, to_bf16),
           "and takes those up in bfloat16 %s", o.said);
}

/* Gradients that rest on the device have no way home in fp8. */
static void test_refused(void)
{
    const struct scene p = { .config = CUDA_RUN_GPU, .dir = "refused", .until = 1 };
    struct outcome o;

    write_configs("gradients: fp8", NULL, true);
    o = train(p);
    tap_ok(o.st && strstr(o.said, "shards are offloaded to host memory"), "%s", o.said);
}

/* The same of forms with scales: the device makes of a checkpoint's numbers what the CPU
 * does, so that a step from there has the CPU's bits. */
static void test_scaled_forms(void)
{
    static const char narrow[] = "masters: fp16, moments: fp8";
    struct scene p = { .dir = "scaled", .save = true, .write = true };
    struct outcome o, before, twin;

    o = go_on(&p, CUDA_RUN_GPU, narrow);
    p.dir = "scaled-cpu";
    p.until = 0;
    twin = go_on(&p, CUDA_RUN_CPU, narrow);
    tap_ok(!o.st && !twin.st && !differ(o.first, twin.first, NULL) &&
               differ(o.first, o.last, NULL),
           "what is written has the CPU's rounding %s%s", o.said, twin.said);
    p = (struct scene){ .dir = "scaled", .until = 1 };
    before = o;
    for (int i = 0; i < 3; i++) {
        p.save = i == 2;
        p.until = 1;
        o = go_on(&p, i ? CUDA_RUN_GPU : CUDA_RUN_CPU, i ? "" : narrow);
        tap_ok(!o.st && !differ(o.first, before.last, NULL), "%s with %s go on %s",
               i ? "devices" : "CPUs", i ? "float32" : "scales", o.said);
    }
    p.save = false;
    before = o;
    o = go_on(&p, CUDA_RUN_GPU, narrow);
    p.until--;
    twin = go_on(&p, CUDA_RUN_CPU, narrow);
    tap_ok(!o.st && !twin.st && !differ(o.first, twin.first, NULL) &&
               differ(o.first, before.last, NULL) &&
               10 * between(o.last, twin.last) < between(o.last, o.first),
           "float32 is taken up with scales as the CPU does, moments too: %.1e of %.1e "
           "%s%s",
           between(o.last, twin.last), between(o.last, o.first), o.said, twin.said);
}

int main(int argc, char **argv)
{
    (void)argc;
    cuda_run_begin(argv);
    test_all_forms();
    test_forms();
    test_scaled_forms();
    test_refused();
    cuda_run_end();
    return tap_done();
}
