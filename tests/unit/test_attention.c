/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention in every variant against one in double: values, gradients by central
 * differences, the same bits for any number of threads and instruction set, dropout by
 * counter, padding, the cache, and misuse.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "backend/cpu/gemm/tile.h"
#include "numbers/rng.h"
#include "ops/kv.h"
#include "ops/ops.h"
#include "tests/tap.h"
#include "tests/world/op_rig.h"

/* With the sanitizer each access takes its time: the types take turns, since all of
 * them go the same ways through memory. */
#define TURNS TAP_SANITIZED

enum padding { NO_PAD, LENGTHS, MASK, BOTH };

static const struct variant {
    int batch, queries, keys, heads, kv_heads, width;
    bool fused, causal;
    enum padding padding;
    float scale, dropout;
} variants[] = {
    { 1, 1, 1, 1, 1, 1, true, true, NO_PAD, 0, 0 },
    { 2, 1, 1, 3, 3, 7, true, false, NO_PAD, 0, 0 },
    { 1, 1, 131, 4, 2, 16, false, true, NO_PAD, 0, 0 },
    { 3, 1, 67, 6, 1, 7, false, false, BOTH, 0.5f, 0 },
    { 2, 67, 67, 5, 5, 7, true, true, NO_PAD, 0, 0 },
    { 2, 67, 67, 4, 2, 13, true, true, NO_PAD, 0, 0 },
    { 1, 131, 131, 2, 1, 64, true, false, NO_PAD, 0, 0 },
    { 1, 64, 64, 2, 2, 80, false, true, NO_PAD, 0, 0 },
    { 1, 65, 65, 3, 1, 128, false, true, NO_PAD, 0.3f, 0 },
    { 2, 37, 101, 6, 3, 1, false, false, NO_PAD, 0, 0 },
    { 2, 101, 37, 2, 2, 11, false, false, NO_PAD, 0, 0 },
    { 2, 31, 97, 4, 2, 17, false, true, NO_PAD, 0, 0 },
    { 2, 97, 31, 4, 2, 17, false, true, NO_PAD, 0, 0 },
    { 5, 70, 70, 2, 1, 9, false, false, LENGTHS, 0, 0 },
    { 5, 70, 70, 2, 2, 9, true, true, LENGTHS, 0, 0 },
    { 3, 67, 130, 4, 2, 16, false, false, MASK, 0, 0 },
    { 3, 67, 67, 4, 2, 16, false, true, BOTH, 0, 0 },
    { 2, 19, 23, 2, 1, 5, false, false, NO_PAD, 0, 0.25f },
    { 2, 67, 67, 4, 2, 16, true, true, LENGTHS, 0, 0.5f },
    { 3, 1, 66, 2, 2, 3, false, false, MASK, 0, 0.1f },
};

struct call { /* one variant with its data, in double and as tensors */
    const struct variant *c;
    double *in[3]; /* q, k, v, or qkv in the first */
    int64_t elems[3], out_elems;
    int32_t *lengths, *mask;
    double *out, *weight;
    uint64_t seed, stream;
    int64_t first_sample;
    accel_tensor_t *t[3];
};

static void describe(struct call *k, const struct variant *c, accel_dtype_t type)
{
    int64_t q = (int64_t)c->batch * c->queries * c->width;
    int64_t kv = (int64_t)c->batch * c->keys * c->kv_heads * c->width;

    memset(k, 0, sizeof(*k));
    k->c = c;
    k->seed = 77;
    k->first_sample = 5;
    k->elems[0] = q * (c->fused ? c->heads + 2 * c->kv_heads : c->heads);
    k->elems[1] = k->elems[2] = c->fused ? 0 : kv;
    k->out_elems = q * c->heads;
    for (int i = 0; i < 3; i++)
        k->in[i] = rig_random(k->elems[i], type, 3.0);
    k->weight = rig_random(k->out_elems, type, 1.0);
    k->out = calloc((size_t)k->out_elems, sizeof(double));
    k->lengths = calloc((size_t)c->batch, sizeof(*k->lengths));
    k->mask = calloc((size_t)(c->batch * c->keys), sizeof(*k->mask));
    for (int b = 0; b < c->batch; b++) /* from none to all, and beyond */
        k->lengths[b] = b == 0 ? 0 : b == 1 ? c->keys + 3 : c->keys * b / c->batch;
    for (int i = 0; i < c->batch * c->keys; i++) /* holes; nothing in the last sample */
        k->mask[i] = i / c->keys < c->batch - 1 && i % 5 != 2 && i % 67 > 2;
}

static void release(struct call *k)
{
    for (int i = 0; i < 3; i++)
        free(k->in[i]);
    free(k->weight);
    free(k->out);
    free(k->lengths);
    free(k->mask);
}

static bool has_lengths(const struct variant *c)
{
    return c->padding == LENGTHS || c->padding == BOTH;
}

static bool has_mask(const struct variant *c)
{
    return c->padding == MASK || c->padding == BOTH;
}

/* The values of head h at a position: of q (which 0), k or v. */
static const double *at(const struct call *k, int which, int b, int t, int h)
{
    const struct variant *c = k->c;
    int64_t all = c->heads + 2 * c->kv_heads, d = c->width;
    int64_t first = which == 0 ? 0 : c->heads + (which - 1) * c->kv_heads;

    if (c->fused)
        return k->in[0] + ((int64_t)b * c->queries + t) * all * d + (first + h) * d;
    if (which == 0)
        return k->in[0] + (((int64_t)b * c->queries + t) * c->heads + h) * d;
    return k->in[which] + (((int64_t)b * c->keys + t) * c->kv_heads + h) * d;
}

static bool visible(const struct call *k, int b, int t, int j)
{
    const struct variant *c = k->c;

    return !(c->causal && j > c->keys - c->queries + t) &&
           !(has_lengths(c) && j >= k->lengths[b]) &&
           !(has_mask(c) && !k->mask[b * c->keys + j]);
}

/* What dropout leaves of probability j. */
static double kept(const struct call *k, int b, int h, int t, int j)
{
    const struct variant *c = k->c;
    uint64_t row =
        ((uint64_t)(k->first_sample + b) * (uint64_t)c->heads + (uint64_t)h) *
            (uint64_t)c->queries +
        (uint64_t)t;
    uint32_t word[4];

    if (!(c->dropout > 0))
        return 1.0;
    rng_block(k->seed, k->stream, row * (uint64_t)((c->keys + 3) / 4) + (uint64_t)j / 4,
              word);
    return word[j % 4] * 0x1p-32 < (double)c->dropout ? 0.0
                                                      : 1 / (1 - (double)c->dropout);
}

static void reference_row(const struct call *k, int b, int h, int t, double *p)
{
    const struct variant *c = k->c;
    int kv = h / (c->heads / c->kv_heads);
    double scale = c->scale != 0 ? (double)c->scale : 1 / sqrt(c->width);
    double max = -INFINITY, sum = 0;
    double *y = k->out + (((int64_t)b * c->queries + t) * c->heads + h) * c->width;

    for (int j = 0; j < c->keys; j++) {
        const double *q = at(k, 0, b, t, h), *key = at(k, 1, b, j, kv);

        p[j] = 0;
        for (int i = 0; i < c->width; i++)
            p[j] += scale * q[i] * key[i];
        p[j] = visible(k, b, t, j) ? p[j] : -INFINITY;
        max = p[j] > max ? p[j] : max;
    }
    for (int j = 0; j < c->keys; j++)
        sum += p[j] = p[j] > -INFINITY ? exp(p[j] - max) : 0;
    for (int i = 0; i < c->width; i++)
        y[i] = 0;
    for (int j = 0; j < c->keys; j++) {
        double share = p[j] > 0 ? p[j] / sum * kept(k, b, h, t, j) : 0;
        const double *value = at(k, 2, b, j, kv);

        for (int i = 0; i < c->width && share > 0; i++)
            y[i] += share * value[i];
    }
}

static double reference(const struct call *k)
{
    const struct variant *c = k->c;
    double *p = malloc((size_t)c->keys * sizeof(*p)), loss = 0;

    for (int b = 0; b < c->batch; b++)
        for (int h = 0; h < c->heads; h++)
            for (int t = 0; t < c->queries; t++)
                reference_row(k, b, h, t, p);
    for (int64_t i = 0; i < k->out_elems; i++)
        loss += k->weight[i] * k->out[i];
    free(p);
    return loss;
}

static accel_tensor_t *int_tensor(struct graph *g, int ndim, int64_t a, int64_t b,
                                  const int32_t *from)
{
    accel_tensor_t *t = graph_tensor(g, ACCEL_I32, ndim, (int64_t[]){ a, b });

    memcpy(t->data, from, (size_t)t->elems * sizeof(*from));
    return t;
}

static accel_tensor_t *call_forward(struct call *k, struct graph *g)
{
    const struct variant *c = k->c;
    int64_t all = c->fused ? c->heads + 2 * c->kv_heads : c->heads;
    accel_attention_t o = {
        sizeof(o),           .heads = c->heads, .kv_heads = c->kv_heads,
        .causal = c->causal, .scale = c->scale, .dropout = c->dropout
    };

    g->draws = (struct draws){ k->seed, k->first_sample, c->batch, 2 };
    if (c->dropout > 0) {
        k->stream = op_draw_stream(g);
        g->draws.calls--;
    }
    if (has_lengths(c))
        o.lengths = int_tensor(g, 1, c->batch, 0, k->lengths);
    if (has_mask(c))
        o.mask = int_tensor(g, 2, c->batch, c->keys, k->mask);
    k->t[0] = rig_tensor(g, k->in[0], c->batch, c->queries, all * c->width);
    if (c->fused)
        return accel_attention(k->t[0], NULL, NULL, &o);
    for (int i = 1; i < 3; i++)
        k->t[i] = rig_tensor(g, k->in[i], c->batch, c->keys, c->kv_heads * c->width);
    return accel_attention(k->t[0], k->t[1], k->t[2], &o);
}

static void check_grad(struct call *k, int which, double tolerance, const char *what)
{
    int64_t n = k->elems[which], stride = n / 30 + 1, count = 0;
    double got[64], want[64], *v = k->in[which];
    float *all = malloc((size_t)n * sizeof(*all));

    accel_tensor_read(k->t[which]->grad, all, (size_t)n, NULL);
    for (int64_t i = 0; i < n; i += stride) {
        double h = 1e-5, keep = v[i], up, down;

        v[i] = keep + h;
        up = reference(k);
        v[i] = keep - h;
        down = reference(k);
        v[i] = keep;
        got[count] = all[i];
        want[count++] = (up - down) / (2 * h);
    }
    tap_ok(rig_distance(got, want, count, 1e-3) < tolerance,
           "%s: gradient of input %d, distance %.1e", what, which,
           rig_distance(got, want, count, 1e-3));
    free(all);
}

static void test_variant(const struct variant *c, struct backend *be,
                         accel_dtype_t type)
{
    double tolerance = type == ACCEL_F32 ? 1e-5 : type == ACCEL_F16 ? 3e-3 : 2e-2;
    accel_error_t err = { 0 };
    accel_tensor_t *y;
    struct graph g;
    struct call k;
    char what[160];

    snprintf(what, sizeof(what), "%s B%d T%d S%d H%d/%d D%d%s%s%s, dropout %g",
             accel_dtype_name(type), c->batch, c->queries, c->keys, c->heads,
             c->kv_heads, c->width, c->causal ? " causal" : "",
             has_lengths(c) ? " lengths" : "", has_mask(c) ? " mask" : "",
             (double)c->dropout);
    describe(&k, c, type);
    graph_open(&g, be, type, false, NULL);
    y = call_forward(&k, &g);
    if (!tap_ok(y != NULL, "%s: forward %s", what, g.error.text))
        return;
    reference(&k);
    rig_check(y, k.out, tolerance, what);
    tap_ok(!graph_backward(&g, rig_weigh(&g, y, k.weight), 1.0f, &err),
           "%s: backward %s", what, err.text);
    for (int i = 0; i < (c->fused ? 1 : 3); i++)
        check_grad(&k, i, tolerance, what);
    release(&k);
    graph_close(&g);
}

/* Output and gradients of one variant into `to`; how many floats. */
static size_t run_once(const struct variant *c, int threads, accel_dtype_t type,
                       float *to)
{
    struct backend *be;
    accel_tensor_t *y;
    size_t n = 0;
    struct graph g;
    struct call k;

    rig_seed(9);
    describe(&k, c, type);
    if (backend_cpu_open(&be, threads, NULL) || graph_open(&g, be, type, false, NULL))
        return 0;
    y = call_forward(&k, &g);
    accel_tensor_read(y, to, (size_t)y->elems, NULL);
    n = (size_t)y->elems;
    graph_backward(&g, rig_weigh(&g, y, k.weight), 1.0f, NULL);
    for (int i = 0; i < (c->fused ? 1 : 3); i++) {
        accel_tensor_read(k.t[i]->grad, to + n, (size_t)k.elems[i], NULL);
        n += (size_t)k.elems[i];
    }
    release(&k);
    graph_close(&g);
    backend_close(be);
    return n;
}

/* With few heads and many threads the backward goes over blocks, else over heads. */
static void test_threads(accel_dtype_t type)
{
    static const struct variant c[] = {
        { 1, 200, 200, 2, 1, 24, true, true, NO_PAD, 0, 0.2f },
        { 3, 130, 131, 6, 2, 20, false, false, BOTH, 0, 0 },
        { 3, 1, 131, 6, 2, 20, false, false, BOTH, 0, 0 },
    };
    static const int threads[] = { 2, 3, 7 };
    float *a = malloc(sizeof(float) << 20), *b = malloc(sizeof(float) << 20);

    for (size_t v = 0; v < ACCEL_ARRAY_SIZE(c); v++) {
        size_t n = run_once(&c[v], 1, type, a);

        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(threads); i++)
            tap_ok(run_once(&c[v], threads[i], type, b) == n &&
                       !memcmp(a, b, n * sizeof(*a)),
                   "%s variant %zu: the bits of 1 thread with %d",
                   accel_dtype_name(type), v, threads[i]);
    }
    free(a);
    free(b);
}

static void test_tiles(void)
{
    enum { M = 37, N = 48, K = 29 };
    static float a[M * K], b[K * N], c[3][M * N];
    double *values = rig_random(M * K + K * N, ACCEL_F32, 1.0);
    enum tile_isa best = tile_isa();

    for (int i = 0; i < M * K; i++)
        a[i] = (float)values[i];
    for (int i = 0; i < K * N; i++)
        b[i] = (float)values[M * K + i];
    for (int by_row = 0; by_row < 2; by_row++)
        for (int add = 0; add < 2; add++) {
            float want = 0.0f;

            for (int isa = 0; isa <= (int)best; isa++) {
                for (int i = 0; i < M * N; i++)
                    c[isa][i] = 0.25f * (float)(i % 7);
                tile_product((enum tile_isa)isa,
                             &(struct tile){ .m = M,
                                             .n = N,
                                             .k = K,
                                             .a = a,
                                             .a_row = by_row ? 1 : K,
                                             .a_col = by_row ? M : 1,
                                             .b = b,
                                             .ldb = N,
                                             .c = c[isa],
                                             .ldc = N,
                                             .add = add });
                tap_ok(!memcmp(c[0], c[isa], sizeof(c[0])),
                       "tile product: instruction set %d has the bits of plain C", isa);
            }
            want = add ? 0.25f * (float)((5 * N + 11) % 7) : 0.0f;
            for (int i = 0; i < K; i++)
                want = fmaf(by_row ? a[5 + i * M] : a[5 * K + i], b[i * N + 11], want);
            tap_ok(c[0][5 * N + 11] == want, "tile product: one element by hand");
        }
    free(values);
}

/* A mask element depends on sample, head, query and key only. */
static void test_dropout(struct backend *be)
{
    static const struct variant all = { 4,     33,    70,     2, 2,   8,
                                        false, false, NO_PAD, 0, 0.3f };
    struct variant half = all;
    struct call k, part;
    accel_tensor_t *y, *z;
    struct graph g;
    int64_t per_sample;

    half.batch = 2;
    describe(&k, &all, ACCEL_F32);
    describe(&part, &half, ACCEL_F32);
    for (int i = 0; i < 3; i++)
        memcpy(part.in[i], k.in[i] + part.elems[i],
               (size_t)part.elems[i] * sizeof(double));
    part.first_sample += 2;
    graph_open(&g, be, ACCEL_F32, false, NULL);
    y = call_forward(&k, &g);
    z = call_forward(&part, &g);
    per_sample = part.out_elems;
    tap_ok(!memcmp((float *)y->data + per_sample, z->data, (size_t)per_sample * 4),
           "dropout: the second half of a batch alone has the same mask");
    g.draws.calls = 3;
    y = accel_attention(
        k.t[0], k.t[1], k.t[2],
        &(accel_attention_t){ sizeof(accel_attention_t), .heads = 2, .dropout = 0.3f });
    z = accel_attention(
        k.t[0], k.t[1], k.t[2],
        &(accel_attention_t){ sizeof(accel_attention_t), .heads = 2, .dropout = 0.3f });
    tap_ok(memcmp(y->data, z->data, (size_t)y->elems * 4) != 0,
           "dropout: the next call has another mask");
    g.training = false;
    y = accel_attention(
        k.t[0], k.t[1], k.t[2],
        &(accel_attention_t){ sizeof(accel_attention_t), .heads = 2, .dropout = 0.3f });
    z = accel_attention(k.t[0], k.t[1], k.t[2],
                        &(accel_attention_t){ sizeof(accel_attention_t), .heads = 2 });
    tap_ok(!memcmp(y->data, z->data, (size_t)y->elems * 4), "evaluation drops nothing");
    release(&k);
    release(&part);
    graph_close(&g);
}

/* Another layer's positions, in float32. */
static void append_wide(struct graph *g, accel_attention_t o, const double *part,
                        int64_t batch, int64_t n, int64_t cols)
{
    const accel_dtype_t type = g->compute;

    o.layer = 1;
    g->compute = ACCEL_F32;
    accel_attention(rig_tensor(g, part, batch, n, cols), NULL, NULL, &o);
    g->compute = type;
}

/* Positions in parts through a cache against all at once. The layer before it is in
 * float32. */
static void test_cache(struct backend *be, accel_dtype_t type, int kv_heads)
{
    enum { B = 2, T = 150, H = 4, D = 24 };
    static const int parts[] = { 70, 1, 1, 64, 13, 1 };
    int64_t cols = (H + 2 * kv_heads) * D, from = 0;
    double *all = rig_random(B * T * cols, type, 3.0), *want, *part, far = 0;
    accel_attention_t o = { sizeof(o), .heads = H, .kv_heads = kv_heads, .causal = 1 };
    float *got = malloc(sizeof(*got) * B * T * H * D);
    accel_error_t err = { 0 };
    accel_tensor_t *y;
    accel_kv_t *kv;
    struct graph g;

    part = malloc(sizeof(*part) * (size_t)(B * T * cols));
    want = malloc(sizeof(*want) * B * T * H * D);
    graph_open(&g, be, type, false, NULL);
    g.recording = false;
    y = accel_attention(rig_tensor(&g, all, B, T, cols), NULL, NULL, &o);
    accel_tensor_read(y, got, B * T * H * D, NULL);
    for (int i = 0; i < B * T * H * D; i++)
        want[i] = got[i];
    g.widest = ACCEL_F32;
    kv = kv_new(&g, 3, B, T, kv_heads, D, &err);
    o.cache = kv;
    o.layer = 2;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(parts); i++) {
        for (int b = 0; b < B; b++)
            memcpy(part + b * parts[i] * cols, all + (b * T + from) * cols,
                   (size_t)(parts[i] * cols) * sizeof(double));
        y = accel_attention(rig_tensor(&g, part, B, parts[i], cols), NULL, NULL, &o);
        append_wide(&g, o, part, B, parts[i], cols);
        if (!y || accel_kv_advance(kv, parts[i], &err))
            break;
        accel_tensor_read(y, got, (size_t)y->elems, NULL);
        for (int64_t e = 0; e < y->elems; e++) {
            int64_t b = e / (parts[i] * H * D), rest = e % (parts[i] * H * D);
            double d = fabs(got[e] - want[(b * T + from) * H * D + rest]);

            far = d > far || isnan(d) ? d : far;
        }
        from += parts[i];
    }
    tap_ok(from == T && far < (type == ACCEL_F32   ? 2e-6
                               : type == ACCEL_F16 ? 3e-3
                                                   : 2e-2),
           "%s, %d kv heads: in parts through a cache as at once, %.1e %s",
           accel_dtype_name(type), kv_heads, far, g.error.text);
    tap_is_int(accel_kv_length(kv), T, "the cache is full");
    tap_ok(!accel_attention(rig_tensor(&g, part, B, 1, cols), NULL, NULL, &o) &&
               strstr(g.error.text, "do not fit into a cache of 150"),
           "one more is refused: %s", g.error.text);
    tap_is_int(accel_kv_advance(kv, 1, &err), ACCEL_EINVAL, "and cannot be counted");
    tap_is_int(accel_kv_trim(kv, T + 1, &err), ACCEL_EINVAL, "trim makes no longer");
    tap_ok(!accel_kv_trim(kv, 3, &err) && accel_kv_length(kv) == 3, "trim");
    accel_kv_free(kv);
    accel_kv_free(NULL);
    free(all);
    free(part);
    free(want);
    free(got);
    graph_close(&g);
}

/* One call with a cache of layer `layer`, of `positions` new ones; is it done? */
static bool cached(struct graph *g, accel_kv_t *kv, int layer, int positions)
{
    static double zero[2 * 5 * 8];
    const accel_attention_t o = { sizeof(o), .heads = 2, .kv_heads = 1, .layer = layer,
                                  .cache = kv };

    graph_reset(g);
    return accel_attention(rig_tensor(g, zero, 2, positions, 8),
                           rig_tensor(g, zero, 2, positions, 4),
                           rig_tensor(g, zero, 2, positions, 4), &o) != NULL;
}

static void test_misuse(struct backend *be)
{
    const char *const texts[] = {
        "q [2, 3, 8] and k [2, 3, 6] do not fit",
        "k [2, 3, 4] and v [2, 5, 4] do not fit",
        "lengths [3] do not fit a batch of 2",
        "mask [2, 4] does not fit",
        "dropout 1 ",
        "no backward",
        "input 3 is NULL",
        "the options are NULL",
        "does not fit 2 heads",
        "lengths must be int32",
    };
    double zero[64] = { 0 };
    accel_error_t err = { 0 };
    struct graph g;
    accel_kv_t *kv;

    graph_open(&g, be, ACCEL_F32, false, NULL);
    kv = kv_new(&g, 1, 2, 4, 1, 4, &err);
    tap_ok(!kv_new(&g, 1, 0, 4, 1, 4, &err) && err.code == ACCEL_EINVAL,
           "a cache of batch 0: %s", err.text);
    tap_ok(!kv_new(&g, 1 << 30, 1 << 30, 1 << 30, 1, 4, &err) && err.code, "%s",
           err.text);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(texts); i++) {
        accel_attention_t o = { sizeof(o), .heads = 2, .kv_heads = 1 };
        accel_tensor_t *q, *k, *v;

        graph_reset(&g);
        q = rig_tensor(&g, zero, 2, 3, 8);
        k = rig_tensor(&g, zero, 2, 3, i == 0 ? 6 : 4);
        v = i == 6 ? NULL : rig_tensor(&g, zero, 2, i == 1 ? 5 : 3, 4);
        o.lengths = i == 2   ? graph_tensor(&g, ACCEL_I32, 1, (int64_t[]){ 3 })
                    : i == 9 ? rig_tensor(&g, zero, 2, 1, 1)
                             : NULL;
        o.mask = i == 3 ? graph_tensor(&g, ACCEL_I32, 2, (int64_t[]){ 2, 4 }) : NULL;
        o.dropout = i == 4 ? 1.0f : 0.0f;
        o.cache = i == 5 ? kv : NULL;
        o.kv_heads = i == 8 ? 3 : 1;
        tap_ok(!accel_attention(q, k, v, i == 7 ? NULL : &o) &&
                   strstr(g.error.text, texts[i]),
               "misuse: %s", g.error.text);
    }
    accel_kv_free(kv);
    g.widest = ACCEL_BF16;
    kv = kv_new(&g, 1, 2, 4, 1, 4, &err);
    g.recording = false;
    tap_ok(!cached(&g, kv, 0, 1) && strstr(g.error.text, "has room for bfloat16"),
           "misuse: %s", g.error.text);
    accel_kv_free(kv);
    graph_close(&g);
}

/* The edges of a cache: of 2 layers and 4 positions. */
static void test_cache_limits(struct backend *be)
{
    accel_error_t err = { 0 };
    struct graph g;
    accel_kv_t *kv;

    graph_open(&g, be, ACCEL_F32, false, NULL);
    for (int i = 0; i < 5; i++) {
        int size[5] = { 1, 1, 1, 1, 1 };

        size[i] = 0;
        tap_ok(!kv_new(&g, size[0], size[1], size[2], size[3], size[4], &err) &&
                   err.code == ACCEL_EINVAL,
               "no cache of size %d 0", i);
        size[i] = -1;
        tap_ok(!kv_new(&g, size[0], size[1], size[2], size[3], size[4], &err),
               "nor less");
    }
    kv = kv_new(&g, 2, 2, 4, 1, 4, &err);
    tap_ok(!cached(&g, kv, 0, 1) && strstr(g.error.text, "no backward"), "%s",
           g.error.text);
    g.recording = false;
    tap_ok(cached(&g, kv, 0, 1) && cached(&g, kv, 1, 4), "both layers, all positions");
    tap_ok(!cached(&g, kv, 2, 1) && strstr(g.error.text, "layer 2"), "%s",
           g.error.text);
    tap_ok(!cached(&g, kv, -1, 1) && strstr(g.error.text, "layer -1"), "%s",
           g.error.text);
    tap_ok(!cached(&g, kv, 0, 5) && strstr(g.error.text, "cache of 4"), "%s",
           g.error.text);
    tap_ok(accel_kv_advance(kv, 5, &err) == ACCEL_EINVAL &&
               strstr(err.text, "advance by 5 positions: 0 of 4 are used") &&
               accel_kv_advance(kv, -1, &err) == ACCEL_EINVAL &&
               !accel_kv_advance(kv, 3, &err) && accel_kv_length(kv) == 3,
           "3 of 4 are used");
    tap_ok(cached(&g, kv, 1, 1) && !cached(&g, kv, 1, 2), "one more, not two");
    tap_ok(accel_kv_advance(kv, 2, &err) == ACCEL_EINVAL &&
               accel_kv_trim(kv, 4, &err) == ACCEL_EINVAL &&
               accel_kv_trim(kv, -1, &err) == ACCEL_EINVAL && accel_kv_length(kv) == 3,
           "nor forward two or back to more");
    tap_ok(!accel_kv_advance(kv, 1, &err) && !cached(&g, kv, 0, 1) &&
               !accel_kv_trim(kv, 0, &err) && cached(&g, kv, 0, 4),
           "full, and empty again");
    accel_kv_free(kv);
    graph_close(&g);
}

static void test_golden(struct backend *be)
{
    FILE *f = rig_golden("attention.golden");
    double c[8];
    int cases = 0;

    while (f && rig_line(f, "case", c, 8) == 8) {
        int64_t b = (int64_t)c[0], t = (int64_t)c[1], s = (int64_t)c[2];
        int64_t h = (int64_t)c[3], k = (int64_t)c[4], d = (int64_t)c[5];
        accel_attention_t o = { sizeof(o), .heads = (int)h, .kv_heads = (int)k,
                                .causal = c[6] != 0 };
        accel_tensor_t *q, *key, *value, *y;
        double *from[4];
        struct graph g;
        char what[64];

        snprintf(what, sizeof(what), "golden case %d", ++cases);
        rig_seed(11);
        graph_open(&g, be, ACCEL_F32, false, NULL);
        q = rig_tensor(&g, from[0] = rig_random(b * t * h * d, ACCEL_F32, 3), b, t,
                       h * d);
        key = rig_tensor(&g, from[1] = rig_random(b * s * k * d, ACCEL_F32, 3), b, s,
                         k * d);
        value = rig_tensor(&g, from[2] = rig_random(b * s * k * d, ACCEL_F32, 3), b, s,
                           k * d);
        from[3] = rig_random(b * t * h * d, ACCEL_F32, 1);
        if (c[7] != 0) {
            o.lengths = graph_tensor(&g, ACCEL_I32, 1, &b);
            for (int i = 0; i < b; i++)
                ((int32_t *)o.lengths->data)[i] = (int32_t)s - i;
        }
        y = accel_attention(q, key, value, &o);
        rig_check_line(f, "out", y, 1e-5, what);
        graph_backward(&g, rig_weigh(&g, y, from[3]), 1.0f, NULL);
        rig_check_line(f, "dq", q->grad, 1e-5, what);
        rig_check_line(f, "dk", key->grad, 1e-5, what);
        rig_check_line(f, "dv", value->grad, 1e-5, what);
        for (int i = 0; i < 4; i++)
            free(from[i]);
        graph_close(&g);
    }
    tap_is_int(cases, 7, "all golden cases");
    if (f)
        fclose(f);
}

int main(void)
{
    struct backend *be = NULL;
    accel_error_t err = { 0 };

    test_tiles();
    if (!tap_ok(!backend_cpu_open(&be, 2, &err), "open %s", err.text))
        return tap_done();
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(variants); i++) {
        if (!TURNS || i % 3 == 0)
            test_variant(&variants[i], be, ACCEL_F32);
        if (!TURNS || i % 3 == 1)
            test_variant(&variants[i], be, ACCEL_BF16);
        if (!TURNS || i % 3 == 2)
            test_variant(&variants[i], be, ACCEL_F16);
    }
    test_golden(be);
    test_threads(ACCEL_F32);
    if (!TURNS) {
        test_threads(ACCEL_BF16);
        test_threads(ACCEL_F16);
    }
    test_dropout(be);
    for (int kv = 1; kv <= 4; kv *= 2) {
        test_cache(be, ACCEL_F32, kv);
        test_cache(be, ACCEL_BF16, kv);
        test_cache(be, ACCEL_F16, kv);
    }
    test_misuse(be);
    test_cache_limits(be);
    backend_close(be);
    return tap_done();
}
