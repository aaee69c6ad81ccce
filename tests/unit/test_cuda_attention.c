/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of the CUDA backend beside the CPU backend's on the same inputs: output,
 * log-sum-exp and gradients over layouts, masks, widths, dropout and a cache, the same
 * bits of two runs, and the forms that our own kernels have.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "backend/cuda/attention/attention_path.h"
#include "numbers/floats.h"
#include "tests/tap.h"
#include "tests/world/cuda_device.h"

enum layout {
    SPLIT, /* q, k and v apart */
    FUSED, /* side by side in one tensor */
    ONE,   /* all three are the same */
    CACHE, /* k and v inside a longer cache, heads first */
    TIME,  /* as SPLIT, rows of all samples side by side */
    GAPS,  /* as SPLIT, with 8 elements between rows */
    ASIDE  /* as GAPS, and k begins between packs */
};

enum options {
    CAUSAL = 1,
    LENGTHS = 2,
    MASK = 4,
    ADD = 8, /* to gradients that are there */
    NO_Q = 16,
    NO_K = 32,
    NO_V = 64
};

static const struct variant {
    int batch, queries, keys, heads, kv_heads, width;
    enum layout layout;
    int options;
    float dropout;
} variants[] = {
    { 1, 1, 1, 1, 1, 1, FUSED, CAUSAL, 0 },
    { 2, 1, 1, 3, 3, 7, SPLIT, 0, 0 },
    { 1, 1, 331, 4, 2, 16, CACHE, CAUSAL, 0 },
    { 3, 1, 167, 18, 1, 7, SPLIT, LENGTHS | MASK, 0 },
    { 2, 1, 70, 4, 4, 300, CACHE, CAUSAL, 0 },
    { 2, 1, 67, 9, 1, 16, CACHE, CAUSAL, 0 },
    { 1, 1, 97, 8, 1, 128, CACHE, CAUSAL, 0 },
    { 2, 1, 66, 6, 2, 64, SPLIT, CAUSAL, 0 },
    { 1, 1, 69, 2, 1, 1024, CACHE, 0, 0 },
    { 2, 1, 131, 10, 2, 20, CACHE, CAUSAL, 0 },
    { 1, 1, 130, 26, 2, 24, SPLIT, 0, 0 },
    { 3, 1, 66, 2, 2, 8, SPLIT, MASK, 0.1f },
    { 2, 67, 67, 3, 3, 7, FUSED, CAUSAL, 0 },
    { 1, 66, 66, 1, 1, 48, FUSED, 0, 0 },
    { 1, 131, 131, 1, 1, 64, FUSED, CAUSAL | ADD, 0 },
    { 1, 65, 65, 2, 1, 128, SPLIT, CAUSAL, 0 },
    { 1, 30, 70, 2, 2, 72, CACHE, CAUSAL, 0.2f },
    { 1, 33, 66, 2, 1, 200, SPLIT, 0, 0 },
    { 1, 20, 40, 1, 1, 257, SPLIT, CAUSAL | ADD, 0 },
    { 2, 37, 101, 4, 2, 1, SPLIT, 0, 0 },
    { 2, 31, 97, 2, 1, 24, SPLIT, CAUSAL, 0 },
    { 1, 97, 31, 2, 1, 40, SPLIT, CAUSAL | NO_K, 0 },
    { 4, 70, 70, 2, 1, 9, SPLIT, LENGTHS, 0 },
    { 3, 66, 66, 1, 1, 16, FUSED, CAUSAL | LENGTHS, 0 },
    { 3, 67, 130, 2, 1, 15, SPLIT, MASK | NO_Q, 0 },
    { 3, 40, 67, 2, 1, 16, SPLIT, CAUSAL | LENGTHS | MASK | NO_V, 0 },
    { 1, 70, 70, 2, 2, 24, ONE, CAUSAL, 0 },
    { 2, 70, 70, 2, 2, 11, ONE, ADD, 0.3f },
    { 2, 19, 23, 2, 1, 5, SPLIT, 0, 0.25f },
    { 2, 66, 66, 1, 1, 32, FUSED, CAUSAL | LENGTHS, 0.5f },
    { 1, 64, 64, 1, 1, 104, SPLIT, 0, 0.1f },
    { 1, 1, 67, 2, 2, 64, ASIDE, CAUSAL, 0 },
};

enum { OUT, DQ, DK, DV, INPUTS, RESULTS = INPUTS };

/* One variant: its inputs on the host, as float. */
struct problem {
    const struct variant *c;
    accel_dtype_t type;
    float *in[3], *dout, *start[3]; /* start: what the gradients hold before */
    int64_t elems[3], out_elems, rows;
    int32_t *lengths, *mask;
};

struct answer {
    float *lse, *of[RESULTS];
};

static uint32_t state;

static float draw(accel_dtype_t type, float range)
{
    float v, narrow;

    state = state * 1664525u + 1013904223u;
    v = ((float)(state >> 8) / 8388608.0f - 1.0f) * range;
    floats_narrow(&narrow, type, &v, 1);
    floats_widen(&v, &narrow, type, 1);
    return v;
}

static float *draw_array(int64_t n, accel_dtype_t type, float range)
{
    float *x = malloc((size_t)(n ? n : 1) * sizeof(*x));

    for (int64_t i = 0; i < n; i++)
        x[i] = draw(type, range);
    return x;
}

static int64_t capacity(const struct variant *c)
{
    return c->keys + (c->layout == CACHE ? 13 : 0);
}

/* Elements from a row of so many heads to the next one of the tensor. */
static int64_t row_of(const struct variant *c, int64_t heads)
{
    return heads * c->width + (c->layout >= GAPS ? 8 : 0);
}

static struct problem pose(const struct variant *c, accel_dtype_t type)
{
    int64_t rows = (int64_t)c->batch * c->queries, d = c->width;
    struct problem p = { .c = c, .type = type };

    state = 9;
    p.rows = rows * c->heads;
    p.out_elems = p.rows * d;
    p.elems[0] =
        rows * row_of(c, c->layout == FUSED ? c->heads + 2 * c->kv_heads : c->heads);
    p.elems[1] = p.elems[2] =
        c->layout == FUSED || c->layout == ONE
            ? 0
            : (int64_t)c->batch * capacity(c) * row_of(c, c->kv_heads);
    for (int i = 0; i < 3; i++) {
        p.in[i] = draw_array(p.elems[i], type, 2.0f);
        p.start[i] = draw_array(p.elems[i], type, 1.0f);
    }
    if (c->layout == CACHE) /* what is behind the keys is nobody's to read */
        for (int64_t i = 0; i < p.elems[1]; i++)
            if (i / d % capacity(c) >= c->keys)
                p.in[1][i] = p.in[2][i] = NAN;
    p.dout = draw_array(p.out_elems, type, 1.0f);
    p.lengths = calloc((size_t)c->batch, sizeof(*p.lengths));
    p.mask = calloc((size_t)(c->batch * c->keys), sizeof(*p.mask));
    for (int b = 0; b < c->batch; b++) /* from none to all, and beyond */
        p.lengths[b] = b == 0 ? 0 : b == 1 ? c->keys + 3 : c->keys * b / c->batch;
    for (int i = 0; i < c->batch * c->keys; i++) /* holes; nothing in the last sample */
        p.mask[i] = i / c->keys < c->batch - 1 && i % 5 != 2 && i % 67 > 2;
    return p;
}

static void drop_problem(struct problem *p)
{
    for (int i = 0; i < 3; i++) {
        free(p->in[i]);
        free(p->start[i]);
    }
    free(p->dout);
    free(p->lengths);
    free(p->mask);
}

/* Bytes behind an array that are nobody's to read; none where reading them is found. */
#ifdef __SANITIZE_ADDRESS__
#define BEHIND 0
#else
#define BEHIND 512
#endif

/* Memory of the backend: all NaN, and behind it, too. */
static void *take_room(const struct backend *be, enum backend_memory kind, size_t bytes)
{
    char *nan = malloc(bytes + BEHIND);
    void *at = NULL;

    memset(nan, 0xff, bytes + BEHIND);
    if (!be->alloc(be, kind, bytes + BEHIND, &at, NULL)) {
        be->from_host(be, at, nan, bytes + BEHIND);
        be->sync(be, NULL);
    }
    free(nan);
    return at;
}

/* What a call was given for its work ends where it was said to. */
static void check_room(const struct backend *be, const void *room, size_t bytes,
                       const char *call)
{
    enum { WORDS = BEHIND / sizeof(uint32_t) };
    uint32_t behind[WORDS + 1];
    size_t wrong = 0;

    if (WORDS > 0)
        be->to_host(be, (float *)(void *)behind, (const char *)room + bytes, ACCEL_F32,
                    WORDS);
    for (size_t i = 0; i < WORDS; i++)
        wrong += behind[i] != UINT32_MAX;
    if (wrong)
        tap_ok(false, "%s: %s writes %zu words behind its %zu bytes", be->name, call,
               wrong, bytes);
}

/* Memory of the backend that holds x[n] of a type. */
static void *place(const struct backend *be, const float *x, accel_dtype_t type,
                   int64_t n)
{
    uint16_t *narrow;
    void *at = take_room(be, MEMORY_BUFFERS, (size_t)n * accel_dtype_bytes(type) + 16);

    if (!at || !x || n == 0)
        return at;
    if (type != ACCEL_F32) {
        narrow = malloc((size_t)n * sizeof(*narrow));
        floats_narrow(narrow, type, x, (size_t)n);
        be->from_host(be, at, narrow, (size_t)n * sizeof(*narrow));
        be->sync(be, NULL);
        free(narrow);
    } else {
        be->from_host(be, at, x, (size_t)n * sizeof(*x));
    }
    return at;
}

static void *place_ints(const struct backend *be, const int32_t *x, int64_t n)
{
    void *at = NULL;

    if (!be->alloc(be, MEMORY_BUFFERS, (size_t)n * sizeof(*x), &at, NULL))
        be->from_host(be, at, x, (size_t)n * sizeof(*x));
    return at;
}

static void *moved(const struct problem *p, void *base, int64_t elems)
{
    return (char *)base + elems * (int64_t)accel_dtype_bytes(p->type);
}

/* Where q, k or v is in its tensor, or its gradient in a tensor of the same shape. */
static struct heads_out part(const struct problem *p, void *const base[3], int which)
{
    const struct variant *c = p->c;
    int64_t d = c->width, all = (c->heads + 2 * c->kv_heads) * d;
    int64_t first = which ? (c->heads + (which - 1) * c->kv_heads) * d : 0;
    int64_t heads = which ? c->kv_heads : c->heads, rows = which ? c->keys : c->queries;

    if (c->layout == FUSED)
        return (struct heads_out){ moved(p, base[0], first), c->queries * all, all, d,
                                   false };
    if (c->layout == ONE)
        return (struct heads_out){ base[0], rows * heads * d, heads * d, d, false };
    if (c->layout == CACHE && which)
        return (struct heads_out){ base[which], capacity(c) * heads * d, d,
                                   capacity(c) * d, false };
    if (c->layout == TIME)
        return (struct heads_out){ base[which], heads * d, c->batch * heads * d, d,
                                   false };
    first = c->layout == ASIDE && which == 1 ? 4 : 0;
    return (struct heads_out){ moved(p, base[which], first), rows * row_of(c, heads),
                               row_of(c, heads), d, false };
}

static struct heads readable(struct heads_out h)
{
    return (struct heads){ h.data, h.sample, h.row, h.head };
}

static struct attention describe(const struct problem *p, void *const in[3])
{
    const struct variant *c = p->c;

    return (struct attention){ .type = p->type,
                               .batch = c->batch,
                               .queries = c->queries,
                               .keys = c->keys,
                               .heads = c->heads,
                               .kv_heads = c->kv_heads,
                               .head_width = c->width,
                               .q = readable(part(p, in, 0)),
                               .k = readable(part(p, in, 1)),
                               .v = readable(part(p, in, 2)),
                               .causal = c->options & CAUSAL,
                               .offset = c->keys - c->queries,
                               .scale = 1.0f / sqrtf((float)c->width),
                               .dropout = c->dropout,
                               .seed = 77,
                               .stream = ((uint64_t)3 << 40) + 5,
                               .first_sample = 5 };
}

/* Gradients that are not wanted, or that an earlier one of the same tensor precedes. */
static void choose(const struct problem *p, struct attention_grads *g)
{
    int options = p->c->options;

    g->dq.add = options & ADD;
    g->dk.add = options & ADD || p->c->layout == ONE;
    g->dv.add = options & ADD || p->c->layout == ONE;
    if (options & NO_Q)
        g->dq.data = NULL;
    if (options & NO_K)
        g->dk.data = NULL;
    if (options & NO_V)
        g->dv.data = NULL;
}

static float *take(const struct backend *be, const void *from, accel_dtype_t type,
                   int64_t n)
{
    float *x = calloc((size_t)n + 1, sizeof(*x));

    if (n > 0)
        be->to_host(be, x, from, type, n);
    return x;
}

static struct answer solve(const struct backend *be, const struct problem *p)
{
    void *in[3], *grad[3], *scratch, *back;
    struct answer a = { 0 };
    struct attention_grads g = { 0 };
    struct attention at;
    float *lse;
    void *out;

    for (int i = 0; i < 3; i++) {
        in[i] = place(be, p->in[i], p->type, p->elems[i]);
        grad[i] = place(be, p->start[i], p->type, p->elems[i]);
    }
    at = describe(p, in);
    if (p->c->options & LENGTHS)
        at.lengths = place_ints(be, p->lengths, p->c->batch);
    if (p->c->options & MASK)
        at.mask = place_ints(be, p->mask, (int64_t)p->c->batch * p->c->keys);
    out = place(be, NULL, p->type, p->out_elems);
    lse = place(be, NULL, ACCEL_F32, p->rows);
    scratch = take_room(be, MEMORY_WORK, be->attention_scratch(be, &at, false));
    back = take_room(be, MEMORY_WORK, be->attention_scratch(be, &at, true));
    be->attention(be, &at, out, lse, scratch);
    g.out = out;
    g.dout = place(be, p->dout, p->type, p->out_elems);
    g.lse = lse;
    g.dq = part(p, grad, 0);
    g.dk = part(p, grad, 1);
    g.dv = part(p, grad, 2);
    choose(p, &g);
    be->attention_grad(be, &at, &g, back);
    check_room(be, scratch, be->attention_scratch(be, &at, false), "attention");
    check_room(be, back, be->attention_scratch(be, &at, true), "attention_grad");
    a.of[OUT] = take(be, out, p->type, p->out_elems);
    a.lse = take(be, lse, ACCEL_F32, p->rows);
    for (int i = 0; i < 3; i++) {
        a.of[DQ + i] = take(be, grad[i], p->type, p->elems[i]);
        be->free(be, in[i]);
        be->free(be, grad[i]);
    }
    be->free(be, (void *)(uintptr_t)at.lengths);
    be->free(be, (void *)(uintptr_t)at.mask);
    be->free(be, (void *)(uintptr_t)g.dout);
    be->free(be, out);
    be->free(be, lse);
    be->free(be, scratch);
    be->free(be, back);
    return a;
}

static void drop_answer(struct answer *a)
{
    free(a->lse);
    for (int i = 0; i < RESULTS; i++)
        free(a->of[i]);
}

/* The largest difference, over the largest element. */
static double distance(const float *a, const float *b, int64_t n)
{
    double far = 0, most = 1e-3;

    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);

        most = fabs((double)b[i]) > most ? fabs((double)b[i]) : most;
        far = d > far || isnan(d) ? d : far;
    }
    return far / most;
}

static double lse_distance(const float *a, const float *b, int64_t n)
{
    double far = 0;

    for (int64_t i = 0; i < n; i++) {
        double d = isinf(a[i]) && isinf(b[i]) && a[i] > 0 && b[i] > 0
                       ? 0
                       : fabs((double)a[i] - (double)b[i]) / (1 + fabs((double)b[i]));

        far = d > far || isnan(d) ? d : far;
    }
    return far;
}

static bool same_bits(const struct answer *a, const struct answer *b,
                      const struct problem *p)
{
    bool same = !memcmp(a->lse, b->lse, (size_t)p->rows * sizeof(float)) &&
                !memcmp(a->of[OUT], b->of[OUT], (size_t)p->out_elems * sizeof(float));

    for (int i = 0; i < 3; i++)
        same = same && !memcmp(a->of[DQ + i], b->of[DQ + i],
                               (size_t)p->elems[i] * sizeof(float));
    return same;
}

static void check_answer(const char *form, const struct problem *p,
                         const struct answer *got, const struct answer *want)
{
    static const char *const names[] = { "out", "dq", "dk", "dv" };
    const struct variant *c = p->c;
    const double tolerance = p->type == ACCEL_F32   ? 1e-5
                             : p->type == ACCEL_F16 ? 2e-3
                                                    : 1e-2;
    char what[128];

    snprintf(what, sizeof(what),
             "%s%s B%d T%d S%d H%d/%d D%d layout %d options %d drop %g", form,
             accel_dtype_name(p->type), c->batch, c->queries, c->keys, c->heads,
             c->kv_heads, c->width, (int)c->layout, c->options, (double)c->dropout);
    tap_ok(lse_distance(got->lse, want->lse, p->rows) < 1e-5, "%s: lse %.1e", what,
           lse_distance(got->lse, want->lse, p->rows));
    for (int i = 0; i < RESULTS; i++) {
        int64_t n = i == OUT ? p->out_elems : p->elems[i - DQ];
        double far = distance(got->of[i], want->of[i], n);

        if (n > 0)
            tap_ok(far < tolerance, "%s: %s %.1e", what, names[i], far);
    }
}

static void test_variant(const struct variant *c, const struct backend *cpu,
                         const struct backend *gpu, accel_dtype_t type)
{
    struct problem p = pose(c, type);
    struct answer want = solve(cpu, &p), got = solve(gpu, &p), again = solve(gpu, &p);

    check_answer("", &p, &got, &want);
    tap_ok(same_bits(&got, &again, &p), "the same bits again");
    drop_answer(&want);
    drop_answer(&got);
    drop_answer(&again);
    drop_problem(&p);
}

/* What decides is in the shapes and addresses. */
static void test_paths(void)
{
    static const char row[64];
    void *base[3] = { (void *)((uintptr_t)(row + 15) & ~(uintptr_t)15) };
    struct variant c = { 2, 64, 64, 4, 2, 64, FUSED, CAUSAL, 0 };
    struct problem p = { .c = &c, .type = ACCEL_BF16 };
    struct attention a = describe(&p, base);
    struct attention_grads g = { 0 };

    tap_ok(attn_mma_fits(&a, NULL) && attn_mma_fits(&a, &g),
           "tensor cores: heads of 64");
    g.dout = (char *)base[0] + 2;
    tap_ok(!attn_mma_fits(&a, &g), "not when dout begins anywhere");
    a.q.row += 4;
    tap_ok(!attn_mma_fits(&a, NULL), "nor rows");
    a = describe(&p, base);
    a.head_width = 136;
    tap_ok(!attn_mma_fits(&a, NULL), "nor with wider heads");
    a = describe(&p, base);
    a.scale = 0.0f;
    tap_ok(!attn_mma_fits(&a, NULL), "nor with a scale of 0");
    a.scale = -0.1f;
    tap_ok(!attn_mma_fits(&a, NULL), "or below");
    a = describe(&p, base);
    a.type = ACCEL_F16;
    tap_ok(attn_mma_fits(&a, NULL), "float16 as well");
    a.type = ACCEL_F32;
    tap_ok(!attn_mma_fits(&a, NULL), "not float32");
    a.queries = 1;
    tap_ok(cuda_attention_decodes(&a), "one query: keys in parts");
    a.dropout = 0.1f;
    tap_ok(!cuda_attention_decodes(&a), "not with dropout");
    a.dropout = 0.0f;
    a.keys = 64;
    tap_is_int((long long)cuda_attention_bytes(&a, false),
               4 * (1 + 2 * 4 * ATTN_DECODE_SPLITS * (64 + 2)), "scratch of the parts");
    a.keys = 100000;
    tap_is_int((long long)cuda_attention_bytes(&a, false),
               4 * (1 + 2 * 4 * ATTN_DECODE_SPLITS * (64 + 2)),
               "of a full cache as well");
    tap_is_int((long long)cuda_attention_bytes(&a, true), 4 * (1 + 2 * 4),
               "a delta per query");
}

/* The stand-in takes its time: float16 goes the ways of bfloat16, with every second
 * shape. */
static bool is_enough(size_t i, accel_dtype_t type)
{
    void (*reset)(void);

    return type != ACCEL_F16 || i % 2 == 1 ||
           !cuda_stand_in("fakecuda_reset", (void *)&reset);
}

/* With the sanitizer each access takes its time, too: small shapes only, each with one
 * type. */
static bool is_tested(size_t i, accel_dtype_t type)
{
    const struct variant *v = &variants[i];

    if (TAP_SANITIZED)
        return v->batch * v->heads * v->queries * v->keys * v->width <= 250000 &&
               (type == ACCEL_F32) == (i % 2 == 0);
    return is_enough(i, type);
}

/* Some of those by wgmma. With one tensor for all gradients it makes seven products. */
static bool is_tested_wide(const struct variant *v, size_t i, accel_dtype_t type)
{
#ifdef __SANITIZE_ADDRESS__
    (void)i;
    return type == ACCEL_BF16 &&
           (v->options == (LENGTHS | MASK) || v->keys == 60 || v->layout == ONE);
#else
    (void)v;
    return is_enough(i, type);
#endif
}

static void test_all(struct backend *cpu, struct backend *gpu, accel_dtype_t type)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(variants); i++)
        if (is_tested(i, type))
            test_variant(&variants[i], cpu, gpu, type);
}

/* ---- the forms of our own kernels ------------------------------------------------ */

static const struct variant forms[] = {
    /* several samples and heads; of the stand-in's workspace, 4 MiB, it takes four
     * parts, the first two of a sample that is all padding */
    { 2, 330, 330, 16, 4, 16, SPLIT, CAUSAL | LENGTHS, 0.1f },
    { 2, 130, 190, 4, 2, 64, CACHE, CAUSAL, 0 },
    { 1, 200, 70, 2, 2, 128, FUSED, ADD, 0 },
    { 3, 70, 130, 2, 1, 24, SPLIT, MASK | LENGTHS, 0.2f },
    { 1, 190, 100, 2, 1, 72, SPLIT, CAUSAL, 0 },
};

/* By wgmma, where there is code for it. Six tiles of keys use each place three times;
 * so do six of queries. */
static const struct variant wide[] = {
    { 1, 40, 700, 2, 1, 64, SPLIT, 0, 0 },
    { 1, 150, 600, 1, 1, 128, CACHE, CAUSAL, 0 },
    { 3, 70, 130, 2, 1, 64, SPLIT, LENGTHS | MASK, 0 },
    { 2, 200, 200, 2, 2, 64, FUSED, CAUSAL, 0 },
    { 1, 120, 60, 4, 2, 128, SPLIT, CAUSAL, 0 },
    { 1, 330, 200, 2, 1, 128, SPLIT, ADD | NO_V, 0 },
    { 1, 70, 70, 1, 1, 64, ONE, ADD, 0 },
    { 1, 150, 330, 2, 1, 64, SPLIT, CAUSAL, 0.1f },
    { 2, 126, 130, 2, 1, 128, SPLIT, LENGTHS | MASK, 0.3f },
    { 1, 70, 70, 1, 1, 128, ONE, ADD, 0.2f },
    { 1, 40, 200, 2, 2, 128, SPLIT, CAUSAL | NO_K | NO_V, 0 },
    { 1, 150, 330, 2, 1, 64, SPLIT, CAUSAL | NO_K | NO_V, 0.1f },
    { 3, 140, 70, 2, 1, 64, TIME, CAUSAL, 0 },
    { 2, 60, 150, 1, 1, 128, TIME, ADD, 0 },
};

/* By mma.sync, as the stand-in's driver refuses its rows for tensor maps. */
static const struct variant refused = { 2, 70, 130, 3, 3, 64, GAPS, CAUSAL, 0 };

static struct backend *open_form(const char *name)
{
    struct backend *gpu;

    setenv("ACCEL_CUDA_ATTENTION", name, 1);
    gpu = cuda_device();
    unsetenv("ACCEL_CUDA_ATTENTION");
    return gpu;
}

/* By mma.sync, five products are the sums of seven, one of them left out: on the
 * stand-in, whose products add in one order, they have the same bits. */
static void test_products(const struct variant *c, const struct backend *cpu,
                          const struct backend *five, const struct backend *seven,
                          accel_dtype_t type, bool same)
{
    struct problem p = pose(c, type);
    struct answer want = solve(cpu, &p), a = solve(five, &p), b = solve(seven, &p);
    struct answer again = solve(five, &p);
    void (*reset)(void);

    check_answer("five ", &p, &a, &want);
    check_answer("seven ", &p, &b, &want);
    tap_ok(same_bits(&a, &again, &p), "five products: the same bits again");
    if (same && cuda_stand_in("fakecuda_reset", (void *)&reset))
        tap_ok(same_bits(&a, &b, &p), "five products: the bits of seven");
    drop_answer(&want);
    drop_answer(&a);
    drop_answer(&b);
    drop_answer(&again);
    drop_problem(&p);
}

/* Every device's own kernels: all by wgmma on a device that has it, which fails when the
 * module has no code for sm_90a. Some calls make five products, some seven. */
static void test_own(const struct backend *cpu, accel_dtype_t type, bool has_wgmma)
{
    int wgmma = 0, seven = 0, all = 0;
    struct backend *own;
    void (*reset)(void);

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(wide); i++) {
        if (!is_tested_wide(&wide[i], i, type))
            continue;
        own = open_form("own");
        test_variant(&wide[i], cpu, own, type);
        all++;
        wgmma +=
            strstr(own->isa, "attention: wgmma") && strstr(own->isa, "gradient: wgmma");
        seven += strstr(own->isa, "wgmma, 7 products") != NULL;
        backend_close(own);
    }
    tap_is_int(wgmma, has_wgmma ? all : 0, "%s calls by wgmma", accel_dtype_name(type));
    if (!has_wgmma || !all || !cuda_stand_in("fakecuda_reset", (void *)&reset))
        return;
    tap_ok(seven > 0 && seven < all, "%d of them in seven products", seven);
    own = open_form("own");
    test_variant(&refused, cpu, own, type);
    tap_ok(strstr(own->isa, "attention: mma.sync") && !strstr(own->isa, "wgmma"),
           "refused by the driver: %s", own->isa);
    backend_close(own);
}

/* Five and seven products have wgmma, too. */
static void test_wgmma_products(const struct backend *cpu)
{
    struct backend *five = open_form("five"), *seven = open_form("seven");

    test_products(&wide[3], cpu, five, seven, ACCEL_BF16, false);
    tap_ok(strstr(five->isa, "gradient: wgmma, 5 products"), "isa: %s", five->isa);
    tap_ok(strstr(seven->isa, "gradient: wgmma, 7 products"), "isa: %s", seven->isa);
    backend_close(five);
    backend_close(seven);
}

static void test_forms(const struct backend *cpu)
{
    struct backend *five = open_form("mma,five"), *seven = open_form("mma,seven");

#ifndef __SANITIZE_ADDRESS__
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(forms); i++) {
        test_products(&forms[i], cpu, five, seven, ACCEL_BF16, true);
        if (is_enough(i, ACCEL_F16))
            test_products(&forms[i], cpu, five, seven, ACCEL_F16, true);
    }
    tap_ok(strstr(five->isa, "gradient: 5 products, parts: 4") ||
               five->memory_bytes > (uint64_t)1 << 30,
           "isa: %s", five->isa);
    tap_ok(strstr(seven->isa, "gradient: 7 products"), "isa: %s", seven->isa);
#else
    test_products(&variants[14], cpu, five, seven, ACCEL_BF16, true);
#endif
    tap_ok(!five->advice && !seven->advice, "what was asked for needs no advice");
    backend_close(five);
    backend_close(seven);
}

int main(void)
{
    struct backend *gpu, *cpu;
    accel_error_t err = { 0 };

    /* the stand-in's: so little that a call is made in parts */
    setenv("FAKE_CUDA_MEMORY", "268435456", 0);
    gpu = cuda_device();
    test_paths();
    if (!tap_ok(!backend_cpu_open(&cpu, 2, &err), "open the CPU %s", err.text))
        return tap_done();
    test_all(cpu, gpu, ACCEL_F32);
    tap_ok(!gpu->advice, "float32 goes without cuDNN: no advice");
    test_all(cpu, gpu, ACCEL_F16);
    tap_ok(!gpu->advice, "nor does float16");
    test_all(cpu, gpu, ACCEL_BF16);
    tap_ok(strstr(gpu->isa, "own attention")
               ? gpu->advice && strstr(gpu->advice, "install cuDNN 9")
               : !gpu->advice,
           "bfloat16 without cuDNN: %s", gpu->advice ? gpu->advice : "it is there");
    test_own(cpu, ACCEL_BF16, !strncmp(gpu->isa, "sm_90,", 6));
    test_own(cpu, ACCEL_F16, !strncmp(gpu->isa, "sm_90,", 6));
    if (!strncmp(gpu->isa, "sm_90,", 6))
        test_wgmma_products(cpu);
    test_forms(cpu);
    tap_ok(!gpu->sync(gpu, &err), "no failure on the device %s", err.text);
    backend_close(gpu);
    backend_close(cpu);
    return tap_done();
}
