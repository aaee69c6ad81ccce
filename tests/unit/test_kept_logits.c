/* SPDX-License-Identifier: Apache-2.0
 *
 * Logits that stay from the forward of the head to its backward: as many chunks as
 * there is room for, one product less for each, the same bits. The gaps between rows
 * are NaN, which nobody reads. And the room that nn_keep_logits finds.
 */
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/model_config.h"
#include "tests/tap.h"
#include "tests/world/module_rig.h"
#include "tests/world/op_rig.h"

/* Five chunks of rows, the last one short; rows are padded to LD. */
enum { CHUNK = 4096, CHUNKS = 5, ROWS = 4 * CHUNK + 100, COLS = 3, VOCAB = 131 };
enum { LD = 192, CHUNK_BYTES = CHUNK * LD * 4 };

/* What a forward and a backward left. */
struct result {
    float loss, dx[ROWS * COLS], dw[VOCAB * COLS], db[VOCAB];
    int products;
    size_t peak;
};

static struct {
    int products;
    struct backend real;
} count;

/* The product of the head, after NaN has been put between the rows of its result. */
static void count_gemm(const struct backend *be, const struct gemm *p)
{
    float *c = p->c;

    count.products++;
    for (int64_t r = 0; p->trans_b && r < p->m; r++)
        for (int64_t i = p->n; i < p->ldc; i++)
            c[r * p->ldc + i] = NAN;
    count.real.gemm(be, p);
}

struct net {
    accel_tensor_t *weight, *bias;
    bool biased;
};

static accel_tensor_t *head_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    const struct net *net = accel_module_state(m);

    (void)n;
    return accel_cross_entropy(in[0], net->weight, net->biased ? net->bias : NULL,
                               in[1], NULL);
}

static const accel_class_t net_class = { sizeof(net_class), "Head", head_forward,
                                         sizeof(struct net) };

static void step(struct module_rig *k, const double *x, struct result *out)
{
    const struct net *net = accel_module_state(k->model);
    struct graph *g = &k->g;
    accel_tensor_t *in[2], *loss;

    in[0] = rig_tensor(g, x, 1, ROWS, COLS);
    in[1] = graph_tensor(g, ACCEL_I32, 2, (int64_t[]){ 1, ROWS });
    for (int i = 0; i < ROWS; i++)
        ((int32_t *)in[1]->data)[i] = i % 7 == 6 ? -1 : i * 31 % VOCAB;
    loss = accel_call(k->model, in, 2);
    out->loss = NAN;
    if (!loss || accel_tensor_read(loss, &out->loss, 1, NULL) ||
        graph_backward(g, loss, 1.0f, NULL) ||
        accel_tensor_read(in[0]->grad, out->dx, ROWS * COLS, NULL))
        tap_diag("%s: %s", g->error.where, g->error.text);
    memcpy(out->dw, k->r.grad[0] + net->weight->param->unit_offset, sizeof(out->dw));
    memcpy(out->db, k->r.grad[0] + net->bias->param->unit_offset, sizeof(out->db));
    out->peak = arena_peak_bytes(g->arena);
    out->products = count.products;
}

/* The same values every time. */
static void run(accel_dtype_t type, bool bias, size_t room, struct result *out)
{
    const accel_init_t normal = { ACCEL_INIT_NORMAL, 1 };
    const int64_t vocab = VOCAB;
    struct module_rig k;
    accel_module_t *m;
    struct net *net;
    double *x;

    memset(out, 0xff, sizeof(*out)); /* a loss of NaN, which is no result */
    rig_seed(3);
    x = rig_random(ROWS * COLS, type, 2);
    if (!module_rig_open(&k, type, 2))
        return;
    m = k.model = nn_module_new(&k.g, &net_class, NULL, "");
    net = accel_module_state(m);
    net->biased = bias;
    net->weight = accel_param(m, "weight", 2, (int64_t[]){ VOCAB, COLS }, normal);
    net->bias = accel_param(m, "bias", 1, &vocab, normal);
    memset(&count, 0, sizeof(count));
    count.real = *k.be;
    k.be->gemm = count_gemm;
    k.g.logits_room = room;
    if (module_rig_fill(&k, false, NULL))
        step(&k, x, out);
    module_rig_close(&k);
    free(x);
}

static bool same(const struct result *a, const struct result *b)
{
    return isfinite(a->loss) && a->loss == b->loss &&
           !memcmp(a->dx, b->dx, sizeof(a->dx)) &&
           !memcmp(a->dw, b->dw, sizeof(a->dw)) && !memcmp(a->db, b->db, sizeof(a->db));
}

static void test_chunks(accel_dtype_t type, bool bias)
{
    static const struct {
        size_t room;
        int chunks;
    } t[] = {
        { 0, 1 },
        { CHUNK_BYTES - 1, 1 },
        { CHUNK_BYTES, 2 },
        { 2 * CHUNK_BYTES + 5, 3 },
        { 3 * CHUNK_BYTES, 4 },
        /* the last chunk is short */
        { 3 * CHUNK_BYTES + 100 * LD * 4 - 1, 4 },
        { 3 * CHUNK_BYTES + 100 * LD * 4, 5 },
        { (size_t)1 << 40, 5 },
    };
    const char *name = accel_dtype_name(type);
    static struct result first, r;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(t); i++) {
        const int kept = t[i].chunks;
        const int64_t rows = kept < CHUNKS ? (int64_t)kept * CHUNK : ROWS;

        run(type, bias, t[i].room, &r);
        if (i == 0)
            first = r;
        /* one per chunk forward, two backward, and those that are made again */
        tap_is_int(r.products, 3 * CHUNKS + CHUNKS - kept,
                   "%s%s, %zu bytes: products with %d of %d chunks kept", name,
                   bias ? " with a bias" : "", t[i].room, kept, CHUNKS);
        tap_is_int((long long)(r.peak - first.peak), (rows - CHUNK) * LD * 4,
                   "the memory of these");
        tap_ok(same(&r, &first), "the bits of one, loss %g", (double)r.loss);
    }
}

/* ---- the room -------------------------------------------------------------------- */

enum { BATCH = 160, TIME = 64, LAYERS = 1 }; /* two chunks and a half */

/* The arena's peak after a real micro-batch. */
static size_t real_peak(struct module_rig *k)
{
    accel_tensor_t *in[2], *loss;
    struct graph *g = &k->g;

    for (int i = 0; i < 2; i++) {
        in[i] = graph_tensor(g, ACCEL_I32, 2, (int64_t[]){ BATCH, TIME });
        memset(in[i]->data, 0, (size_t)BATCH * TIME * sizeof(int32_t));
    }
    loss = accel_call(k->model, in, 2);
    if (!loss || graph_backward(g, loss, 1.0f, NULL))
        tap_diag("%s: %s", g->error.where, g->error.text);
    graph_reset(g);
    return arena_peak_bytes(g->arena);
}

/* Bytes on the host that a hundred measurements more leave. */
static long long left_behind(accel_module_t *m, const accel_field_t *fields)
{
    const size_t before = mallinfo2().uordblks;
    size_t peak;

    for (int i = 0; i < 100; i++)
        nn_measure(m, BATCH, fields, 2, true, &peak, NULL);
    return (long long)(mallinfo2().uordblks - before);
}

/* `more` bytes beside the peak without: `kept` rows are kept. */
static void test_room(int64_t more, int64_t kept)
{
    const accel_field_t tokens = { ACCEL_I32, 1, { TIME } },
                        fields[] = { tokens, tokens };
    const accel_model_config_t cfg = { .model_type = "gpt2",
                                       .layers = LAYERS,
                                       .heads = 1,
                                       .width = 8,
                                       .context = TIME,
                                       .vocab = VOCAB };
    size_t least = 0, peak, most;
    struct module_rig k;

    if (!module_rig_open(&k, ACCEL_F32, 2))
        return;
    k.model = model_new(&k.g, &cfg, NULL);
    if (!module_rig_fill(&k, true, "") ||
        nn_measure(k.model, BATCH, fields, 2, true, &least, NULL))
        tap_ok(false, "open");
    peak = least;
    most = (size_t)((int64_t)least + more);
    tap_is_int(nn_keep_logits(k.model, BATCH, fields, 2, most, &peak, NULL), 0,
               "%lld bytes more", (long long)more);
    tap_is_int((long long)(peak - least), (kept - CHUNK) * LD * 4,
               "the logits of %lld rows are kept", (long long)kept);
    tap_ok(kept > CHUNK ? peak <= most : k.g.logits_room == 0, "no more than there is");
    tap_is_int((long long)real_peak(&k), (long long)peak,
               "a step needs what was foretold");
    tap_ok(left_behind(k.model, fields) < 16384, "to measure takes no memory for good");
    module_rig_close(&k);
}

/* Two heads, one of them small: what there is room for is kept by each. */
enum { HEAD_ROWS = 1 << 20, SMALL = 60, SMALL_LD = 64 };

struct two_heads {
    accel_tensor_t *weight[2];
};

static accel_tensor_t *two_heads_forward(accel_module_t *m, accel_tensor_t *const *in,
                                         int n)
{
    const struct two_heads *h = accel_module_state(m);

    (void)n;
    return accel_add(accel_cross_entropy(in[0], h->weight[0], NULL, in[1], NULL),
                     accel_cross_entropy(in[0], h->weight[1], NULL, in[1], NULL));
}

static const accel_class_t two_heads_class = { sizeof(two_heads_class), "Heads",
                                               two_heads_forward,
                                               sizeof(struct two_heads) };

/* Rows of logits that a head keeps, and their bytes. */
static int64_t head_bytes(size_t room, int64_t ld)
{
    int64_t more = (int64_t)room / 4 / ld;

    more = more < HEAD_ROWS - CHUNK ? more / CHUNK * CHUNK : HEAD_ROWS - CHUNK;
    return more * ld * 4;
}

/* The room is shrunk until all fits: `left` MiB of the `more` that there are. */
static void test_two_heads(size_t more, size_t left)
{
    const accel_field_t fields[] = { { ACCEL_F32, 1, { COLS } },
                                     { ACCEL_I32, 0, { 0 } } };
    const accel_init_t normal = { ACCEL_INIT_NORMAL, 1 };
    size_t least = 0, peak;
    struct module_rig k;
    accel_module_t *m;
    struct two_heads *h;

    if (!module_rig_open(&k, ACCEL_F32, 2))
        return;
    m = k.model = nn_module_new(&k.g, &two_heads_class, NULL, "");
    h = accel_module_state(m);
    h->weight[0] = accel_param(m, "small", 2, (int64_t[]){ SMALL, COLS }, normal);
    h->weight[1] = accel_param(m, "large", 2, (int64_t[]){ VOCAB, COLS }, normal);
    if (!module_rig_fill(&k, false, NULL) ||
        nn_measure(m, HEAD_ROWS, fields, 2, true, &least, NULL))
        tap_ok(false, "open");
    peak = least;
    tap_is_int(
        nn_keep_logits(m, HEAD_ROWS, fields, 2, least + (more << 20), &peak, NULL), 0,
        "two heads, %zu MiB more", more);
    tap_is_int((long long)(k.g.logits_room >> 20), (long long)left, "for each: %zu MiB",
               left);
    tap_ok(peak <= least + (more << 20), "together no more than there is");
    tap_is_int((long long)(peak - least),
               head_bytes(k.g.logits_room, SMALL_LD) + head_bytes(k.g.logits_room, LD),
               "and the peak is with what they keep");
    module_rig_close(&k);
}

int main(void)
{
    test_chunks(ACCEL_F32, false);
    test_chunks(ACCEL_F32, true);
    test_chunks(ACCEL_BF16, false);
    test_chunks(ACCEL_BF16, true);
    test_room(-1, CHUNK);
    test_room(0, CHUNK);
    test_room(CHUNK_BYTES, 2 * CHUNK);
    test_room((int64_t)1 << 40, BATCH * TIME);
    /* The small one keeps 255 MiB, all of its chunks but one, the large one 765. Less room
     * shrinks by what was too much, then by 256 MiB. */
    test_two_heads(1020, 1020);
    test_two_heads(1019, 762);
    test_two_heads(600, 89);
    test_two_heads(200, 0);
    return tap_done();
}
