/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs with bfloat16 masters on a device beside the CPU's: the same first weights, bits
 * that graphs do not change, losses near those of the CPU, weights that are written and
 * read, checkpoints that go on with the same bits and on the other side, and shards in
 * host memory.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bf16.h"
#include "common/env_names.h"
#include "run/run.h"
#include "tests/tap.h"
#include "tests/unit/cuda_run.h"

enum { STEPS = 4, STOP = 2, BATCH = 4, SEQ = 16, VOCAB = 64, WIDTH = 32 };
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
    int64_t master_bytes;
    char said[256];
};

static accel_status_t open_run(accel_t **run, accel_module_t **model,
                               const struct scene *p, accel_error_t *err)
{
    const accel_llama_t llama = { .layers = 1,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .width = WIDTH,
                                  .hidden = 64,
                                  .context = SEQ,
                                  .vocab = VOCAB };
    const accel_optimizer_t adam = { .lr = 3e-3f };
    char dir[192];
    const accel_loop_t loop = {
        .steps = STEPS, .batch = BATCH, .seed = 5, .out_dir = dir
    };

    snprintf(dir, sizeof(dir), "%s/%s", cuda_run_dir, p->dir);
    if (cuda_run_open(run, p->config, NULL, err))
        return err->code;
    *model = accel_llama_new(*run, &llama, err);
    if (!*model || accel_model_add(*run, "", *model, err) ||
        !accel_optim_add(*run, "o", model, 1, &adam, err))
        return err->code;
    return accel_prepare_all(*run, &loop, err);
}

static accel_status_t train_step(accel_t *run, accel_module_t *model, int step,
                                 float *loss_out, accel_error_t *err)
{
    const int64_t dims[] = { BATCH, SEQ };
    int32_t ids[BATCH * SEQ], next[BATCH * SEQ];
    accel_tensor_t *in[2], *loss;
    accel_status_t st = accel_batch_begin(run, err);

    for (int i = 0; i < BATCH * SEQ; i++) {
        ids[i] = (step % 2 * 7 + i / SEQ * 5 + i % SEQ * 3) % VOCAB;
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
    accel_error_t err = { .text = "" };
    accel_module_t *model = NULL;
    accel_t *run = NULL;

    memset(&o, 0, sizeof(o));
    o.st = open_run(&run, &model, &p, &err);
    if (!o.st && p.write)
        o.st = write_table(run, &err);
    if (!o.st)
        o.st = accel_param_read(run, table, 0, o.first, TABLE, &err);
    for (int64_t s = accel_steps_done(run); s < p.until && !o.st; s++)
        o.st = train_step(run, model, (int)s, &o.loss[s], &err);
    if (!o.st && p.save)
        o.st = accel_save(run, &err);
    if (!o.st)
        o.st = accel_param_read(run, table, 0, o.last, TABLE, &err);
    if (!o.st)
        o.master_bytes = run->plan.param_bytes;
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

/* gpu.yaml and cpu.yaml of that form. */
static void write_configs(const char *masters, const char *moments, bool offload)
{
    char yaml[512];

    for (int cpu = 0; cpu < 2; cpu++) {
        snprintf(yaml, sizeof(yaml),
                 "distributed_type: %s\nmixed_precision: bf16\n%s%s"
                 "accel: {precision: {masters: %s, moments: %s}}\n",
                 offload ? "FSDP" : "'NO'", cpu ? "use_cpu: true\n" : "",
                 offload ? "fsdp_config: {fsdp_offload_params: true, "
                           "fsdp_sharding_strategy: FULL_SHARD}\n"
                         : "",
                 masters, moments);
        cuda_run_write(cpu ? CUDA_RUN_CPU : CUDA_RUN_GPU, yaml, strlen(yaml));
    }
}

static void test_form(const char *masters, const char *moments, bool offload)
{
    char what[96], dir[4][64];
    struct scene p = { .config = CUDA_RUN_GPU, .until = STEPS };
    struct outcome wide, cpu, gpu, o;

    snprintf(what, sizeof(what), "masters %s, moments %s%s", masters, moments,
             offload ? ", offloaded" : "");
    for (int i = 0; i < 4; i++)
        snprintf(dir[i], sizeof(dir[i]), "%s-%s-%d-%d", masters, moments, offload, i);
    write_configs("float32", moments, offload);
    p.dir = dir[0];
    wide = train(p);
    write_configs(masters, moments, offload);
    p.dir = dir[1];
    gpu = train(p);
    p.dir = dir[2];
    p.config = CUDA_RUN_CPU;
    cpu = train(p);
    tap_ok(!gpu.st && !cpu.st && !memcmp(gpu.first, cpu.first, sizeof(cpu.first)),
           "%s: the CPU's first weights %s%s", what, gpu.said, cpu.said);
    tap_ok(apart(&gpu, &cpu) < 1e-2 && gpu.loss[STEPS - 1] < gpu.loss[0],
           "losses %.1e from the CPU's", apart(&gpu, &cpu));
    tap_ok(!wide.st && gpu.loss[STEPS - 1] != wide.loss[STEPS - 1] &&
               apart(&gpu, &wide) < 0.05 && wide.master_bytes == 2 * gpu.master_bytes,
           "near float32 masters', in half the bytes: %lld %s",
           (long long)gpu.master_bytes, wide.said);
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
}

/* A checkpoint of a device goes on there, with the other form, and on the CPU. */
static void test_forms(void)
{
    struct scene p = {
        .config = CUDA_RUN_GPU, .dir = "forms", .until = 1, .save = true
    };
    struct outcome o = { 0 }, before;
    int off = 0;

    write_configs("bf16", "float32", false);
    p.write = true;
    o = train(p);
    for (int i = 0; i < TABLE; i++)
        off += o.first[i] != bf16_to_f32(f32_to_bf16((float)(i % 1031 - 515) / 3072));
    tap_ok(!o.st && off == 0, "what is written is rounded to the nearest: %d %s", off,
           o.said);
    before = o;
    p.write = false;
    p.config = CUDA_RUN_CPU;
    p.until = 2;
    o = train(p);
    tap_ok(!o.st && !memcmp(o.first, before.last, sizeof(o.first)),
           "the CPU goes on with the same weights %s", o.said);
    before = o;
    write_configs("float32", "float32", false);
    p.config = CUDA_RUN_GPU;
    p.until = 3;
    o = train(p);
    tap_ok(!o.st && !memcmp(o.first, before.last, sizeof(o.first)),
           "the device with float32 masters, too %s", o.said);
    before = o;
    write_configs("bf16", "float32", false);
    p.until = STEPS;
    o = train(p);
    off = 0;
    for (int i = 0; i < TABLE; i++)
        off += o.first[i] != bf16_to_f32(f32_to_bf16(before.last[i]));
    tap_ok(!o.st && off == 0, "and takes those up in bfloat16: %d %s", off, o.said);
}

int main(int argc, char **argv)
{
    (void)argc;
    cuda_run_begin(argv);
    test_form("bf16", "float32", false);
    test_form("none", "float32", false);
    test_form("bf16", "8bit", false);
    test_form("bf16", "float32", true);
    test_forms();
    cuda_run_end();
    return tap_done();
}
