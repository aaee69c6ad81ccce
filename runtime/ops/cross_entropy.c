/* SPDX-License-Identifier: Apache-2.0
 *
 * cross_entropy: head, softmax and loss in one op, in chunks of rows, so that the
 * logits of a whole batch need not exist at once. The last chunk's logits are kept for
 * the backward, which needs the room anyway, and those of as many more chunks as the
 * graph has room for; the others are recomputed, to the same bits. On the tape: in: x,
 * weight, targets, bias. saved: x, stats, logits, targets. ints: the ignored target,
 * rows of a chunk. reals: smoothing.
 */
#include "ops/ops.h"

#include "backend/id_place.h"

static const char op[] = "cross_entropy";

/* Limit on the logits of one chunk in bytes, though a chunk has at least 64 rows. If a
 * backward follows the limit is higher, because chunks may have to be recomputed. */
#define CHUNK_BYTES ((int64_t)64 << 20)
#define KEPT_BYTES  ((int64_t)256 << 20)
/* Rows of logits lie a multiple of this many elements apart: products and vector loads
 * are slow where rows do not start at 16 bytes, and few vocabularies are even. */
#define ROW_STEP 64

static int64_t padded(int64_t vocab)
{
    return (vocab + ROW_STEP - 1) / ROW_STEP * ROW_STEP;
}

/* Multiples of 64 rows, at most 4096: enough for the products to run at full speed. The
 * padding does not count: with the chunks the order of the sums would change. */
static int64_t chunk_rows(int64_t rows, int64_t vocab, bool recording)
{
    /* 4 bytes per logit: they are float32 whatever the compute dtype */
    int64_t fit = (recording ? KEPT_BYTES : CHUNK_BYTES) / 4 / vocab / 64 * 64;

    fit = fit < 64 ? 64 : fit > 4096 ? 4096 : fit;
    return fit < rows ? fit : rows;
}

/* Rows whose logits there is room for at a time: whole chunks, or all rows. */
static int64_t rows_held(const struct graph *g, int64_t rows, int64_t chunk, int64_t ld)
{
    int64_t more = (int64_t)(g->logits_room / sizeof(float)) / ld;

    if (!g->recording || chunk == rows)
        return chunk;
    return more < rows - chunk ? chunk + more / chunk * chunk : rows;
}

/* The op as its loops need it: addresses in the tensors of the tape entry. */
struct head {
    int64_t rows, chunk, vocab, cols;
    const accel_tensor_t *x;
    const void *weight, *bias; /* weight NULL: x itself is the logits */
    /* [held][ld]: row r has row r % held, so a chunk takes the place of one that many
     * rows before it, and the last ones stay */
    float *logits;
    int64_t held, ld;
    float *lse, *loss, *count; /* [rows], [rows], [1] */
    const int32_t *targets;
    struct xent how;
};

/* x [rows, C] with weight [V, C], or x [rows, V]: the logits themselves. */
static int64_t vocab_of(const accel_tensor_t *x, const accel_tensor_t *weight)
{
    return weight ? weight->dim[0] : x->dim[x->ndim - 1];
}

/* in: x, weight, targets. stats holds lse[rows], loss[rows] and count[1], one after
 * the other. */
static struct head head_of(accel_tensor_t *const *in, const accel_tensor_t *stats,
                           const accel_tensor_t *logits, int64_t chunk, struct xent how)
{
    struct head h = { .rows = in[2]->elems,
                      .chunk = chunk,
                      .vocab = vocab_of(in[0], in[1]),
                      .cols = in[0]->dim[in[0]->ndim - 1],
                      .x = in[0],
                      .targets = in[2]->data,
                      .logits = logits->data,
                      .held = logits->dim[0],
                      .ld = logits->dim[1],
                      .lse = stats->data,
                      .how = how };

    h.loss = h.lse + h.rows;
    h.count = h.loss + h.rows;
    return h;
}

/* Row `row` of t, seen as [..., cols]. */
static const void *rows_at(const accel_tensor_t *t, int64_t row, int64_t cols)
{
    return (const char *)t->data + row * cols * (int64_t)accel_dtype_bytes(t->dtype);
}

/* The logits of the chunk that begins with row `first`. */
static float *logits_at(const struct head *h, int64_t first)
{
    return h->logits + first % h->held * h->ld;
}

/* Logits of the rows first ... first + n - 1, in float32: product, or copy of x. */
static void make_logits(struct graph *g, const struct head *h, int64_t first, int64_t n)
{
    const struct backend *be = g->backend;
    const void *x = rows_at(h->x, first, h->cols);
    float *logits = logits_at(h, first);
    struct gemm p = { .trans_b = true,
                      .m = n,
                      .n = h->vocab,
                      .k = h->cols,
                      .a = x,
                      .a_type = g->compute,
                      .lda = h->cols,
                      .b = h->weight,
                      .b_type = g->compute,
                      .ldb = h->cols,
                      .c = logits,
                      .c_type = ACCEL_F32,
                      .ldc = h->ld,
                      .bias = h->bias,
                      .bias_type = g->compute };

    /* narrow logits would lose what the loss is made of: the product stores float32
     */
    if (h->weight)
        be->gemm(be, &p);
    else if (g->compute != ACCEL_F32)
        be->widen(be, logits, x, g->compute, n * h->vocab);
    else
        be->copy(be, logits, x, (size_t)(n * h->vocab) * sizeof(float));
}

/* Destinations of a chunk's gradients. */
struct grads {
    accel_tensor_t *dx; /* NULL: x needs no gradient */
    bool add;
    float *dweight, *dbias;
    /* elements between rows of the gradients in the compute dtype */
    int64_t ld;
};

/* Turns the logits of rows first ... into gradients in the compute dtype. With a bias
 * they stay float32 until its column sums are taken, so that these lose nothing. */
static void turn_logits(struct graph *g, const struct head *h, const struct grads *to,
                        const float *dmean, int64_t first, int64_t n)
{
    const struct backend *be = g->backend;
    float *logits = logits_at(h, first);
    /* with the distance of float32 rows kept, no row overwrites the next one */
    bool at_once = to->ld != h->ld || g->compute == ACCEL_F32;

    be->xent_grad(be, &h->how, logits, at_once ? g->compute : ACCEL_F32, h->lse + first,
                  h->count, dmean, h->targets + first, n, h->vocab, h->ld);
    /* dbias[v] += sum over the rows of dlogits[r, v], in float32 */
    if (to->dbias)
        be->column_sum(be, to->dbias, logits, ACCEL_F32, n, h->vocab, h->ld);
    if (!at_once)
        be->narrow(be, logits, g->compute, logits, n * h->ld);
}

/* The caller gave the logits, which are not padded: their gradient is that of x. */
static void plain_grads(struct graph *g, const struct head *h, const struct grads *to,
                        int64_t first, int64_t n)
{
    const struct backend *be = g->backend;
    void *dx = (void *)(uintptr_t)rows_at(to->dx, first, h->cols);
    const float *logits = logits_at(h, first);

    /* dx had a gradient before: the logits are read elsewhere, too */
    if (to->add)
        be->add(be, dx, dx, logits, g->compute, n * h->vocab);
    else
        be->copy(be, dx, logits,
                 (size_t)(n * h->vocab) * accel_dtype_bytes(g->compute));
}

/* dx = dlogits weight and dweight += dlogits^T x. The order of the chunks is fixed, and
 * with it the sum in dweight. */
static void head_grads(struct graph *g, const struct head *h, const struct grads *to,
                       int64_t first, int64_t n)
{
    /* p: [n, V] [V, C]; q: [n, V]^T [n, C], added to over all chunks */
    const float *logits = logits_at(h, first);
    struct gemm p = { .m = n,
                      .n = h->cols,
                      .k = h->vocab,
                      .a = logits,
                      .a_type = g->compute,
                      .lda = to->ld,
                      .b = h->weight,
                      .b_type = g->compute,
                      .ldb = h->cols,
                      .c_type = g->compute,
                      .ldc = h->cols,
                      .add = to->add };
    struct gemm q = { .trans_a = true,
                      .m = h->vocab,
                      .n = h->cols,
                      .k = n,
                      .a = logits,
                      .a_type = g->compute,
                      .lda = to->ld,
                      .b = rows_at(h->x, first, h->cols),
                      .b_type = g->compute,
                      .ldb = h->cols,
                      .c = to->dweight,
                      .c_type = ACCEL_F32,
                      .ldc = h->cols,
                      .add = true };

    if (to->dx) {
        p.c = (void *)(uintptr_t)rows_at(to->dx, first, h->cols);
        g->backend->gemm(g->backend, &p);
    }
    if (to->dweight)
        g->backend->gemm(g->backend, &q);
}

/* Last chunk first: the logits of the last ones are still there from the forward, and
 * each leaves its place to an earlier one. */
static void chunks_backward(struct graph *g, const struct tape_entry *e,
                            const struct head *h, const struct grads *to)
{
    /* first row of the last chunk; -1: an empty batch has none */
    int64_t last = h->rows ? (h->rows - 1) / h->chunk * h->chunk : -1;

    for (int64_t r = last; r >= 0; r -= h->chunk) {
        int64_t n = h->rows - r < h->chunk ? h->rows - r : h->chunk;

        /* one product more than in the forward: the price of not keeping them */
        if (r <= last - h->held)
            make_logits(g, h, r, n);
        turn_logits(g, h, to, e->out->grad->data, r, n);
        if (h->weight)
            head_grads(g, h, to, r, n);
        else if (to->dx)
            plain_grads(g, h, to, r, n);
    }
}

/* Asks for the destinations once, before the loop over chunks, which all add to
 * them. */
static bool open_grads(struct graph *g, const struct tape_entry *e, struct grads *to,
                       int64_t ld)
{
    accel_tensor_t *x = e->in[0], *weight = e->in[1], *bias = e->in[3];

    *to = (struct grads){ .ld = ld };
    /* rows are narrowed in place, so they keep the float32 distance */
    if (weight && !bias)
        to->ld = ld * 4 / (int64_t)accel_dtype_bytes(g->compute);
    if (x->needs_grad) {
        to->dx = grad_target(g, x, &to->add);
        if (!to->dx)
            return false;
    }
    if (weight && weight->needs_grad) {
        to->dweight = op_grad(g, op, weight);
        if (!to->dweight)
            return false;
    }
    if (bias && bias->needs_grad) {
        to->dbias = op_grad(g, op, bias);
        /* of the weight's unit (parameters_fit): asking does not reduce the weight's
         * buffer */
        if (!to->dbias)
            return false;
    }
    return true;
}

/* Weight and bias stay gathered over all chunks. */
static bool cross_entropy_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *parameter[] = { e->in[1], e->in[3] };
    struct xent how = { .ignore = (int32_t)e->ints[0], .smoothing = e->reals[0] };
    struct head h = head_of(e->in, e->saved[1], e->saved[2], e->ints[1], how);
    struct op_units u;
    struct grads to;
    bool good;

    if (!op_want(g, op, &u, parameter, 2))
        return false;
    h.weight = op_values(g, &u, parameter[0]);
    h.bias = op_values(g, &u, parameter[1]);
    good = open_grads(g, e, &to, h.ld);
    if (good)
        chunks_backward(g, e, &h, &to);
    op_done(g, &u);
    return good;
}

/* Weight and bias must share a unit: each chunk adds to both gradients, and only one
 * unit's gradients are available at a time. */
static bool parameters_fit(struct graph *g, accel_tensor_t *x, accel_tensor_t *weight,
                           accel_tensor_t *bias)
{
    if (!weight)
        return !bias || graph_fail(g, A0602, op, "pass both, or neither",
                                   "there is a bias but no weight");
    if (!op_parameter(g, op, weight, "weight", 2))
        return false;
    if (weight->dim[1] != x->dim[x->ndim - 1])
        return op_misfit(g, op, x, "x", weight, "weight",
                         "weight is [V, C] and x is [..., C]");
    if (!bias)
        return true;
    if (!op_parameter(g, op, bias, "bias", 1))
        return false;
    if (bias->dim[0] != weight->dim[0])
        return op_misfit(g, op, weight, "weight", bias, "bias", "bias must be [V]");
    if (bias->param->unit != weight->param->unit)
        return graph_fail(g, A0606, op, "declare both in modules of the same unit",
                          "weight %s and bias %s belong to different units",
                          weight->name, bias->name);
    return true;
}

/* One target per row of x; smoothing within [0, 1]. */
static bool cross_entropy_shapes_fit(struct graph *g, accel_tensor_t *x,
                                     accel_tensor_t *weight, accel_tensor_t *bias,
                                     accel_tensor_t *targets, float smoothing)
{
    if (!op_activation(g, op, x, "x") || !op_int32(g, op, targets, "targets") ||
        !parameters_fit(g, x, weight, bias))
        return false;
    if (targets->elems * x->dim[x->ndim - 1] != x->elems)
        return op_misfit(g, op, x, "x", targets, "targets",
                         "there must be one target per row of x");
    /* written so that a NaN is refused, too */
    if (!(smoothing >= 0.0f && smoothing <= 1.0f))
        return graph_fail(g, A0605, op, "use a value from 0 to 1; 0.1 is usual",
                          "label smoothing %g is not in [0, 1]", (double)smoothing);
    return true;
}

/* Returns the first row whose target is not a class, or -1. */
static int64_t cross_entropy_forward(struct graph *g, const struct head *h,
                                     accel_tensor_t *mean)
{
    const struct backend *be = g->backend;
    int64_t bad = -1;

    for (int64_t r = 0; r < h->rows; r += h->chunk) {
        int64_t n = h->rows - r < h->chunk ? h->rows - r : h->chunk;
        struct xent how = h->how;

        how.first = r;
        make_logits(g, h, r, n);
        bad = be->xent(be, &how, h->lse + r, h->loss + r, logits_at(h, r),
                       h->targets + r, n, h->vocab, h->ld);
        if (bad >= 0)
            /* rows of this chunk are counted from its first */
            return r + bad;
    }
    /* over all chunks at once: the mean divides by the targets that count, which are
     * known only now */
    be->xent_mean(be, &h->how, mean->data, h->count, h->loss, h->targets, h->rows);
    return -1;
}

/* The logits that are held are saved; they become the gradients' memory. A second
 * backward of the same forward would find gradients there; the tape allows one. */
static accel_tensor_t *cross_entropy_record(struct graph *g, accel_tensor_t *const *in,
                                            accel_tensor_t *bias, accel_tensor_t *mean,
                                            accel_tensor_t *stats,
                                            accel_tensor_t *logits, int64_t chunk,
                                            struct xent how)
{
    const struct tape_entry e = { .op = op,
                                  .backward = cross_entropy_backward,
                                  .out = mean,
                                  .in = { in[0], in[1], in[2], bias },
                                  .saved = { in[0], stats, logits, in[2] },
                                  .ints = { how.ignore, chunk },
                                  .reals = { how.smoothing } };

    return op_record(g, (accel_tensor_t *[]){ in[0], in[1], bias }, 3, &e);
}

/* The logits' memory, [held][ld]. A copy of x is not padded, and costs less to make
 * again than the room. */
static accel_tensor_t *logits_tensor(struct graph *g, accel_tensor_t *const *in,
                                     int64_t chunk)
{
    int64_t vocab = vocab_of(in[0], in[1]), dims[] = { chunk, vocab };

    if (in[1]) {
        dims[1] = padded(vocab);
        dims[0] = rows_held(g, in[2]->elems, chunk, dims[1]);
    }
    return graph_tensor(g, ACCEL_F32, 2, dims);
}

/* Row `bad` of the batch has a target that is no class. */
static void *target_fail(struct graph *g, const struct head *h, int64_t bad)
{
    char place[96];

    return graph_fail(
        g, A0615, op, "check the number of classes",
        "target %lld of the batch is not below %lld%s", (long long)bad,
        (long long)h->vocab,
        id_place(place, sizeof(place), bad, h->how.time, g->micro, g->micros));
}

accel_tensor_t *accel_cross_entropy(accel_tensor_t *x, accel_tensor_t *weight,
                                    accel_tensor_t *bias, accel_tensor_t *targets,
                                    const accel_cross_entropy_t *o)
{
    accel_tensor_t *in[] = { x, weight, targets }, *needed[] = { x, targets };
    accel_tensor_t *parameter[] = { weight, bias }, *mean, *stats, *logits;
    struct graph *g = op_graph(op, needed, 2);
    accel_cross_entropy_t own;
    struct xent how = { 0 };
    const int64_t one = 1;
    struct op_units u;
    struct head h;
    int64_t bad, rows, chunk;

    if (!g ||
        !op_options(g, op, SIZED(accel_cross_entropy_t, label_smoothing), &own, o))
        return NULL;
    how.ignore = own.ignore_index ? *own.ignore_index : -1;
    how.smoothing = own.label_smoothing;
    if (!cross_entropy_shapes_fit(g, x, weight, bias, targets, how.smoothing))
        return NULL;
    rows = targets->elems;
    how.time = targets->ndim > 1 ? targets->dim[targets->ndim - 1] : 0;
    chunk = chunk_rows(rows, vocab_of(x, weight), g->recording);
    mean = graph_tensor(g, ACCEL_F32, 1, &one);
    /* lse[rows], loss[rows] and the count in one tensor, as head_of expects */
    stats = graph_tensor(g, ACCEL_F32, 1, (int64_t[]){ 2 * rows + 1 });
    logits = logits_tensor(g, in, chunk);
    if (!mean || !stats || !logits || !op_want(g, op, &u, parameter, 2))
        return NULL;
    h = head_of(in, stats, logits, chunk, how);
    h.weight = op_values(g, &u, weight);
    h.bias = op_values(g, &u, bias);
    /* a device returns -1 and reports a bad target at the next sync */
    bad = cross_entropy_forward(g, &h, mean);
    op_done(g, &u);
    if (bad >= 0)
        return target_fail(g, &h, bad);
    return cross_entropy_record(g, in, bias, mean, stats, logits, chunk, how);
}

/* lda skips to the next sample: only the last position of each is multiplied. A single
 * row, as in generation, may be as far from the next as is fastest: there is none.
 * Several rows are handed out, and tensors have no gaps: a copy would cost more than
 * the stores of a product that mostly reads the weight. */
accel_tensor_t *op_last_logits(accel_tensor_t *x, accel_tensor_t *weight)
{
    accel_tensor_t *in[] = { x, weight }, *y;
    struct graph *g = op_graph("head", in, 2);
    struct gemm p = { .trans_b = true };
    struct op_units u;

    if (!g || !op_activation(g, "head", x, "x") ||
        !op_parameter(g, "head", weight, "weight", 2))
        return NULL;
    if (x->ndim != 3 || weight->dim[1] != x->dim[2])
        return op_misfit(g, "head", x, "x", weight, "weight", "x is [B, T, C]");
    y = graph_tensor(g, ACCEL_F32, 2, (int64_t[]){ x->dim[0], weight->dim[0] });
    if (!y || !op_want(g, "head", &u, &weight, 1))
        return NULL;
    /* [B, C] of the last positions times [V, C]^T */
    p.m = x->dim[0];
    p.n = weight->dim[0];
    p.k = x->dim[2];
    p.a = rows_at(x, x->dim[1] - 1, x->dim[2]);
    p.a_type = p.b_type = g->compute;
    p.lda = x->dim[1] * x->dim[2];
    p.b = op_values(g, &u, weight);
    p.ldb = weight->dim[1];
    p.c = y->data;
    p.c_type = ACCEL_F32;
    p.ldc = p.m == 1 ? padded(p.n) : p.n;
    g->backend->gemm(g->backend, &p);
    op_done(g, &u);
    return y;
}
