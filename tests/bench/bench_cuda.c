/* SPDX-License-Identifier: Apache-2.0
 *
 * Speed of the CUDA backend on one GPU: every product of a training step beside a bare
 * loop of cuBLASLt over the same shapes, and kernels that memory bounds beside a copy
 * within the device. Medians, with the clocks and the power while they ran. No pass or
 * fail. Arguments: names of models (default: all).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda_load.h"
#include "tests/bench/gpu/gpu.h"
#include "tests/bench/median.h"
#include "topology/topo.h"

enum { REPEATS = 11, CALLS = 10 };

static struct backend *be;
static cudaStream_t stream;
static cudaEvent_t from, until;
static struct topo_watch *watch;
static struct topo_clocks clocks; /* while the last thing was measured */

/* Products of [rows, in] and a weight of [out, in], so many a step. */
struct linear {
    const char *name;
    int64_t in, out;
    int count;
    bool
        gelu; /* bias and GELU, the value before it saved; else only a bias where .bias */
    bool bias, to_float;
};

static const struct model {
    const char *name;
    int64_t rows;
    struct linear linear[6];
} models[] = {
    /* a head that occurs 0 times: GPT-2's vocabulary before it was made even, which
     * counts in no total */
    { "gpt2-124M",
      16 * 1024,
      { { "qkv", 768, 2304, 12, false, true, false },
        { "projection", 768, 768, 12, false, true, false },
        { "up", 768, 3072, 12, true, true, false },
        { "down", 3072, 768, 12, false, true, false },
        { "head", 768, 50304, 1, false, false, true },
        { "head, odd", 768, 50257, 0, false, false, true } } },
    { "gpt2-1558M",
      8 * 1024,
      { { "qkv", 1600, 4800, 48, false, true, false },
        { "projection", 1600, 1600, 48, false, true, false },
        { "up", 1600, 6400, 48, true, true, false },
        { "down", 6400, 1600, 48, false, true, false },
        { "head", 1600, 50304, 1, false, false, true },
        { "head, odd", 1600, 50257, 0, false, false, true } } },
    { "llama-8B",
      8192,
      { { "q and out", 4096, 4096, 64, false, false, false },
        { "k and v", 4096, 1024, 64, false, false, false },
        { "gate and up", 4096, 14336, 64, false, false, false },
        { "down", 14336, 4096, 32, false, false, false },
        { "head", 4096, 128256, 1, false, false, true } } },
};

/* Elements from one row of logits to the next, as cross_entropy pads them. */
static int64_t padded(int64_t vocab)
{
    return (vocab + 63) / 64 * 64;
}

/* The rows that one call of the fused head works on: chunks of 256 MiB of logits. */
static int64_t rows_of(const struct model *m, const struct linear *l)
{
    int64_t fit = ((int64_t)256 << 20) / 4 / l->out / 64 * 64;

    return l->to_float && fit < m->rows ? fit : m->rows;
}

static void *device_memory(int64_t bytes)
{
    accel_error_t err;
    void *p = NULL;

    if (be->alloc(be, MEMORY_WORK, (size_t)bytes, &p, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return p;
}

/* Random bfloat16 of both signs: products of zeros take less power, and less time. */
static void *operand(int64_t bytes)
{
    enum { PIECE = 1 << 20 };
    static uint16_t value[PIECE / 2];
    static uint32_t drawn = 1;
    char *p = device_memory(bytes);

    for (int i = 0; i < PIECE / 2 && !value[PIECE / 2 - 1]; i++) {
        drawn = drawn * 1664525u + 1013904223u;
        value[i] = (uint16_t)(0x3c00u | (drawn >> 16 & 0x83ffu)); /* 2^-7 to 2 */
    }
    for (int64_t at = 0; at < bytes; at += PIECE)
        be->from_host(be, p + at, value,
                      (size_t)(bytes - at < PIECE ? bytes - at : PIECE));
    return p;
}

/* Median milliseconds of one call. */
static double median_ms(void (*call)(void *), void *arg)
{
    double ms[REPEATS];

    call(arg);
    for (int i = 0; i < REPEATS; i++) {
        float all = 0;

        cudaEventRecord(from, stream);
        for (int k = 0; k < CALLS; k++)
            call(arg);
        cudaEventRecord(until, stream);
        if (watch)
            topo_watch_read(watch, &clocks);
        if (cudaEventSynchronize(until) || cudaEventElapsedTime(&all, from, until)) {
            fprintf(stderr, "the device failed\n");
            exit(1);
        }
        ms[i] = (double)all / CALLS;
    }
    return median(ms, REPEATS);
}

static void print_state(void)
{
    char text[128];

    topo_clocks_text(&clocks, text, sizeof(text));
    printf("  %s\n", text[0] ? text : "clocks and power are not known (no NVML)");
}

/* ---- products -------------------------------------------------------------------- */

struct product {
    struct gemm p;
    struct bare *bare;
};

static void run_own(void *arg)
{
    const struct product *x = arg;

    be->gemm(be, &x->p);
}

static void run_bare(void *arg)
{
    const struct product *x = arg;

    if (!bare_run(x->bare, &x->p, stream)) {
        fprintf(stderr, "cublasLtMatmul failed\n");
        exit(1);
    }
}

struct totals {
    double own, bare;
};

static void measure(const char *name, const char *pass, struct gemm p, int64_t count,
                    struct totals *sum)
{
    struct product x = { .p = p, .bare = bare_new(&p) };
    double own, bare, flops = 2.0 * (double)p.m * (double)p.n * (double)p.k;

    if (!x.bare) {
        printf("  %-12s %-8s cuBLASLt has no algorithm\n", name, pass);
        return;
    }
    bare = median_ms(run_bare, &x);
    own = median_ms(run_own, &x);
    printf("  %-12s %-8s %6lld x %6lld x %6lld %8.3f ms %7.1f TFLOP/s, bare %8.3f ms, "
           "%5.1f %%\n",
           name, pass, (long long)p.m, (long long)p.n, (long long)p.k, own,
           flops / own / 1e9, bare, 100.0 * bare / own);
    sum->own += own * (double)count;
    sum->bare += bare * (double)count;
    bare_free(x.bare);
}

/* Forward, gradient of the input, gradient of the weights, as linear.c asks for them
 * and, with a float32 result, cross_entropy.c: its bfloat16 gradients lie where the
 * float32 rows began. */
static void measure_linear(const struct model *m, const struct linear *l,
                           struct totals *sum)
{
    const int64_t rows = rows_of(m, l), y_size = l->to_float ? 4 : 2;
    const int64_t ld = l->to_float ? padded(l->out) : l->out, dy_ld = ld * y_size / 2;
    const int64_t calls = l->count * ((m->rows + rows - 1) / rows);
    void *x = operand(rows * l->in * 2), *y = operand(rows * ld * y_size);
    void *weight = operand(l->out * l->in * 2);
    void *grad = device_memory(l->out * l->in * 4);
    void *pre = l->gelu ? device_memory(rows * l->out * 2) : NULL;
    void *bias = operand(l->out * 2);
    struct gemm p = { .trans_b = true, .m = rows, .n = l->out, .k = l->in };

    p.a_type = p.b_type = p.bias_type = ACCEL_BF16;
    p.a = x;
    p.b = weight;
    p.c = y;
    p.lda = p.ldb = l->in;
    p.ldc = ld;
    p.c_type = l->to_float ? ACCEL_F32 : ACCEL_BF16;
    p.bias = l->bias ? bias : NULL;
    p.act = l->gelu ? ACCEL_ACT_GELU : ACCEL_ACT_NONE;
    p.pre = pre;
    measure(l->name, "forward", p, calls, sum);
    p = (struct gemm){
        .m = rows, .n = l->in, .k = l->out, .a = y, .b = weight, .c = x
    };
    p.a_type = p.b_type = p.c_type = ACCEL_BF16;
    p.lda = dy_ld;
    p.ldb = p.ldc = l->in;
    measure(l->name, "input", p, calls, sum);
    p = (struct gemm){ .trans_a = true, .m = l->out, .n = l->in, .k = rows };
    p.a_type = p.b_type = ACCEL_BF16;
    p.a = y;
    p.b = x;
    p.c = grad;
    p.lda = dy_ld;
    p.ldb = p.ldc = l->in;
    p.add = true;
    measure(l->name, "weight", p, calls, sum);
    be->free(be, x);
    be->free(be, y);
    be->free(be, weight);
    be->free(be, grad);
    be->free(be, pre);
    be->free(be, bias);
}

/* The same in fp8: all three products take rows by rows, of transposed copies. */
static void measure_fp8(const struct model *m, const struct linear *l,
                        struct totals *sum)
{
    const int64_t rows = m->rows, most = l->in > l->out ? l->in : l->out;
    const float one = 1;
    float *inverse = device_memory(sizeof(one));
    void *x = operand(rows * most), *weight = operand(l->out * l->in);
    void *result = device_memory((rows > most ? rows : most) * most * 4);
    struct gemm p = { .trans_b = true,
                      .a = x,
                      .b = weight,
                      .a_type = ACCEL_F8E4M3,
                      .b_type = ACCEL_F8E4M3,
                      .a_inverse = inverse,
                      .b_inverse = inverse,
                      .c = result,
                      .c_type = ACCEL_BF16,
                      .m = rows,
                      .n = l->out,
                      .k = l->in,
                      .fast = true };

    be->from_host(be, inverse, &one, sizeof(one));
    p.lda = p.ldb = p.k;
    p.ldc = p.n;
    measure(l->name, "forward", p, l->count, sum);
    p.fast = false;
    p.a_type = ACCEL_F8E5M2;
    p.n = p.ldc = l->in;
    p.k = p.lda = p.ldb = l->out;
    measure(l->name, "input", p, l->count, sum);
    p.m = l->out;
    p.k = p.lda = p.ldb = rows;
    p.b = x;
    p.c = device_memory(l->out * l->in * 4);
    p.c_type = ACCEL_F32;
    p.add = true;
    measure(l->name, "weight", p, l->count, sum);
    be->free(be, p.c);
    be->free(be, result);
    be->free(be, weight);
    be->free(be, x);
    be->free(be, inverse);
}

/* Linears between the first and the last of a model. */
static void measure_model_fp8(const struct model *m)
{
    struct totals sum = { 0, 0 };

    if (be->fp8 == BACKEND_FP8_NONE)
        return;
    printf("%s, %lld rows, 8 bits\n", m->name, (long long)m->rows);
    for (int i = 0; i < 6 && m->linear[i].name; i++)
        if (!m->linear[i].to_float)
            measure_fp8(m, &m->linear[i], &sum);
    print_state();
    if (sum.own > 0)
        printf("  all of them of a step: %.2f ms, bare %.2f ms: %.1f %% (goal 95)\n",
               sum.own, sum.bare, 100.0 * sum.bare / sum.own);
}

static void measure_model(const struct model *m)
{
    struct totals sum = { 0, 0 };

    printf("%s, %lld rows, bfloat16\n", m->name, (long long)m->rows);
    for (int i = 0; i < 6 && m->linear[i].name; i++)
        measure_linear(m, &m->linear[i], &sum);
    print_state();
    if (sum.own > 0)
        printf("  all products of a step: %.2f ms, bare %.2f ms: %.1f %% (goal 95)\n",
               sum.own, sum.bare, 100.0 * sum.bare / sum.own);
    measure_model_fp8(m);
}

/* ---- memory ---------------------------------------------------------------------- */

enum { ROWS = 16384, COLS = 4096, VOCAB = 50304, ODD_VOCAB = 50257, XENT_ROWS = 1024 };

static const int64_t elems = (int64_t)ROWS * COLS; /* 256 MiB of float32 */

static struct {
    float *p, *m, *v, *g;
    int32_t *targets;
} room;

static void run_copy(void *arg)
{
    (void)arg;
    cudaMemcpyAsync(room.p, room.g, (size_t)elems * 4, cudaMemcpyDeviceToDevice,
                    stream);
}

static void run_adamw(void *arg)
{
    const struct adamw_step k = { .beta1 = 0.9f,
                                  .beta2 = 0.95f,
                                  .one_minus_beta1 = 0.1f,
                                  .one_minus_beta2 = 0.05f,
                                  .rate = 1e-4f,
                                  .root_scale = 1.0f,
                                  .eps = 1e-8f,
                                  .decay = 1.0f,
                                  .grad_scale = 1.0f };

    (void)arg;
    be->update(
        be,
        &(struct update_span){
            .p = room.p, .m.data = room.m, .v.data = room.v, .g = room.g, .n = elems },
        1, &(struct optim_step){ .kind = ACCEL_ADAMW, .adamw = k });
}

static void run_norm(void *arg)
{
    const struct norm n = { ACCEL_BF16, ROWS, COLS, 1e-5f, arg != NULL };

    be->norm(be, &n, room.p, room.v, room.g, room.m, arg ? NULL : room.m, NULL);
}

static void run_add_norm(void *arg)
{
    const struct norm n = { ACCEL_BF16, ROWS, COLS, 1e-5f, arg != NULL };

    be->add_norm(be, &n, room.p, (char *)room.p + elems * 2, room.v, room.g,
                 (char *)room.g + elems * 2, room.m, arg ? NULL : room.m, NULL);
}

static void run_norm_grad(void *arg)
{
    const struct norm n = { ACCEL_BF16, ROWS, COLS, 1e-5f, arg != NULL };

    be->norm_grad(be, &n, room.p, false, NULL, NULL, room.g, (char *)room.g + elems * 2,
                  room.v, room.m);
}

static const struct xent how = { .ignore = -1 };

/* arg: the vocabulary. */
static void run_xent(void *arg)
{
    const int64_t vocab = *(const int64_t *)arg;

    be->xent(be, &how, room.v, room.v + XENT_ROWS, room.p, room.targets, XENT_ROWS,
             vocab, padded(vocab));
}

/* Rounded in place: each row of bfloat16 begins where its row of float32 began. */
static void run_xent_grad(void *arg)
{
    const int64_t vocab = *(const int64_t *)arg;

    be->xent_grad(be, &how, room.p, ACCEL_BF16, room.v, room.v + 2 * XENT_ROWS,
                  room.v + 3 * XENT_ROWS, room.targets, XENT_ROWS, vocab,
                  padded(vocab));
}

/* ---- 8-bit copies ---------------------------------------------------------------- */

/* Behind what a kernel writes to room.p: a copy, or one of rows and one transposed. */
static struct narrow_copy copies(bool transposed)
{
    float *scale = room.v + 4 * ROWS;

    return (struct narrow_copy){ .type = ACCEL_F8E4M3,
                                 .rows = ROWS,
                                 .cols = COLS,
                                 .copy = (char *)room.p + elems * 2,
                                 .transposed =
                                     transposed ? (char *)room.p + elems * 3 : NULL,
                                 .scale = scale,
                                 .amax = scale + 1 };
}

/* arg not NULL, here and below: transposed, too. */
static void run_quantize(void *arg)
{
    const struct narrow_copy to = copies(arg != NULL);

    if (arg)
        be->quantize_transposed(be, to.copy, to.transposed, to.type, room.g, ACCEL_BF16,
                                ROWS, COLS, to.scale, to.amax);
    else
        be->quantize(be, to.copy, to.type, room.g, ACCEL_BF16, elems, to.scale,
                     to.amax);
}

static void run_norm_narrow(void *arg)
{
    const struct norm n = { ACCEL_BF16, ROWS, COLS, 1e-5f, true };
    const struct narrow_copy to = copies(arg != NULL);

    be->norm(be, &n, room.p, room.v, room.g, room.m, NULL, &to);
}

static void run_gated_narrow(void *arg)
{
    const struct narrow_copy to = copies(arg != NULL);

    be->gated(be, room.p, room.g, (char *)room.g + elems * 2, ACCEL_BF16, elems,
              ACCEL_ACT_SILU, &to);
}

static void run_act_narrow(void *arg)
{
    const struct narrow_copy to = copies(arg != NULL);

    be->act(be, room.p, room.g, ACCEL_BF16, elems, ACCEL_ACT_GELU, &to);
}

/* arg: the shapes of two copies, with scales where products of the device read them;
 * the second one is transposed. */
static void run_blocks(void *arg)
{
    const int64_t(*shape)[2] = arg;
    const bool tiles = be->fp8 == BACKEND_FP8_WHOLE;
    void *const dst[] = { (char *)room.p + elems * 2,
                          shape[1][0] ? (char *)room.p + elems * 3 : NULL };
    struct block_scales s[2];

    for (int i = 0; i < 2; i++)
        s[i] = (struct block_scales){ .inverse = (char *)room.v + i * elems,
                                      .e8m0 = shape[i][0] == 32 || shape[i][1] == 32,
                                      .height = shape[i][0],
                                      .width = shape[i][1],
                                      .cols = COLS,
                                      .transposed = i == 1,
                                      .down = i == 1,
                                      .row_step =
                                          shape[i][0] == shape[i][1] ? COLS / 128 : 1,
                                      .col_step = shape[i][0] == shape[i][1] ? 1
                                                  : i ? ROWS / 128
                                                      : ROWS,
                                      .tiles = !tiles ? 0
                                               : i    ? ROWS / 128
                                                      : COLS / 128 };
    be->quantize_blocks(be, dst, ACCEL_F8E4M3, room.g, ACCEL_BF16, ROWS, s);
}

/* Each row's bytes are what it has to read and write; its largest magnitude is found
 * on the way. */
static void measure_narrow(double copy)
{
    static int64_t lines[][2] = { { 1, 128 }, { 0, 0 } },
                   both[][2] = { { 1, 128 }, { 128, 1 } },
                   squares[][2] = { { 128, 128 }, { 128, 128 } },
                   mx[][2] = { { 1, 32 }, { 0, 0 } },
                   mx_both[][2] = { { 1, 32 }, { 32, 1 } };
    static const float one[2] = { 1, 0 };
    const struct {
        const char *name;
        void (*call)(void *);
        void *arg;
        int bytes;       /* of an element */
        unsigned blocks; /* which the device needs; 0: none */
    } all[] = {
        { "e4m3", run_quantize, NULL, 3, 0 },
        { "e4m3, transposed besides", run_quantize, &room, 4, 0 },
        { "RMSNorm, e4m3 besides", run_norm_narrow, NULL, 5, 0 },
        { "RMSNorm, transposed besides", run_norm_narrow, &room, 6, 0 },
        { "gated, e4m3 besides", run_gated_narrow, NULL, 7, 0 },
        { "gated, transposed besides", run_gated_narrow, &room, 8, 0 },
        { "GELU, e4m3 besides", run_act_narrow, NULL, 5, 0 },
        { "GELU, transposed besides", run_act_narrow, &room, 6, 0 },
        { "blocks of 128", run_blocks, lines, 3, BACKEND_BLOCKS_128 },
        { "blocks of 128, both ways", run_blocks, both, 4, BACKEND_BLOCKS_128 },
        { "blocks of 128 x 128, both", run_blocks, squares, 4, BACKEND_BLOCKS_128 },
        { "blocks of 32", run_blocks, mx, 3, BACKEND_BLOCKS_32 },
        { "blocks of 32, both ways", run_blocks, mx_both, 4, BACKEND_BLOCKS_32 },
    };

    if (be->fp8 == BACKEND_FP8_NONE)
        return;
    be->from_host(be, room.v + 4 * ROWS, one, sizeof(one));
    printf("kernels that write 8-bit copies\n");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(all); i++) {
        double rate;

        if (all[i].blocks && !(be->fp8_blocks & all[i].blocks))
            continue;
        rate = all[i].bytes * (double)elems / median_ms(all[i].call, all[i].arg) / 1e6;
        printf("  %-26s %8.1f GB/s %5.1f %% of the copy (goal 85)\n", all[i].name, rate,
               100.0 * rate / copy);
    }
}

static void measure_memory(void)
{
    int64_t vocab = VOCAB, odd = ODD_VOCAB;
    const double logits = (double)XENT_ROWS * VOCAB,
                 odds = (double)XENT_ROWS * ODD_VOCAB;
    const struct {
        const char *name;
        void (*call)(void *);
        void *arg;
        double bytes;
    } all[] = {
        { "copy", run_copy, NULL, 8.0 * (double)elems },
        { "AdamW, gradients zeroed", run_adamw, NULL, 32.0 * (double)elems },
        { "LayerNorm", run_norm, NULL, 4.0 * (double)elems },
        { "RMSNorm", run_norm, &room, 4.0 * (double)elems },
        { "Residual and LayerNorm", run_add_norm, NULL, 8.0 * (double)elems },
        { "LayerNorm, gradient", run_norm_grad, NULL, 6.0 * (double)elems },
        { "RMSNorm, gradient", run_norm_grad, &room, 6.0 * (double)elems },
        { "cross-entropy", run_xent, &vocab, 4.0 * logits },
        { "cross-entropy, gradient", run_xent_grad, &vocab, 6.0 * logits },
        { "cross-entropy of 50257", run_xent, &odd, 4.0 * odds },
        { "  gradient", run_xent_grad, &odd, 6.0 * odds },
    };
    double copy = 0;

    room.p = device_memory(elems * 4);
    room.m = device_memory(elems * 4);
    room.v = device_memory(elems * 4);
    room.g = device_memory(elems * 4);
    room.targets = device_memory(XENT_ROWS * 4);
    printf("kernels bound by memory\n");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(all); i++) {
        double rate = all[i].bytes / median_ms(all[i].call, all[i].arg) / 1e6;

        copy = i ? copy : rate;
        printf("  %-26s %8.1f GB/s %5.1f %% of the copy (goal 85)\n", all[i].name, rate,
               100.0 * rate / copy);
    }
    measure_narrow(copy);
    print_state();
}

int main(int argc, char **argv)
{
    accel_error_t err = { .text = "" };

    /* a run that is stopped has printed what it measured */
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (backend_cuda_open(&be, 0, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 77;
    }
    stream = be->native(be, QUEUE_COMPUTE);
    if (cudaEventCreate(&from) || cudaEventCreate(&until))
        return 1;
    watch = topo_watch_open(be->bus_id);
    printf("%s\n", be->isa);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(models); i++) {
        bool wanted = argc == 1;

        for (int k = 1; k < argc; k++)
            wanted = wanted || !strcmp(argv[k], models[i].name);
        if (wanted)
            measure_model(&models[i]);
    }
    measure_memory();
    if (be->sync(be, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    topo_watch_close(watch);
    backend_close(be);
    return 0;
}
