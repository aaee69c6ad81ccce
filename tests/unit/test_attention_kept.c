/* SPDX-License-Identifier: Apache-2.0
 *
 * Which keys the attention's dropout keeps, one by one, in the forward, in dq and in dk,
 * by mma.sync and where there is code by wgmma: beside the numbering of struct attention.
 * Scores are all 0, so that each key has the same weight, and an operand that is an
 * identity for some rows shows what became of each.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/attention/attention_path.h"
#include "backend/device.h"
#include "numbers/bf16.h"
#include "numbers/rng.h"
#include "tests/tap.h"
#include "tests/world/cuda_device.h"

enum { BATCH = 2, HEADS = 2, KV_HEADS = 1, QUERIES = 130, KEYS = 201, FIRST = 5 };
enum { GROUP = HEADS / KV_HEADS, ROWS = BATCH * HEADS * QUERIES };
enum { OF_OUT, OF_DQ, OF_DK, KINDS };

static const char *const kinds[KINDS] = { "forward", "dq", "dk" };
static const float dropout = 0.3f;
static const uint64_t seed = 77, stream = ((uint64_t)3 << 40) + 5;

static bool is_kept(int b, int h, int q, int k)
{
    const uint64_t row = ((uint64_t)(FIRST + b) * HEADS + (uint64_t)h) * QUERIES;
    uint32_t word[4];

    rng_block(seed, stream, (row + (uint64_t)q) * ((KEYS + 3) / 4) + (uint64_t)k / 4,
              word);
    return word[k % 4] >= (uint32_t)((double)dropout * 4294967296.0);
}

/* Tensors [BATCH][rows][heads][width] in bfloat16. */
struct tensor {
    int rows, heads, width;
    size_t bytes;
    bf16_t *host;
    void *at;
};

static struct tensor tensor_new(const struct backend *be, int rows, int heads,
                                int width)
{
    struct tensor x = { rows, heads, width, 0, NULL, NULL };

    x.bytes = (size_t)BATCH * (size_t)(rows * heads * width) * sizeof(bf16_t);
    x.host = calloc(1, x.bytes);
    be->alloc(be, MEMORY_BUFFERS, x.bytes, &x.at, NULL);
    return x;
}

static void tensor_free(const struct backend *be, struct tensor *x)
{
    be->free(be, x->at);
    free(x->host);
}

static bf16_t *element(const struct tensor *x, int b, int row, int head, int col)
{
    return x->host + ((b * x->rows + row) * x->heads + head) * x->width + col;
}

/* All elements are `value`; then column c of row window * width + c of one head, or of
 * all (-1), is 1. */
static void tensor_fill(const struct backend *be, struct tensor *x, float value,
                        int window, int head)
{
    for (size_t i = 0; i < x->bytes / sizeof(bf16_t); i++)
        x->host[i] = f32_to_bf16(value);
    for (int b = 0; b < BATCH && window >= 0; b++)
        for (int h = 0; h < x->heads; h++)
            for (int c = 0; c < x->width && window * x->width + c < x->rows; c++)
                if (head < 0 || h == head)
                    *element(x, b, window * x->width + c, h, c) = f32_to_bf16(1.0f);
    be->from_host(be, x->at, x->host, x->bytes);
    be->sync(be, NULL);
}

/* One call: what it reads, and what shows the mask. */
struct probe {
    const struct backend *be;
    struct tensor q, k, v, out, dout, dq, dk;
    float *lse;
    void *scratch;
};

static struct heads read_of(const struct tensor *x)
{
    return (struct heads){ x->at, (int64_t)x->rows * x->heads * x->width,
                           (int64_t)x->heads * x->width, x->width };
}

static struct heads_out write_of(const struct tensor *x)
{
    return (struct heads_out){ x->at, (int64_t)x->rows * x->heads * x->width,
                               (int64_t)x->heads * x->width, x->width, false };
}

static struct probe probe_new(const struct backend *be, int width)
{
    struct probe p = { .be = be };

    p.q = tensor_new(be, QUERIES, HEADS, width);
    p.k = tensor_new(be, KEYS, KV_HEADS, width);
    p.v = tensor_new(be, KEYS, KV_HEADS, width);
    p.out = tensor_new(be, QUERIES, HEADS, width);
    p.dout = tensor_new(be, QUERIES, HEADS, width);
    p.dq = tensor_new(be, QUERIES, HEADS, width);
    p.dk = tensor_new(be, KEYS, KV_HEADS, width);
    be->alloc(be, MEMORY_BUFFERS, ROWS * sizeof(float), (void **)&p.lse, NULL);
    be->alloc(be, MEMORY_WORK, (ROWS + 1) * sizeof(float), &p.scratch, NULL);
    return p;
}

static void probe_free(struct probe *p)
{
    struct tensor *all[] = { &p->q, &p->k, &p->v, &p->out, &p->dout, &p->dq, &p->dk };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(all); i++)
        tensor_free(p->be, all[i]);
    p->be->free(p->be, p->lse);
    p->be->free(p->be, p->scratch);
}

/* Runs the forward and, of the backward, what is asked for; brings the result here. */
static void probe_run(struct probe *p, int kind)
{
    const struct attention a = { .type = ACCEL_BF16,
                                 .batch = BATCH,
                                 .queries = QUERIES,
                                 .keys = KEYS,
                                 .heads = HEADS,
                                 .kv_heads = KV_HEADS,
                                 .head_width = p->q.width,
                                 .q = read_of(&p->q),
                                 .k = read_of(&p->k),
                                 .v = read_of(&p->v),
                                 .scale = 1.0f,
                                 .dropout = dropout,
                                 .seed = seed,
                                 .stream = stream,
                                 .first_sample = FIRST };
    struct attention_grads g = { .out = p->out.at, .dout = p->dout.at, .lse = p->lse };
    const struct tensor *shown = &p->out;

    p->be->attention(p->be, &a, p->out.at, p->lse, p->scratch);
    if (kind == OF_DQ)
        g.dq = write_of(shown = &p->dq);
    else if (kind == OF_DK)
        g.dk = write_of(shown = &p->dk);
    if (kind != OF_OUT)
        p->be->attention_grad(p->be, &a, &g, p->scratch);
    p->be->to_host_bytes(p->be, shown->host, shown->at, shown->bytes);
}

/* Of the forward: a value that is not 0. Of a gradient of scores: dp is 1 everywhere,
 * and delta about 1 but less than 1 / (1 - dropout), so its sign. */
static bool shows(const struct tensor *x, int b, int row, int head, int col)
{
    return bf16_to_f32(*element(x, b, row, head, col)) > 0;
}

/* Keys in the columns: window * width + c is the key. */
static int wrong_of_keys(const struct tensor *x, int window)
{
    int wrong = 0;

    for (int b = 0; b < BATCH; b++)
        for (int h = 0; h < HEADS; h++)
            for (int q = 0; q < QUERIES; q++)
                for (int c = 0; c < x->width && window * x->width + c < KEYS; c++)
                    wrong +=
                        shows(x, b, q, h, c) != is_kept(b, h, q, window * x->width + c);
    return wrong;
}

/* Queries of head h in the columns. */
static int wrong_of_queries(const struct tensor *x, int window, int h)
{
    int wrong = 0;

    for (int b = 0; b < BATCH; b++)
        for (int k = 0; k < KEYS; k++)
            for (int c = 0; c < x->width && window * x->width + c < QUERIES; c++)
                wrong += shows(x, b, k, h / GROUP, c) !=
                         is_kept(b, h, window * x->width + c, k);
    return wrong;
}

static int wrong_in(struct probe *p, int kind)
{
    const int width = p->q.width, heads = kind == OF_DK ? HEADS : 1;
    const int windows = ((kind == OF_DK ? QUERIES : KEYS) + width - 1) / width;
    int wrong = 0;

    tensor_fill(p->be, &p->dout, 1.0f / (float)width, -1, -1);
    for (int w = 0; w < windows; w++)
        for (int h = 0; h < heads; h++) {
            tensor_fill(p->be, &p->q, 0, kind == OF_DK ? w : -1, h);
            tensor_fill(p->be, &p->k, 0, kind == OF_DQ ? w : -1, -1);
            tensor_fill(p->be, &p->v, kind == OF_OUT ? 0 : 1, kind == OF_OUT ? w : -1,
                        -1);
            probe_run(p, kind);
            wrong += kind == OF_DK   ? wrong_of_queries(&p->dk, w, h)
                     : kind == OF_DQ ? wrong_of_keys(&p->dq, w)
                                     : wrong_of_keys(&p->out, w);
        }
    return wrong;
}

/* Heads of 64, ... `widest`. */
static void test_form(const char *form, int widest, const char *forward,
                      const char *gradient)
{
    void (*reset)(void);
    struct backend *be;

    setenv("ACCEL_CUDA_ATTENTION", form, 1);
    be = cuda_device();
    for (int width = 64; width <= widest; width *= 2) {
        struct probe p = probe_new(be, width);

        for (int kind = 0; kind < KINDS; kind++)
            tap_is_int(wrong_in(&p, kind), 0,
                       "%s, heads of %d, %s: the keys that are kept", form, width,
                       kinds[kind]);
        probe_free(&p);
    }
    tap_ok((strstr(be->isa, forward) && strstr(be->isa, gradient)) ||
               !cuda_stand_in("fakecuda_reset", (void *)&reset),
           "isa: %s", be->isa);
    backend_close(be);
}

int main(void)
{
    test_form("own", 128, "attention: wgmma", "gradient: wgmma, 7 products");
    test_form("mma", 64, "attention: mma.sync", "gradient: 7 products");
    return tap_done();
}
