/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of cuDNN's graph interface that the attention needs: our own declarations of
 * what is looked up in the library at run time, and descriptors that are put together
 * with one check at the end. No device is needed before a plan is made. C and C++.
 */
#ifndef ACCEL_BACKEND_CUDA_DNN_H
#define ACCEL_BACKEND_CUDA_DNN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Names and numbers follow cudnn_graph.h, which test_dnn.c compares. */
enum { DNN_FLOAT = 0, DNN_INT32 = 4, DNN_BFLOAT16 = 9, DNN_BOOLEAN = 11 };

enum {
    DNN_TYPE_HANDLE = 0,
    DNN_TYPE_DATA_TYPE = 1,
    DNN_TYPE_BOOLEAN = 2,
    DNN_TYPE_INT64 = 3,
    DNN_TYPE_VOID_PTR = 6,
    DNN_TYPE_HEUR_MODE = 8,
    DNN_TYPE_KNOB_TYPE = 9,
    DNN_TYPE_POINTWISE_MODE = 14,
    DNN_TYPE_DESCRIPTOR = 15,
    DNN_TYPE_REDUCTION = 18,
    DNN_TYPE_CHAR = 24
};

enum {
    DNN_POINTWISE = 0,
    DNN_ENGINE = 2,
    DNN_ENGINECFG = 3,
    DNN_ENGINEHEUR = 4,
    DNN_PLAN = 5,
    DNN_KNOB_CHOICE = 7,
    DNN_OP_POINTWISE = 13,
    DNN_GRAPH = 15,
    DNN_PACK = 16,
    DNN_TENSOR = 17,
    DNN_MATMUL = 18,
    DNN_OP_MATMUL = 19,
    DNN_REDUCTION = 21,
    DNN_OP_REDUCTION = 22,
    DNN_OP_RESHAPE = 31,
    DNN_DEVICEPROP = 38
};

enum {
    DNN_ADD = 0,
    DNN_MUL = 1,
    DNN_DIV = 6,
    DNN_SUB = 9,
    DNN_EXP = 13,
    DNN_LOG = 15,
    DNN_CMP_GE = 303,
    DNN_GEN_INDEX = 501,
    DNN_SELECT = 601
};

/* Mode A is the fast heuristic: it proposes engines without running any. */
enum { DNN_REDUCE_ADD = 0, DNN_REDUCE_MAX = 3 };
enum { DNN_HEUR_A = 3 };

/* Settings of an engine. */
enum {
    DNN_KNOB_STAGES = 14,
    DNN_KNOB_KERNEL_CFG = 24,
    DNN_KNOB_TILE_CGA_M = 27,
    DNN_KNOB_STREAM_K = 38,
    DNN_KNOB_TILE_M = 40,
    DNN_KNOB_TILE_N = 41
};

enum {
    DNN_POINTWISE_MODE = 0,
    DNN_POINTWISE_PREC = 1,
    DNN_POINTWISE_AXIS = 9,
    DNN_HEUR_MODE = 200,
    DNN_HEUR_GRAPH = 201,
    DNN_HEUR_RESULTS = 202,
    DNN_HEUR_DEVICEPROP = 204,
    DNN_CFG_ENGINE = 300,
    DNN_CFG_KNOBS = 302,
    DNN_CFG_WORKSPACE = 303,
    DNN_PLAN_HANDLE = 400,
    DNN_PLAN_CFG = 401,
    DNN_PLAN_WORKSPACE = 402,
    DNN_PLAN_DEVICEPROP = 407,
    DNN_KNOB_CHOICE_TYPE = 600,
    DNN_KNOB_CHOICE_VALUE = 601,
    DNN_OP_POINTWISE_DESC = 750,
    DNN_OP_POINTWISE_X = 751,
    DNN_OP_POINTWISE_B = 752,
    DNN_OP_POINTWISE_Y = 753,
    DNN_OP_POINTWISE_T = 758,
    DNN_GRAPH_HANDLE = 800,
    DNN_GRAPH_OPS = 801,
    DNN_TENSOR_ALIGNMENT = 900,
    DNN_TENSOR_TYPE = 901,
    DNN_TENSOR_DIMS = 902,
    DNN_TENSOR_STRIDES = 903,
    DNN_TENSOR_UID = 906,
    DNN_TENSOR_VIRTUAL = 907,
    DNN_TENSOR_BY_VALUE = 908,
    DNN_PACK_UIDS = 1000,
    DNN_PACK_POINTERS = 1001,
    DNN_PACK_WORKSPACE = 1003,
    DNN_ENGINE_GRAPH = 1300,
    DNN_ENGINE_INDEX = 1301,
    DNN_ENGINE_DEVICEPROP = 1307,
    DNN_MATMUL_COMP = 1500,
    DNN_OP_MATMUL_A = 1520,
    DNN_OP_MATMUL_B = 1521,
    DNN_OP_MATMUL_C = 1522,
    DNN_OP_MATMUL_DESC = 1523,
    DNN_REDUCTION_OPERATOR = 1600,
    DNN_REDUCTION_COMP = 1601,
    DNN_OP_REDUCTION_X = 1610,
    DNN_OP_REDUCTION_Y = 1611,
    DNN_OP_REDUCTION_DESC = 1612,
    DNN_OP_RESHAPE_X = 2200,
    DNN_OP_RESHAPE_Y = 2201,
    DNN_DEVICEPROP_JSON = 2702
};

/* What the library exports. Every int result is 0 on success. */
struct dnn_api {
    size_t (*version)(void);
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*make)(int type, void **out);
    int (*set)(void *d, int attribute, int type, int64_t count, const void *value);
    int (*get)(void *d, int attribute, int type, int64_t room, int64_t *count,
               void *value);
    int (*finalize)(void *d);
    int (*drop)(void *d);
    int (*execute)(void *handle, void *plan, void *pack);
    void (*last_error)(char *text, size_t room);
};

/* Room for the backward's graph, the larger of the two. Ids of virtual tensors start
 * above those that callers bind. */
enum { DNN_DESCRIPTORS = 128, DNN_OPS = 32, DNN_FIRST_VIRTUAL = 100 };

/* The descriptors of one graph, which are dropped together. After a failure nothing
 * more is done, so callers check once, at the end. */
struct dnn_graph {
    const struct dnn_api *api;
    void *all[DNN_DESCRIPTORS], *ops[DNN_OPS], *whole;
    int count, op_count;
    int64_t next_uid;
    bool failed;
    char why[192];
    bool lacks; /* the library misses another library, or the driver */
};

/* Sizes and strides of a tensor: [batch, head, row, column], in elements. */
struct dnn_shape {
    int64_t dim[4], stride[4];
};

static inline void dnn_begin(struct dnn_graph *g, const struct dnn_api *api)
{
    memset(g, 0, sizeof(*g));
    g->api = api;
    g->next_uid = DNN_FIRST_VIRTUAL;
}

/* Drops the newest first: a descriptor may refer to older ones. */
static inline void dnn_end(struct dnn_graph *g)
{
    while (g->count > 0)
        g->api->drop(g->all[--g->count]);
    g->whole = NULL;
}

/* Keeps the first failure, in the library's words. False: this call failed. */
static inline bool dnn_check(struct dnn_graph *g, int code, const char *call)
{
    char text[160] = "";

    if (code == 0)
        return true;
    if (!g->failed) {
        g->api->last_error(text, sizeof(text));
        snprintf(g->why, sizeof(g->why), "%s: %d %.120s", call, code, text);
    }
    g->failed = true;
    return false;
}

/* A new descriptor, owned by g. NULL after a failure. */
static inline void *dnn_make(struct dnn_graph *g, int type)
{
    void *d = NULL;

    if (g->failed)
        return NULL;
    if (g->count == DNN_DESCRIPTORS) {
        dnn_check(g, -1, "room for descriptors");
        return NULL;
    }
    if (!dnn_check(g, g->api->make(type, &d), "create"))
        return NULL;
    g->all[g->count++] = d;
    return d;
}

/* Sets one attribute of a descriptor; nothing after a failure. */
static inline void dnn_set(struct dnn_graph *g, void *d, int attribute, int type,
                           int64_t count, const void *value)
{
    char call[32];

    snprintf(call, sizeof(call), "attribute %d", attribute);
    if (!g->failed)
        dnn_check(g, g->api->set(d, attribute, type, count, value), call);
}

static inline void dnn_set_int(struct dnn_graph *g, void *d, int attribute, int64_t v)
{
    dnn_set(g, d, attribute, DNN_TYPE_INT64, 1, &v);
}

/* Modes and data types are C enums, thus ints. */
static inline void dnn_set_enum(struct dnn_graph *g, void *d, int attribute, int type,
                                int v)
{
    dnn_set(g, d, attribute, type, 1, &v);
}

static inline void dnn_set_desc(struct dnn_graph *g, void *d, int attribute, void *v)
{
    dnn_set(g, d, attribute, DNN_TYPE_DESCRIPTOR, 1, &v);
}

/* A descriptor can be used once it is finished, and changed no more. */
static inline void dnn_finish(struct dnn_graph *g, void *d, const char *what)
{
    if (!g->failed)
        dnn_check(g, g->api->finalize(d), what);
}

enum dnn_kind { DNN_IN_MEMORY, DNN_VIRTUAL, DNN_BY_VALUE };

/* A tensor: in memory or by value under the id `uid`, or virtual, which means an
 * intermediate result that never leaves the chip. */
static inline void *dnn_tensor(struct dnn_graph *g, int64_t uid, int type,
                               const struct dnn_shape *shape, enum dnn_kind kind)
{
    void *t = dnn_make(g, DNN_TENSOR);
    bool yes = true;

    dnn_set_int(g, t, DNN_TENSOR_UID, kind == DNN_VIRTUAL ? g->next_uid++ : uid);
    dnn_set_enum(g, t, DNN_TENSOR_TYPE, DNN_TYPE_DATA_TYPE, type);
    dnn_set(g, t, DNN_TENSOR_DIMS, DNN_TYPE_INT64, 4, shape->dim);
    dnn_set(g, t, DNN_TENSOR_STRIDES, DNN_TYPE_INT64, 4, shape->stride);
    /* attn_dnn_fits has asked for it */
    dnn_set_int(g, t, DNN_TENSOR_ALIGNMENT, 16);
    if (kind == DNN_VIRTUAL)
        dnn_set(g, t, DNN_TENSOR_VIRTUAL, DNN_TYPE_BOOLEAN, 1, &yes);
    if (kind == DNN_BY_VALUE)
        dnn_set(g, t, DNN_TENSOR_BY_VALUE, DNN_TYPE_BOOLEAN, 1, &yes);
    dnn_finish(g, t, "tensor");
    return t;
}

/* Finishes an operation and appends it to the graph. */
static inline void dnn_op(struct dnn_graph *g, void *op, const char *what)
{
    dnn_finish(g, op, what);
    if (!g->failed && g->op_count == DNN_OPS)
        dnn_check(g, -1, "room for operations");
    if (!g->failed)
        g->ops[g->op_count++] = op;
}

/* c = a b per batch and head, over [row, column]: summed in float32 whatever the
 * operands are. */
static inline void dnn_matmul(struct dnn_graph *g, void *a, void *b, void *c)
{
    void *d = dnn_make(g, DNN_MATMUL), *op;

    dnn_set_enum(g, d, DNN_MATMUL_COMP, DNN_TYPE_DATA_TYPE, DNN_FLOAT);
    dnn_finish(g, d, "matmul");
    op = dnn_make(g, DNN_OP_MATMUL);
    dnn_set_desc(g, op, DNN_OP_MATMUL_A, a);
    dnn_set_desc(g, op, DNN_OP_MATMUL_B, b);
    dnn_set_desc(g, op, DNN_OP_MATMUL_C, c);
    dnn_set_desc(g, op, DNN_OP_MATMUL_DESC, d);
    dnn_op(g, op, "matmul operation");
}

/* y = mode(x, b), or mode(x) with b NULL; SELECT: y = t ? x : b. */
static inline void dnn_pointwise(struct dnn_graph *g, int mode, int prec, void *x,
                                 void *b, void *t, void *y)
{
    void *d = dnn_make(g, DNN_POINTWISE), *op;

    dnn_set_enum(g, d, DNN_POINTWISE_MODE, DNN_TYPE_POINTWISE_MODE, mode);
    dnn_set_enum(g, d, DNN_POINTWISE_PREC, DNN_TYPE_DATA_TYPE, prec);
    dnn_finish(g, d, "pointwise");
    op = dnn_make(g, DNN_OP_POINTWISE);
    dnn_set_desc(g, op, DNN_OP_POINTWISE_DESC, d);
    dnn_set_desc(g, op, DNN_OP_POINTWISE_X, x);
    if (b)
        dnn_set_desc(g, op, DNN_OP_POINTWISE_B, b);
    if (t)
        dnn_set_desc(g, op, DNN_OP_POINTWISE_T, t);
    dnn_set_desc(g, op, DNN_OP_POINTWISE_Y, y);
    dnn_op(g, op, "pointwise operation");
}

/* y = the index along one dimension of x. */
static inline void dnn_index(struct dnn_graph *g, int64_t axis, void *x, void *y)
{
    void *d = dnn_make(g, DNN_POINTWISE), *op;

    dnn_set_enum(g, d, DNN_POINTWISE_MODE, DNN_TYPE_POINTWISE_MODE, DNN_GEN_INDEX);
    dnn_set_enum(g, d, DNN_POINTWISE_PREC, DNN_TYPE_DATA_TYPE, DNN_INT32);
    dnn_set_int(g, d, DNN_POINTWISE_AXIS, axis);
    dnn_finish(g, d, "index");
    op = dnn_make(g, DNN_OP_POINTWISE);
    dnn_set_desc(g, op, DNN_OP_POINTWISE_DESC, d);
    dnn_set_desc(g, op, DNN_OP_POINTWISE_X, x);
    dnn_set_desc(g, op, DNN_OP_POINTWISE_Y, y);
    dnn_op(g, op, "index operation");
}

/* y = the sum or maximum of x along every dimension in which y has size 1. */
static inline void dnn_reduce(struct dnn_graph *g, int how, void *x, void *y)
{
    void *d = dnn_make(g, DNN_REDUCTION), *op;

    dnn_set_enum(g, d, DNN_REDUCTION_OPERATOR, DNN_TYPE_REDUCTION, how);
    dnn_set_enum(g, d, DNN_REDUCTION_COMP, DNN_TYPE_DATA_TYPE, DNN_FLOAT);
    dnn_finish(g, d, "reduction");
    op = dnn_make(g, DNN_OP_REDUCTION);
    dnn_set_desc(g, op, DNN_OP_REDUCTION_X, x);
    dnn_set_desc(g, op, DNN_OP_REDUCTION_Y, y);
    dnn_set_desc(g, op, DNN_OP_REDUCTION_DESC, d);
    dnn_op(g, op, "reduction operation");
}

/* y = x with rows and columns exchanged, as its strides say: no data moves. */
static inline void dnn_reshape(struct dnn_graph *g, void *x, void *y)
{
    void *op = dnn_make(g, DNN_OP_RESHAPE);

    dnn_set_desc(g, op, DNN_OP_RESHAPE_X, x);
    dnn_set_desc(g, op, DNN_OP_RESHAPE_Y, y);
    dnn_op(g, op, "reshape operation");
}

/* Joins all operations into the graph. `handle` may be NULL where there is no
 * device. */
static inline void dnn_join(struct dnn_graph *g, void *handle)
{
    void *d = dnn_make(g, DNN_GRAPH);

    if (handle)
        dnn_set(g, d, DNN_GRAPH_HANDLE, DNN_TYPE_HANDLE, 1, &handle);
    dnn_set(g, d, DNN_GRAPH_OPS, DNN_TYPE_DESCRIPTOR, g->op_count, g->ops);
    dnn_finish(g, d, "graph");
    g->whole = d;
}

#endif
