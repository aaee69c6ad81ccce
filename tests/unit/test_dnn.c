/* SPDX-License-Identifier: Apache-2.0
 *
 * The attention's graphs for cuDNN without a device: our numbers beside those of its
 * header, plans chosen from the answers of a made-up library, and, where libcudnn is
 * installed, the graphs themselves accepted by it.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "backend/cuda/attention_dnn.h"
#include "tests/tap.h"

#if defined(__has_include)
#if __has_include(<cudnn_graph.h>) && __has_include(<cuda_runtime.h>)
#include <cudnn_graph.h>
#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #b)
SAME(DNN_FLOAT, CUDNN_DATA_FLOAT);
SAME(DNN_INT32, CUDNN_DATA_INT32);
SAME(DNN_BFLOAT16, CUDNN_DATA_BFLOAT16);
SAME(DNN_BOOLEAN, CUDNN_DATA_BOOLEAN);
SAME(DNN_TYPE_HANDLE, CUDNN_TYPE_HANDLE);
SAME(DNN_TYPE_DATA_TYPE, CUDNN_TYPE_DATA_TYPE);
SAME(DNN_TYPE_BOOLEAN, CUDNN_TYPE_BOOLEAN);
SAME(DNN_TYPE_INT64, CUDNN_TYPE_INT64);
SAME(DNN_TYPE_VOID_PTR, CUDNN_TYPE_VOID_PTR);
SAME(DNN_TYPE_HEUR_MODE, CUDNN_TYPE_HEUR_MODE);
SAME(DNN_TYPE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
SAME(DNN_TYPE_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE);
SAME(DNN_TYPE_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR);
SAME(DNN_TYPE_REDUCTION, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);
SAME(DNN_POINTWISE, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
SAME(DNN_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
SAME(DNN_ENGINECFG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
SAME(DNN_ENGINEHEUR, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
SAME(DNN_PLAN, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
SAME(DNN_OP_POINTWISE, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
SAME(DNN_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
SAME(DNN_PACK, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
SAME(DNN_TENSOR, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
SAME(DNN_MATMUL, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
SAME(DNN_OP_MATMUL, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
SAME(DNN_REDUCTION, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
SAME(DNN_OP_REDUCTION, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
SAME(DNN_OP_RESHAPE, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
SAME(DNN_ADD, CUDNN_POINTWISE_ADD);
SAME(DNN_MUL, CUDNN_POINTWISE_MUL);
SAME(DNN_DIV, CUDNN_POINTWISE_DIV);
SAME(DNN_SUB, CUDNN_POINTWISE_SUB);
SAME(DNN_EXP, CUDNN_POINTWISE_EXP);
SAME(DNN_LOG, CUDNN_POINTWISE_LOG);
SAME(DNN_CMP_GE, CUDNN_POINTWISE_CMP_GE);
SAME(DNN_GEN_INDEX, CUDNN_POINTWISE_GEN_INDEX);
SAME(DNN_SELECT, CUDNN_POINTWISE_BINARY_SELECT);
SAME(DNN_REDUCE_ADD, CUDNN_REDUCE_TENSOR_ADD);
SAME(DNN_REDUCE_MAX, CUDNN_REDUCE_TENSOR_MAX);
SAME(DNN_HEUR_A, CUDNN_HEUR_MODE_A);
SAME(DNN_NOTE_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
SAME(DNN_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MODE);
SAME(DNN_POINTWISE_PREC, CUDNN_ATTR_POINTWISE_MATH_PREC);
SAME(DNN_POINTWISE_AXIS, CUDNN_ATTR_POINTWISE_AXIS);
SAME(DNN_HEUR_MODE, CUDNN_ATTR_ENGINEHEUR_MODE);
SAME(DNN_HEUR_GRAPH, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
SAME(DNN_HEUR_RESULTS, CUDNN_ATTR_ENGINEHEUR_RESULTS);
SAME(DNN_CFG_ENGINE, CUDNN_ATTR_ENGINECFG_ENGINE);
SAME(DNN_CFG_WORKSPACE, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
SAME(DNN_PLAN_CFG, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
SAME(DNN_PLAN_WORKSPACE, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
SAME(DNN_OP_POINTWISE_DESC, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
SAME(DNN_OP_POINTWISE_X, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
SAME(DNN_OP_POINTWISE_B, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
SAME(DNN_OP_POINTWISE_Y, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
SAME(DNN_OP_POINTWISE_T, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
SAME(DNN_GRAPH_OPS, CUDNN_ATTR_OPERATIONGRAPH_OPS);
SAME(DNN_TENSOR_ALIGNMENT, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
SAME(DNN_TENSOR_TYPE, CUDNN_ATTR_TENSOR_DATA_TYPE);
SAME(DNN_TENSOR_DIMS, CUDNN_ATTR_TENSOR_DIMENSIONS);
SAME(DNN_TENSOR_STRIDES, CUDNN_ATTR_TENSOR_STRIDES);
SAME(DNN_TENSOR_UID, CUDNN_ATTR_TENSOR_UNIQUE_ID);
SAME(DNN_TENSOR_VIRTUAL, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
SAME(DNN_TENSOR_BY_VALUE, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
SAME(DNN_PACK_UIDS, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
SAME(DNN_PACK_POINTERS, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
SAME(DNN_PACK_WORKSPACE, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
SAME(DNN_ENGINE_NOTES, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
SAME(DNN_MATMUL_COMP, CUDNN_ATTR_MATMUL_COMP_TYPE);
SAME(DNN_OP_MATMUL_A, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
SAME(DNN_OP_MATMUL_B, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
SAME(DNN_OP_MATMUL_C, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
SAME(DNN_OP_MATMUL_DESC, CUDNN_ATTR_OPERATION_MATMUL_DESC);
SAME(DNN_REDUCTION_OPERATOR, CUDNN_ATTR_REDUCTION_OPERATOR);
SAME(DNN_REDUCTION_COMP, CUDNN_ATTR_REDUCTION_COMP_TYPE);
SAME(DNN_OP_REDUCTION_X, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
SAME(DNN_OP_REDUCTION_Y, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
SAME(DNN_OP_REDUCTION_DESC, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
SAME(DNN_OP_RESHAPE_X, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
SAME(DNN_OP_RESHAPE_Y, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
#endif
#endif

/* ---- a made-up library ----------------------------------------------------------- */

/* Engines as the heuristics would list them. */
static struct {
    int engines;
    struct {
        int64_t workspace;
        bool changing, refused;
    } engine[4];
    int refuse_type; /* descriptors of this type cannot be finalized; -1: none */
    int alive, ops, tensors, hidden;
} lib;

struct fake {
    int type, engine;
    int64_t uid;
};

static int fake_make(int type, void **out)
{
    struct fake *f = calloc(1, sizeof(*f));

    f->type = type;
    lib.alive++;
    lib.tensors += type == DNN_TENSOR;
    *out = f;
    return 0;
}

static int fake_set(void *d, int attribute, int type, int64_t count, const void *value)
{
    (void)type;
    if (attribute == DNN_GRAPH_OPS)
        lib.ops = (int)count;
    if (attribute == DNN_PLAN_CFG)
        ((struct fake *)d)->engine = (*(struct fake *const *)value)->engine;
    if (attribute == DNN_TENSOR_UID && *(const int64_t *)value == DNN_UID_HIDDEN)
        lib.hidden++;
    return 0;
}

static int fake_get(void *d, int attribute, int type, int64_t room, int64_t *count,
                    void *value)
{
    struct fake *f = d, **out = value;

    (void)type;
    *count = 1;
    if (attribute == DNN_HEUR_RESULTS) {
        *count = lib.engines;
        for (int i = 0; i < lib.engines && i < room; i++)
            out[i]->engine = i;
    } else if (attribute == DNN_CFG_ENGINE) {
        out[0]->engine = f->engine;
    } else if (attribute == DNN_ENGINE_NOTES) {
        ((int *)value)[0] = 0;
        ((int *)value)[1] = DNN_NOTE_NONDETERMINISTIC;
        *count = lib.engine[f->engine].changing ? 2 : 1;
    } else {
        *(int64_t *)value = lib.engine[f->engine].workspace;
    }
    return 0;
}

static int fake_finalize(void *d)
{
    struct fake *f = d;

    return f->type == lib.refuse_type ||
                   (f->type == DNN_PLAN && lib.engine[f->engine].refused)
               ? 3000
               : 0;
}

static int fake_drop(void *d)
{
    lib.alive--;
    free(d);
    return 0;
}

static void fake_error(char *text, size_t room)
{
    snprintf(text, room, "no such thing");
}

static const struct dnn_api made_up = { .make = fake_make,
                                        .set = fake_set,
                                        .get = fake_get,
                                        .finalize = fake_finalize,
                                        .drop = fake_drop,
                                        .last_error = fake_error };

/* ---- shapes ---------------------------------------------------------------------- */

struct shape {
    int batch, time, heads, kv_heads, width;
    bool causal;
};

static const struct shape shapes[] = {
    { 4, 1024, 12, 12, 64, true },
    { 1, 8192, 32, 8, 128, true },
    { 2, 77, 4, 1, 72, false },
};

static char memory[64] __attribute__((aligned(16)));

/* q, k and v side by side, and their gradients. */
static struct attention describe(const struct shape *c, struct attention_grads *g)
{
    int64_t d = c->width, row = (c->heads + 2 * c->kv_heads) * d;
    struct heads all = { memory, c->time * row, row, d };
    struct heads_out to = { memory, c->time * row, row, d, false };
    struct attention p = { .type = ACCEL_BF16,
                           .batch = c->batch,
                           .queries = c->time,
                           .keys = c->time,
                           .heads = c->heads,
                           .kv_heads = c->kv_heads,
                           .head_width = d,
                           .q = all,
                           .k = all,
                           .v = all,
                           .causal = c->causal,
                           .scale = 0.125f };

    *g = (struct attention_grads){
        .out = memory, .dout = memory, .dq = to, .dk = to, .dv = to
    };
    return p;
}

static void test_paths(void)
{
    struct attention_grads g;
    const struct attention p = describe(&shapes[0], &g);
    const size_t now = 91900;
    struct attention a = p;
    int32_t lengths[4] = { 0 };

    tap_is_int(attn_path_of(&p, NULL, now), ATTN_CUDNN, "forward: cuDNN");
    tap_is_int(attn_path_of(&p, &g, now), ATTN_CUDNN, "backward: cuDNN");
    tap_is_int(attn_path_of(&p, &g, 0), ATTN_MMA,
               "without it: own tensor core kernels");
    tap_is_int(attn_path_of(&p, NULL, 80907), ATTN_MMA, "or with one that is too old");
    g.dk.add = true;
    tap_is_int(attn_path_of(&p, &g, now), ATTN_MMA, "a gradient that is added to");
    g.dk.add = false;
    g.dq.data = NULL;
    tap_is_int(attn_path_of(&p, &g, now), ATTN_MMA, "one that is not wanted");
    a.dropout = 0.1f;
    tap_is_int(attn_path_of(&a, NULL, now), ATTN_MMA, "dropout has our bits");
    a = p;
    a.lengths = lengths;
    tap_is_int(attn_path_of(&a, NULL, now), ATTN_MMA, "padding");
    a = p;
    a.offset = 3;
    tap_is_int(attn_path_of(&a, NULL, now), ATTN_MMA, "a cache before the queries");
    a = p;
    a.head_width = 256;
    tap_is_int(attn_path_of(&a, NULL, now), ATTN_CUDNN, "wide heads: cuDNN");
    tap_is_int(attn_path_of(&a, NULL, 0), ATTN_PLAIN, "without it: plain products");
    a = p;
    a.type = ACCEL_F32;
    tap_is_int(attn_path_of(&a, NULL, now), ATTN_PLAIN, "float32: plain products");
    a = p;
    a.queries = 1;
    tap_is_int(attn_path_of(&a, NULL, now), ATTN_DECODE, "one query: keys in parts");
}

static void test_choice(void)
{
    struct attention_grads g;
    struct attention p = describe(&shapes[0], &g);
    struct dnn_graph graph;
    int64_t workspace = 0;
    void *plan;

    memset(&lib, 0, sizeof(lib));
    lib.refuse_type = -1;
    lib.engines = 4;
    lib.engine[0].changing = true;
    lib.engine[1].workspace = 1000;
    lib.engine[2].refused = true;
    lib.engine[3].workspace = 10;
    dnn_begin(&graph, &made_up);
    dnn_attention_backward(&graph, &p, &g, NULL);
    tap_ok(!graph.failed && lib.ops == graph.op_count && lib.hidden == 1,
           "a causal backward of %d operations on %d tensors", lib.ops, lib.tensors);
    plan = dnn_plan(&graph, NULL, NULL, 100, &workspace);
    tap_ok(plan && ((struct fake *)plan)->engine == 3 && workspace == 10,
           "not the engine that changes, nor too large, nor refused, but the last");
    dnn_end(&graph);
    tap_is_int(lib.alive, 0, "all descriptors are gone");

    lib.engines = 3;
    p.causal = false;
    lib.hidden = 0;
    dnn_begin(&graph, &made_up);
    dnn_attention_forward(&graph, &p, NULL);
    tap_is_int(lib.hidden, 0, "nothing is hidden when all is seen");
    tap_ok(!dnn_plan(&graph, NULL, NULL, 100, &workspace) && graph.failed &&
               !strcmp(graph.why, "3 engines, 2 the same every time, none fits"),
           "no plan: %s", graph.why);
    dnn_end(&graph);
    tap_is_int(lib.alive, 0, "all descriptors are gone");
}

static void test_refusal(void)
{
    static const int types[] = { DNN_TENSOR,       DNN_OP_MATMUL, DNN_OP_POINTWISE,
                                 DNN_OP_REDUCTION, DNN_GRAPH,     DNN_ENGINEHEUR };
    struct attention_grads g;
    struct attention p = describe(&shapes[1], &g);
    struct dnn_graph graph;
    int64_t workspace;

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        lib.refuse_type = types[i];
        dnn_begin(&graph, &made_up);
        dnn_attention_backward(&graph, &p, &g, NULL);
        tap_ok(!dnn_plan(&graph, NULL, NULL, 100, &workspace) &&
                   strstr(graph.why, "3000 no such thing"),
               "refused: %s", graph.why);
        dnn_end(&graph);
        tap_is_int(lib.alive, 0, "all descriptors are gone");
    }
}

/* ---- the real one ---------------------------------------------------------------- */

static bool find(void *library, struct dnn_api *api)
{
    const struct {
        void *to;
        const char *name;
    } all[] = {
        { &api->version, "cudnnGetVersion" },
        { &api->make, "cudnnBackendCreateDescriptor" },
        { &api->set, "cudnnBackendSetAttribute" },
        { &api->finalize, "cudnnBackendFinalize" },
        { &api->drop, "cudnnBackendDestroyDescriptor" },
        { &api->last_error, "cudnnGetLastErrorString" },
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        void *f = dlsym(library, all[i].name);

        if (!f)
            return false;
        memcpy(all[i].to, &f, sizeof(f));
    }
    return true;
}

static void test_library(void)
{
    void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    struct dnn_api api = { 0 };
    struct attention_grads g;
    struct dnn_graph graph;
    struct attention p;

    if (!library || !find(library, &api) || api.version() < 90800) {
        tap_skip(1, library ? "libcudnn.so.9 makes no graph without a device"
                            : "no libcudnn.so.9 here");
        return;
    }
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int backward = 0; backward < 2; backward++) {
            p = describe(&shapes[i], &g);
            dnn_begin(&graph, &api);
            if (backward)
                dnn_attention_backward(&graph, &p, &g, NULL);
            else
                dnn_attention_forward(&graph, &p, NULL);
            tap_ok(!graph.failed && graph.whole, "cuDNN %zu accepts graph %zu, %s %s",
                   api.version(), i, backward ? "backward" : "forward", graph.why);
            dnn_end(&graph);
        }
    p = describe(&shapes[0], &g);
    p.k.row = 0;
    p.keys = -1;
    dnn_begin(&graph, &api);
    dnn_attention_forward(&graph, &p, NULL);
    tap_ok(graph.failed && graph.why[0], "and refuses what cannot be: %s", graph.why);
    dnn_end(&graph);
}

int main(void)
{
    test_paths();
    test_choice();
    test_refusal();
    test_library();
    return tap_done();
}
