/* SPDX-License-Identifier: Apache-2.0
 *
 * What the attention's graphs for cuDNN compute: a made-up library notes each operation
 * and then carries it out in double, on the memory that the graph names. Beside the
 * formulas of the attention, for grouped heads, hidden keys, rows with gaps.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "backend/device.h"
#include "backend/cuda/attention/attention_dnn.h"
#include "tests/tap.h"

/* ---- a made-up library ----------------------------------------------------------- */

enum { ATTRIBUTES = 10, MOST = 4096 };

/* A descriptor and what was set of it. */
struct node {
    int type, sets;
    struct {
        int attribute;
        int64_t number[4];
        struct node *node;
    } set[ATTRIBUTES];
    bool finished;
    double *value; /* of a virtual tensor */
};

static struct node *op_list[DNN_OPS];
static int op_count, alive, faults;
/* by their ids */
static double memory[DNN_UIDS][MOST];
static bool touched[DNN_UIDS][MOST];

static int node_make(int type, void **out)
{
    struct node *n = calloc(1, sizeof(*n));

    n->type = type;
    alive++;
    *out = n;
    return 0;
}

static int node_set(void *d, int attribute, int type, int64_t count, const void *value)
{
    struct node *n = d;
    const int at = n->sets++;

    faults += n->finished || at == ATTRIBUTES;
    n->set[at].attribute = attribute;
    if (attribute == DNN_GRAPH_OPS) {
        op_count = (int)count;
        memcpy(op_list, value, (size_t)count * sizeof(*op_list));
    } else if (type == DNN_TYPE_DESCRIPTOR) {
        n->set[at].node = *(struct node *const *)value;
        faults += !n->set[at].node->finished;
    } else if (type == DNN_TYPE_INT64) {
        memcpy(n->set[at].number, value, (size_t)count * sizeof(int64_t));
    } else if (type == DNN_TYPE_BOOLEAN) {
        n->set[at].number[0] = *(const bool *)value;
    } else {
        n->set[at].number[0] = *(const int *)value;
    }
    return 0;
}

static int node_finish(void *d)
{
    ((struct node *)d)->finished = true;
    return 0;
}

static int node_drop(void *d)
{
    free(((struct node *)d)->value);
    free(d);
    alive--;
    return 0;
}

static void no_error(char *text, size_t room)
{
    snprintf(text, room, "no such thing");
}

static const struct dnn_api api = { .make = node_make,
                                    .set = node_set,
                                    .finalize = node_finish,
                                    .drop = node_drop,
                                    .last_error = no_error };

/* Of an attribute that was not set: zeros, and no node. */
static const int64_t *numbers(const struct node *n, int attribute)
{
    static const int64_t none[4];

    for (int i = 0; i < n->sets; i++)
        if (n->set[i].attribute == attribute)
            return n->set[i].number;
    return none;
}

/* The number of one that must be set. */
static int64_t number(const struct node *n, int attribute)
{
    bool set = false;

    for (int i = 0; i < n->sets; i++)
        set = set || n->set[i].attribute == attribute;
    faults += !set;
    return numbers(n, attribute)[0];
}

static struct node *node_of(const struct node *n, int attribute)
{
    for (int i = 0; i < n->sets; i++)
        if (n->set[i].attribute == attribute)
            return n->set[i].node;
    return NULL;
}

/* What an operation does, which another descriptor says. */
static const struct node *how_of(const struct node *op, int attribute, int type)
{
    const struct node *how = node_of(op, attribute);

    faults += how->type != type;
    return how;
}

/* ---- its arithmetic -------------------------------------------------------------- */

static const int64_t *dims(const struct node *t)
{
    return numbers(t, DNN_TENSOR_DIMS);
}

static int64_t elems(const struct node *t)
{
    const int64_t *d = dims(t);

    return d[0] * d[1] * d[2] * d[3];
}

/* Place of element `at` of a shape `whole`: a smaller size is shared by neighbours. */
static double *place(struct node *t, const int64_t at[4], const int64_t whole[4])
{
    const bool virtual = numbers(t, DNN_TENSOR_VIRTUAL)[0];
    const int64_t *d = dims(t), *stride = numbers(t, DNN_TENSOR_STRIDES);
    const int64_t uid = numbers(t, DNN_TENSOR_UID)[0];
    int64_t dense = 0, place_at = 0;

    for (int i = 0; i < 4; i++) {
        const int64_t k = at[i] * d[i] / whole[i];

        dense = dense * d[i] + k;
        place_at += k * stride[i];
    }
    if (virtual) {
        if (!t->value)
            t->value = calloc((size_t)elems(t), sizeof(*t->value));
        return &t->value[dense];
    }
    faults += uid < 1 || uid >= DNN_UIDS || place_at >= MOST;
    if (faults)
        return &memory[0][0];
    touched[uid][place_at] = true;
    return &memory[uid][place_at];
}

/* The index of element n of a shape. */
static void index_of(int64_t n, const int64_t d[4], int64_t at[4])
{
    for (int i = 3; i >= 0; n /= d[i--])
        at[i] = n % d[i];
}

static double pointwise(int64_t mode, double x, double b, double t)
{
    switch (mode) {
    case DNN_ADD:
        return x + b;
    case DNN_SUB:
        return x - b;
    case DNN_MUL:
        return x * b;
    case DNN_DIV:
        return x / b;
    case DNN_EXP:
        return exp(x);
    case DNN_LOG:
        return log(x);
    case DNN_CMP_GE:
        return x >= b;
    case DNN_SELECT:
        return t != 0 ? x : b;
    default:
        faults++;
        return NAN;
    }
}

/* The type of a virtual result; that of the probabilities is their products'. */
static void check_result(const struct node *y, int64_t type)
{
    faults += numbers(y, DNN_TENSOR_VIRTUAL)[0] && number(y, DNN_TENSOR_TYPE) != type;
}

static void run_pointwise(const struct node *op)
{
    const struct node *how = how_of(op, DNN_OP_POINTWISE_DESC, DNN_POINTWISE);
    struct node *x = node_of(op, DNN_OP_POINTWISE_X),
                *b = node_of(op, DNN_OP_POINTWISE_B),
                *t = node_of(op, DNN_OP_POINTWISE_T),
                *y = node_of(op, DNN_OP_POINTWISE_Y);
    const int64_t mode = number(how, DNN_POINTWISE_MODE),
                  prec = number(how, DNN_POINTWISE_PREC);
    int64_t at[4];

    faults += prec != (mode == DNN_CMP_GE      ? DNN_BOOLEAN
                       : mode == DNN_GEN_INDEX ? DNN_INT32
                                               : DNN_FLOAT);
    check_result(y, mode == DNN_DIV ? DNN_BFLOAT16 : prec);
    for (int64_t n = 0; n < elems(y); n++) {
        index_of(n, dims(y), at);
        *place(y, at, dims(y)) = mode == DNN_GEN_INDEX
                                     ? (double)at[number(how, DNN_POINTWISE_AXIS)]
                                     : pointwise(mode, *place(x, at, dims(y)),
                                                 b ? *place(b, at, dims(y)) : 0,
                                                 t ? *place(t, at, dims(y)) : 0);
    }
}

static void run_matmul(const struct node *op)
{
    struct node *a = node_of(op, DNN_OP_MATMUL_A), *b = node_of(op, DNN_OP_MATMUL_B),
                *c = node_of(op, DNN_OP_MATMUL_C);
    const int64_t *d = dims(c), inner = dims(a)[3];
    const int64_t of_a[4] = { d[0], d[1], d[2], inner },
                  of_b[4] = { d[0], d[1], inner, d[3] };
    int64_t at[4];

    faults += number(how_of(op, DNN_OP_MATMUL_DESC, DNN_MATMUL), DNN_MATMUL_COMP) !=
              DNN_FLOAT;
    faults += dims(a)[2] != d[2] || dims(b)[2] != inner || dims(b)[3] != d[3];
    for (int64_t n = 0; n < elems(c); n++) {
        double sum = 0;

        index_of(n, d, at);
        for (int64_t k = 0; k < inner; k++)
            sum += *place(a, (int64_t[]){ at[0], at[1], at[2], k }, of_a) *
                   *place(b, (int64_t[]){ at[0], at[1], k, at[3] }, of_b);
        *place(c, at, d) = sum;
    }
}

static void run_reduction(const struct node *op)
{
    const struct node *how = how_of(op, DNN_OP_REDUCTION_DESC, DNN_REDUCTION);
    struct node *x = node_of(op, DNN_OP_REDUCTION_X),
                *y = node_of(op, DNN_OP_REDUCTION_Y);
    const int64_t what = number(how, DNN_REDUCTION_OPERATOR);
    const bool most = what == DNN_REDUCE_MAX;
    int64_t at[4];

    faults += number(how, DNN_REDUCTION_COMP) != DNN_FLOAT;
    faults += !most && what != DNN_REDUCE_ADD;
    check_result(y, DNN_FLOAT);
    for (int64_t n = 0; n < elems(y); n++) {
        index_of(n, dims(y), at);
        *place(y, at, dims(y)) = most ? -INFINITY : 0;
    }
    for (int64_t n = 0; n < elems(x); n++) {
        double v, *to;

        index_of(n, dims(x), at);
        v = *place(x, at, dims(x));
        to = place(y, at, dims(x));
        *to = most ? fmax(*to, v) : *to + v;
    }
}

static void run_reshape(const struct node *op)
{
    struct node *x = node_of(op, DNN_OP_RESHAPE_X), *y = node_of(op, DNN_OP_RESHAPE_Y);
    int64_t at[4];

    faults += dims(x)[2] != dims(y)[3] || dims(x)[3] != dims(y)[2];
    check_result(y, DNN_BFLOAT16);
    for (int64_t n = 0; n < elems(y); n++) {
        index_of(n, dims(y), at);
        *place(y, at, dims(y)) =
            *place(x, (int64_t[]){ at[0], at[1], at[3], at[2] }, dims(x));
    }
}

/* Tensors say their type and alignment; ids of virtual ones are their own. */
static void check_tensors(const struct dnn_graph *g)
{
    for (int i = 0; i < g->count; i++) {
        const struct node *t = g->all[i];
        const int64_t uid = numbers(t, DNN_TENSOR_UID)[0],
                      type = numbers(t, DNN_TENSOR_TYPE)[0];

        if (t->type != DNN_TENSOR)
            continue;
        faults += numbers(t, DNN_TENSOR_ALIGNMENT)[0] != 16;
        if (numbers(t, DNN_TENSOR_VIRTUAL)[0]) {
            faults += uid < DNN_UIDS;
            for (int k = 0; k < i; k++)
                faults += numbers(g->all[k], DNN_TENSOR_UID)[0] == uid;
            continue;
        }
        faults += type != (uid == DNN_UID_LSE || uid == DNN_UID_DELTA ||
                                   numbers(t, DNN_TENSOR_BY_VALUE)[0]
                               ? DNN_FLOAT
                               : DNN_BFLOAT16);
    }
}

static void run_graph(const struct dnn_graph *g)
{
    check_tensors(g);
    for (int i = 0; i < op_count && !faults; i++)
        switch (op_list[i]->type) {
        case DNN_OP_POINTWISE:
            run_pointwise(op_list[i]);
            break;
        case DNN_OP_MATMUL:
            run_matmul(op_list[i]);
            break;
        case DNN_OP_REDUCTION:
            run_reduction(op_list[i]);
            break;
        case DNN_OP_RESHAPE:
            run_reshape(op_list[i]);
            break;
        default:
            faults++;
        }
}

/* ---- the attention --------------------------------------------------------------- */

struct shape {
    int batch, queries, keys, heads, kv_heads, width, gap;
    bool causal;
};

static const struct shape shapes[] = {
    { 1, 1, 1, 1, 1, 1, 0, false }, { 2, 5, 5, 4, 4, 3, 0, true },
    { 2, 5, 5, 4, 2, 3, 0, true },  { 1, 6, 6, 6, 2, 5, 7, true },
    { 2, 3, 5, 3, 1, 4, 1, false }, { 3, 4, 2, 2, 2, 2, 3, false },
};

/* One array: [batch][rows][heads][width] and a gap behind each row. */
struct field {
    int64_t uid, rows, heads, width, row;
};

static struct field field_of(int64_t uid, int rows, int heads, const struct shape *c)
{
    return (struct field){ uid, rows, heads, c->width, heads * c->width + c->gap };
}

static double *element(const struct field *f, int64_t b, int64_t t, int64_t h,
                       int64_t d)
{
    return &memory[f->uid][(b * f->rows + t) * f->row + h * f->width + d];
}

static struct heads heads_of(const struct field *f)
{
    static char place_of_call;

    return (struct heads){ &place_of_call, f->rows * f->row, f->row, f->width };
}

static struct heads_out heads_out_of(const struct field *f)
{
    const struct heads x = heads_of(f);

    return (struct heads_out){ (void *)(uintptr_t)x.data, x.sample, x.row, x.head,
                               false };
}

/* What the formulas say, by the ids of the arrays. */
static double want[DNN_UIDS][MOST];

static double *wanted(const struct field *f, int64_t b, int64_t t, int64_t h, int64_t d)
{
    return &want[f->uid][element(f, b, t, h, d) - memory[f->uid]];
}

static double dot(const struct field *x, int64_t i, int64_t hx, const struct field *y,
                  int64_t j, int64_t hy, int64_t b)
{
    double sum = 0;

    for (int64_t d = 0; d < x->width; d++)
        sum += *element(x, b, i, hx, d) * *element(y, b, j, hy, d);
    return sum;
}

/* Of one query: out and lse, then what it adds to the gradients. */
static void query(const struct shape *c, const struct field *f, double scale, int64_t b,
                  int64_t h, int64_t i)
{
    const int64_t kv = h / (c->heads / c->kv_heads);
    const int64_t n = c->causal ? i + 1 : c->keys;
    double p[16], sum = 0, delta = 0;

    for (int64_t j = 0; j < n; j++)
        sum += p[j] = exp(scale * dot(&f[DNN_UID_Q], i, h, &f[DNN_UID_K], j, kv, b));
    want[DNN_UID_LSE][(b * c->heads + h) * c->queries + i] = log(sum);
    for (int64_t d = 0; d < c->width; d++) {
        double *out = wanted(&f[DNN_UID_OUT], b, i, h, d);

        for (int64_t j = 0; j < n; j++)
            *out += p[j] / sum * *element(&f[DNN_UID_V], b, j, kv, d);
        delta += *out * *element(&f[DNN_UID_DOUT], b, i, h, d);
    }
    for (int64_t j = 0; j < n; j++) {
        const double dp = dot(&f[DNN_UID_DOUT], i, h, &f[DNN_UID_V], j, kv, b);
        const double ds = scale * p[j] / sum * (dp - delta);

        for (int64_t d = 0; d < c->width; d++) {
            *wanted(&f[DNN_UID_DQ], b, i, h, d) +=
                ds * *element(&f[DNN_UID_K], b, j, kv, d);
            *wanted(&f[DNN_UID_DK], b, j, kv, d) +=
                ds * *element(&f[DNN_UID_Q], b, i, h, d);
            *wanted(&f[DNN_UID_DV], b, j, kv, d) +=
                p[j] / sum * *element(&f[DNN_UID_DOUT], b, i, h, d);
        }
    }
}

static void begin(const struct shape *c, struct field *f, double scale)
{
    uint32_t x = 1;

    for (int u = 0; u < DNN_UIDS; u++)
        for (int k = 0; k < MOST; k++) {
            x = x * 1664525u + 1013904223u;
            memory[u][k] = (double)(x >> 8) / (1 << 23) - 1;
        }
    memset(want, 0, sizeof(want));
    for (int u = DNN_UID_Q; u <= DNN_UID_DV; u++) {
        const bool keys =
            u == DNN_UID_K || u == DNN_UID_V || u == DNN_UID_DK || u == DNN_UID_DV;

        f[u] =
            field_of(u, keys ? c->keys : c->queries, keys ? c->kv_heads : c->heads, c);
    }
    /* what the call has no strides for */
    f[DNN_UID_OUT].row = f[DNN_UID_DOUT].row = (int64_t)c->heads * c->width;
    memory[DNN_UID_SCALE][0] = scale;
    memory[DNN_UID_HIDDEN][0] = -FLT_MAX;
    memory[DNN_UID_ONE][0] = 1;
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t h = 0; h < c->heads; h++)
            for (int64_t i = 0; i < c->queries; i++)
                query(c, f, scale, b, h, i);
}

/* All elements of the arrays and no others are touched, and right. */
static void check(const struct shape *c, const char *what, const int *uids, int n)
{
    const int of_queries = c->batch * c->queries * c->heads,
              of_keys = c->batch * c->keys * c->kv_heads;
    double worst = 0;
    int seen = 0;

    for (int k = 0; k < n; k++) {
        seen -= uids[k] == DNN_UID_LSE ? of_queries
                : uids[k] == DNN_UID_DK || uids[k] == DNN_UID_DV
                    ? of_keys * c->width
                    : of_queries * c->width;
        for (int i = 0; i < MOST; i++)
            if (touched[uids[k]][i]) {
                const double far = fabs(memory[uids[k]][i] - want[uids[k]][i]);

                worst = isnan(far) ? INFINITY : fmax(worst, far);
                seen++;
            }
    }
    tap_ok(!faults && worst < 1e-9 && seen == 0,
           "%s: %d x %d heads, %d to %d x %d of %d%s: %.1e, %d faults", what, c->batch,
           c->heads, c->queries, c->keys, c->kv_heads, c->width,
           c->causal ? ", causal" : "", worst, faults);
}

static void test_shape(const struct shape *c)
{
    static const int forward[] = { DNN_UID_OUT, DNN_UID_LSE };
    static const int backward[] = { DNN_UID_DQ, DNN_UID_DK, DNN_UID_DV };
    const float scale = 0.7f;
    struct field f[DNN_UIDS];
    struct attention p = { .type = ACCEL_BF16,
                           .batch = c->batch,
                           .queries = c->queries,
                           .keys = c->keys,
                           .heads = c->heads,
                           .kv_heads = c->kv_heads,
                           .head_width = c->width,
                           .causal = c->causal,
                           .scale = scale };
    struct attention_grads to = { .out = NULL };
    struct attn_part part;
    struct dnn_graph g;

    begin(c, f, scale);
    p.q = heads_of(&f[DNN_UID_Q]);
    p.k = heads_of(&f[DNN_UID_K]);
    p.v = heads_of(&f[DNN_UID_V]);
    to.dq = heads_out_of(&f[DNN_UID_DQ]);
    to.dk = heads_out_of(&f[DNN_UID_DK]);
    to.dv = heads_out_of(&f[DNN_UID_DV]);
    faults = 0;
    memset(touched, 0, sizeof(touched));
    part = attn_forward_part(&p, NULL, NULL);
    dnn_begin(&g, &api);
    dnn_attention_forward(&g, &part, NULL);
    run_graph(&g);
    dnn_end(&g);
    check(c, "forward", forward, 2);
    memset(touched, 0, sizeof(touched));
    part = attn_backward_part(&p, &to, NULL);
    dnn_begin(&g, &api);
    dnn_attention_backward(&g, &part, NULL);
    run_graph(&g);
    dnn_end(&g);
    check(c, "backward", backward, 3);
}

int main(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shapes); i++)
        test_shape(&shapes[i]);
    tap_is_int(alive, 0, "all descriptors are gone");
    return tap_done();
}
