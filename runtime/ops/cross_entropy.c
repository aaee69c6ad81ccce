/* SPDX-License-Identifier: Apache-2.0
 *
 * cross_entropy: head, softmax and loss in one, in chunks of rows, so that the logits of
 * a whole batch are never stored. The last chunk stays for the backward, which needs the
 * room anyway; the others are computed again.
 */
#include "ops/ops.h"

static const char op[] = "cross_entropy";

/* Logits of one chunk take at most this, but never fewer than 64 rows. */
#define CHUNK_BYTES ((int64_t)64 << 20)

static int64_t chunk_rows(int64_t rows, int64_t vocab)
{
    int64_t fit = CHUNK_BYTES / 4 / vocab / 64 * 64;

    fit = fit < 64 ? 64 : fit > 4096 ? 4096 : fit;
    return fit < rows ? fit : rows;
}

struct head {
    int64_t rows, chunk, vocab, cols;
    const accel_tensor_t *x;
    const void *weight;
    float *logits;             /* [chunk][vocab] */
    float *lse, *loss, *count; /* [rows], [rows], [1] */
    const int32_t *targets;
};

static struct head head_of(const accel_tensor_t *x, const accel_tensor_t *weight,
                           const accel_tensor_t *targets, const accel_tensor_t *stats,
                           const accel_tensor_t *logits)
{
    struct head h = { .rows = targets->elems,
                      .vocab = weight->dim[0],
                      .cols = weight->dim[1],
                      .x = x,
                      .targets = targets->data,
                      .logits = logits->data,
                      .lse = stats->data };

    h.chunk = logits->dim[0];
    h.loss = h.lse + h.rows;
    h.count = h.loss + h.rows;
    return h;
}

static const void *rows_at(const accel_tensor_t *t, int64_t row, int64_t cols)
{
    return (const char *)t->data + row * cols * (int64_t)accel_dtype_bytes(t->dtype);
}

static void make_logits(struct graph *g, const struct head *h, int64_t first, int64_t n)
{
    struct gemm p = { .trans_b = true,
                      .m = n,
                      .n = h->vocab,
                      .k = h->cols,
                      .a = rows_at(h->x, first, h->cols),
                      .a_type = g->compute,
                      .lda = h->cols,
                      .b = h->weight,
                      .b_type = g->compute,
                      .ldb = h->cols,
                      .c = h->logits,
                      .c_type = ACCEL_F32,
                      .ldc = h->vocab };

    g->backend->gemm(g->backend, &p);
}

/* h->logits holds gradients in the compute dtype, each row where its logits were. */
static void chunk_grads(struct graph *g, const struct head *h, int64_t first, int64_t n,
                        accel_tensor_t *dx, bool add, float *dweight)
{
    int64_t ld = h->vocab * 4 / (int64_t)accel_dtype_bytes(g->compute);
    struct gemm p = { .m = n,
                      .n = h->cols,
                      .k = h->vocab,
                      .a = h->logits,
                      .a_type = g->compute,
                      .lda = ld,
                      .b = h->weight,
                      .b_type = g->compute,
                      .ldb = h->cols,
                      .c_type = g->compute,
                      .ldc = h->cols,
                      .add = add };
    struct gemm q = { .trans_a = true,
                      .m = h->vocab,
                      .n = h->cols,
                      .k = n,
                      .a = h->logits,
                      .a_type = g->compute,
                      .lda = ld,
                      .b = rows_at(h->x, first, h->cols),
                      .b_type = g->compute,
                      .ldb = h->cols,
                      .c = dweight,
                      .c_type = ACCEL_F32,
                      .ldc = h->cols,
                      .add = true };

    if (dx) {
        p.c = (void *)(uintptr_t)rows_at(dx, first, h->cols);
        g->backend->gemm(g->backend, &p);
    }
    g->backend->gemm(g->backend, &q);
}

static bool backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *x = e->in[0], *weight = e->in[1], *dx = NULL;
    const struct backend *be = g->backend;
    struct head h = head_of(x, weight, e->in[2], e->saved[1], e->saved[2]);
    int64_t last = (h.rows - 1) / h.chunk * h.chunk;
    struct op_units u;
    float *dweight;
    bool add = false;

    if (x->needs_grad) {
        dx = grad_target(g, x, &add);
        if (!dx)
            return false;
    }
    if (!op_want(g, op, &u, &weight, 1))
        return false;
    h.weight = op_values(g, &u, weight);
    dweight = op_grad(g, op, weight);
    for (int64_t r = last; dweight && r >= 0; r -= h.chunk) {
        int64_t n = h.rows - r < h.chunk ? h.rows - r : h.chunk;

        if (r != last)
            make_logits(g, &h, r, n);
        be->xent_grad(be, h.logits, g->compute, h.lse + r, h.count, e->out->grad->data,
                      h.targets + r, n, h.vocab);
        chunk_grads(g, &h, r, n, dx, add, dweight);
    }
    op_done(g, &u);
    return dweight != NULL;
}

static bool shapes_fit(struct graph *g, accel_tensor_t *x, accel_tensor_t *weight,
                       accel_tensor_t *targets)
{
    if (!op_activation(g, op, x, "x") || !op_parameter(g, op, weight, "weight", 2) ||
        !op_int32(g, op, targets, "targets"))
        return false;
    if (weight->dim[1] != x->dim[x->ndim - 1])
        return op_misfit(g, op, x, "x", weight, "weight",
                         "weight is [V, C] and x is [..., C]");
    if (targets->elems != x->elems / weight->dim[1])
        return op_misfit(g, op, x, "x", targets, "targets",
                         "there must be one target per row of x");
    return true;
}

/* Returns the first row with a target that is no token, or -1. */
static int64_t forward(struct graph *g, const struct head *h, accel_tensor_t *mean)
{
    const struct backend *be = g->backend;
    int64_t bad = -1;

    for (int64_t r = 0; r < h->rows; r += h->chunk) {
        int64_t n = h->rows - r < h->chunk ? h->rows - r : h->chunk;

        make_logits(g, h, r, n);
        bad = be->xent(be, h->lse + r, h->loss + r, h->logits, h->targets + r, n,
                       h->vocab);
        if (bad >= 0)
            return r + bad;
    }
    be->xent_mean(be, mean->data, h->count, h->loss, h->targets, h->rows);
    return -1;
}

accel_tensor_t *accel_cross_entropy(accel_tensor_t *x, accel_tensor_t *weight,
                                    accel_tensor_t *targets)
{
    accel_tensor_t *in[] = { x, weight, targets }, *mean, *stats, *logits;
    struct graph *g = op_graph(op, in, 3);
    const int64_t one = 1;
    struct op_units u;
    struct head h;
    int64_t bad, rows;

    if (!g || !shapes_fit(g, x, weight, targets))
        return NULL;
    rows = targets->elems;
    mean = graph_tensor(g, ACCEL_F32, 1, &one);
    stats = graph_tensor(g, ACCEL_F32, 1, (int64_t[]){ 2 * rows + 1 });
    logits =
        graph_tensor(g, ACCEL_F32, 2,
                     (int64_t[]){ chunk_rows(rows, weight->dim[0]), weight->dim[0] });
    if (!mean || !stats || !logits || !op_want(g, op, &u, &weight, 1))
        return NULL;
    h = head_of(x, weight, targets, stats, logits);
    h.weight = op_values(g, &u, weight);
    bad = forward(g, &h, mean);
    op_done(g, &u);
    if (bad >= 0)
        return graph_fail(g, A0615, op, "check the vocabulary size",
                          "target %lld of the batch is not below %lld", (long long)bad,
                          (long long)weight->dim[0]);
    mean->needs_grad = g->recording;
    if (g->recording &&
        !tape_record(g, &(struct tape_entry){ .op = op,
                                              .backward = backward,
                                              .out = mean,
                                              .in = { x, weight, targets },
                                              .saved = { x, stats, logits, targets } }))
        return NULL;
    return mean;
}

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
    p.ldc = weight->dim[0];
    g->backend->gemm(g->backend, &p);
    op_done(g, &u);
    return y;
}
