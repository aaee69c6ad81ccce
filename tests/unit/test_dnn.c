/* SPDX-License-Identifier: Apache-2.0
 *
 * The attention's graphs for cuDNN without a device: our numbers beside those of its
 * header, plans chosen from the answers of a made-up library, calls in parts, and, where
 * libcudnn is installed, the graphs themselves accepted by it, and the engines that it
 * has for devices that are described to it.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "backend/device.h"
#include "backend/cuda/attention/attention_plans.h"
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
SAME(DNN_TYPE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE);
SAME(DNN_TYPE_CHAR, CUDNN_TYPE_CHAR);
SAME(DNN_TYPE_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE);
SAME(DNN_TYPE_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR);
SAME(DNN_TYPE_REDUCTION, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);
SAME(DNN_POINTWISE, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
SAME(DNN_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
SAME(DNN_ENGINECFG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
SAME(DNN_ENGINEHEUR, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
SAME(DNN_PLAN, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
SAME(DNN_KNOB_CHOICE, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
SAME(DNN_DEVICEPROP, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
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
SAME(DNN_KNOB_STAGES, CUDNN_KNOB_TYPE_STAGES);
SAME(DNN_KNOB_KERNEL_CFG, CUDNN_KNOB_TYPE_KERNEL_CFG);
SAME(DNN_KNOB_TILE_CGA_M, CUDNN_KNOB_TYPE_TILE_CGA_M);
SAME(DNN_KNOB_STREAM_K, CUDNN_KNOB_TYPE_STREAM_K);
SAME(DNN_KNOB_TILE_M, CUDNN_KNOB_TYPE_TILE_M);
SAME(DNN_KNOB_TILE_N, CUDNN_KNOB_TYPE_TILE_N);
SAME(DNN_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MODE);
SAME(DNN_POINTWISE_PREC, CUDNN_ATTR_POINTWISE_MATH_PREC);
SAME(DNN_POINTWISE_AXIS, CUDNN_ATTR_POINTWISE_AXIS);
SAME(DNN_HEUR_MODE, CUDNN_ATTR_ENGINEHEUR_MODE);
SAME(DNN_HEUR_GRAPH, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
SAME(DNN_HEUR_RESULTS, CUDNN_ATTR_ENGINEHEUR_RESULTS);
SAME(DNN_CFG_ENGINE, CUDNN_ATTR_ENGINECFG_ENGINE);
SAME(DNN_CFG_KNOBS, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
SAME(DNN_KNOB_CHOICE_TYPE, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE);
SAME(DNN_KNOB_CHOICE_VALUE, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
SAME(DNN_HEUR_DEVICEPROP, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
SAME(DNN_PLAN_DEVICEPROP, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
SAME(DNN_DEVICEPROP_JSON, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
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
SAME(DNN_ENGINE_GRAPH, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
SAME(DNN_ENGINE_INDEX, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
SAME(DNN_ENGINE_DEVICEPROP, CUDNN_ATTR_ENGINE_DEVICEPROP);
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
        /* bytes of the least that a deterministic backward keeps; a multiple of it */
        int64_t workspace;
        bool refused;
    } engine[4];
    bool scaled;     /* workspaces count for one key head of one sample */
    int refuse_type; /* descriptors of this type cannot be finalized; -1: none */
    const char *error;
    int alive, ops, tensors, hidden, asked, knobs;
    int64_t units; /* samples times key heads of the last graph */
} lib;

struct fake {
    int type, engine;
    int64_t uid, units;
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
    if (attribute == DNN_TENSOR_UID) {
        ((struct fake *)d)->uid = *(const int64_t *)value;
        lib.hidden += ((struct fake *)d)->uid == DNN_UID_HIDDEN;
    }
    if (attribute == DNN_TENSOR_DIMS && ((struct fake *)d)->uid == DNN_UID_K)
        lib.units = ((const int64_t *)value)[0] * ((const int64_t *)value)[1];
    if (attribute == DNN_HEUR_GRAPH)
        lib.asked++;
    lib.knobs += attribute == DNN_KNOB_CHOICE_VALUE;
    return 0;
}

static int64_t fake_workspace(int engine)
{
    return lib.engine[engine].workspace * (lib.scaled ? lib.units : 1);
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
    } else if (attribute == DNN_ENGINE_INDEX) {
        *(int64_t *)value = f->engine;
    } else {
        *(int64_t *)value = fake_workspace(f->engine);
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
    snprintf(text, room, "%s", lib.error ? lib.error : "no such thing");
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

/* The made-up library with a device; `most`: bytes of workspace. */
static struct dnn_place place_of(int64_t most)
{
    return (struct dnn_place){ &made_up, &lib, NULL, 90, 91900, most };
}

static struct attn_part backward_of(const struct shape *c)
{
    static float lse, delta;
    struct attention_grads g;
    struct attention p = describe(c, &g);

    g.lse = &lse;
    return attn_backward_part(&p, &g, &delta);
}

static void begin_lib(int engines)
{
    memset(&lib, 0, sizeof(lib));
    lib.refuse_type = -1;
    lib.engines = engines;
}

static void test_choice(void)
{
    struct attn_part c = backward_of(&shapes[0]);
    const int64_t kept = attn_kept_bytes(&c.p);
    struct dnn_place at = place_of(2 * kept);
    struct dnn_graph graph;
    struct dnn_got got;

    begin_lib(4);
    lib.engine[0].workspace = kept - 1;
    lib.engine[1].workspace = 2 * kept + 1;
    lib.engine[2].workspace = kept;
    lib.engine[2].refused = true;
    lib.engine[3].workspace = 2 * kept;
    tap_ok(dnn_attention_plan(&graph, &at, &c, &got), "a plan %s", graph.why);
    tap_ok(lib.ops == graph.op_count && lib.hidden == 1,
           "a causal backward of %d operations on %d tensors", lib.ops, lib.tensors);
    tap_ok(got.plan && got.engine == 3 && got.workspace == 2 * kept && !got.needs,
           "not the engine that keeps no scores, nor too large, nor refused, but the "
           "last");
    dnn_end(&graph);
    tap_is_int(lib.alive, 0, "all descriptors are gone");

    lib.engines = 3;
    tap_ok(!dnn_attention_plan(&graph, &at, &c, &got) && graph.failed &&
               got.needs == 2 * kept + 1 && !graph.lacks &&
               !strcmp(graph.why, "3 engines, the smallest takes 192 MiB"),
           "no plan: %s", graph.why);
    dnn_end(&graph);
    lib.engines = 1;
    lib.error = "Warning: CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING";
    tap_ok(!dnn_attention_plan(&graph, &at, &c, &got) && !got.needs && graph.lacks,
           "none for want of a library: %s", graph.why);
    dnn_end(&graph);
    lib.error = NULL;
    tap_ok(!dnn_attention_plan(&graph, &at, &c, &got) && !got.needs && !graph.lacks,
           "none that is deterministic: %s", graph.why);
    dnn_end(&graph);

    c = attn_forward_part(&c.p, memory, NULL);
    c.p.causal = false;
    lib.hidden = 0;
    lib.engine[0].workspace = 0;
    tap_ok(dnn_attention_plan(&graph, &at, &c, &got) && lib.hidden == 0,
           "forward: any engine, and nothing is hidden when all is seen");
    dnn_end(&graph);
    tap_is_int(lib.alive, 0, "all descriptors are gone");
}

/* Devices for which cuDNN does not propose the engine that NVIDIA has. */
static void test_settings(void)
{
    struct attn_part c = backward_of(&shapes[1]);
    struct dnn_place at = place_of(1000);
    struct dnn_graph graph;
    struct dnn_got got;

    begin_lib(1);
    at.compute = 100;
    tap_ok(dnn_attention_plan(&graph, &at, &c, &got) && lib.knobs == 2 && !lib.asked,
           "sm_100: two settings, no proposals");
    dnn_end(&graph);
    at.version = 92300;
    tap_ok(dnn_attention_plan(&graph, &at, &c, &got) && lib.knobs == 2 + 6,
           "six from 9.23 on");
    dnn_end(&graph);
    lib.refuse_type = DNN_ENGINECFG;
    lib.engine[0].workspace = 1000 + attn_kept_bytes(&c.p);
    at.most = lib.engine[0].workspace;
    tap_ok(dnn_attention_plan(&graph, &at, &c, &got) && lib.asked == 1,
           "refused: what cuDNN proposes");
    dnn_end(&graph);
    tap_is_int(lib.alive, 0, "all descriptors are gone");
    tap_ok(!dnn_attention_engine(90, 91900) && !dnn_attention_engine(120, 91900) &&
               !dnn_attention_engine(100, 91800) && dnn_attention_engine(103, 91801),
           "from 9.18.1 on, on sm_100 to sm_103");
}

static void test_refusal(void)
{
    static const int types[] = { DNN_TENSOR,       DNN_OP_MATMUL, DNN_OP_POINTWISE,
                                 DNN_OP_REDUCTION, DNN_GRAPH,     DNN_ENGINEHEUR };
    struct attn_part c = backward_of(&shapes[1]);
    struct dnn_place at = place_of(100);
    struct dnn_graph graph;
    struct dnn_got got;

    begin_lib(1);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        lib.refuse_type = types[i];
        tap_ok(!dnn_attention_plan(&graph, &at, &c, &got) && !got.needs &&
                   strstr(graph.why, "3000 no such thing"),
               "refused: %s", graph.why);
        dnn_end(&graph);
        tap_is_int(lib.alive, 0, "all descriptors are gone");
    }
}

/* ---- parts ----------------------------------------------------------------------- */

/* Sizes of parts. `room`: how many key heads of a sample fit. */
static void test_splits(void)
{
    static const struct {
        int batch, heads, kv_heads, room;
        int64_t samples, kv, parts;
        int plans;
        const char *what;
    } t[] = {
        { 4, 12, 12, 48, 4, 12, 1, 1, "all fits" },
        { 4, 12, 12, 47, 2, 12, 2, 1, "halves of a batch" },
        { 5, 12, 12, 47, 3, 12, 2, 2, "five samples: three and two" },
        { 32, 12, 12, 125, 8, 12, 4, 1, "32 samples by ten: four times eight" },
        { 1, 32, 8, 2, 1, 2, 4, 1, "a sample by two key heads" },
        { 2, 14, 7, 3, 1, 3, 6, 2, "seven key heads by three, the last alone" },
        { 2, 8, 8, 1, 1, 1, 16, 1, "each head by itself" },
        { 2, 8, 8, 0, 0, 0, 0, 0, "not even one" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(t); i++) {
        const struct shape c = { t[i].batch, 64, t[i].heads, t[i].kv_heads, 64, true };
        struct attn_part whole = backward_of(&c);
        const int64_t unit = attn_kept_bytes(&whole.p) / t[i].batch / t[i].kv_heads;
        struct dnn_place at = place_of(unit * t[i].room + unit / 2);
        struct dnn_attention_plans plans;

        begin_lib(1);
        lib.scaled = true;
        lib.engine[0].workspace = unit;
        dnn_attention_plans(&plans, &at, &whole);
        tap_is_int(plans.count, t[i].plans, "%s: plans", t[i].what);
        if (plans.count)
            tap_ok(plans.split.samples == t[i].samples &&
                       plans.split.kv_heads == t[i].kv &&
                       attn_parts(&whole.p, plans.split) == t[i].parts,
                   "%s: %lld parts of %lld x %lld", t[i].what,
                   (long long)attn_parts(&whole.p, plans.split),
                   (long long)plans.split.samples, (long long)plans.split.kv_heads);
        else
            tap_ok(plans.refused && plans.refused->failed, "%s: %s", t[i].what,
                   plans.refused->why);
        dnn_attention_end(&plans);
        tap_is_int(lib.alive, 0, "all descriptors are gone");
    }
}

enum { B = 3, T = 20, H = 6, KV = 3, D = 8, ROW = (H + 2 * KV) * D, OUT = H * D };

/* A call on the CPU, whole and in parts. */
static struct {
    float qkv[B * T * ROW], out[B * T * OUT], dout[B * T * OUT], lse[B * H * T];
    float dqkv[2][B * T * ROW], delta[B * H * T];
    float out_part[B * T * OUT], dout_part[B * T * OUT];
} cpu;

static struct attn_part cpu_whole(int to)
{
    struct heads q = { cpu.qkv, T * ROW, ROW, D }, k = q, v = q;
    struct heads_out dq = { cpu.dqkv[to], T * ROW, ROW, D, false }, dk = dq, dv = dq;
    struct attention_grads g;
    struct attention p;

    k.data = cpu.qkv + OUT;
    v.data = cpu.qkv + OUT + KV * D;
    dk.data = cpu.dqkv[to] + OUT;
    dv.data = cpu.dqkv[to] + OUT + KV * D;
    p = (struct attention){ .type = ACCEL_F32,
                            .batch = B,
                            .queries = T,
                            .keys = T,
                            .heads = H,
                            .kv_heads = KV,
                            .head_width = D,
                            .q = q,
                            .k = k,
                            .v = v,
                            .causal = true,
                            .scale = 0.3f };
    g = (struct attention_grads){ cpu.out, cpu.dout, cpu.lse, dq, dk, dv };
    return attn_backward_part(&p, &g, cpu.delta);
}

/* The columns of a part, side by side, as the CPU's kernel wants them. */
static void gather(float *to, const void *from, const struct attn_part *c)
{
    const int64_t cols = c->p.heads * D;

    for (int64_t r = 0; r < c->p.batch * T; r++)
        memcpy(to + r * cols, (const float *)from + r * c->out_row,
               (size_t)cols * sizeof(*to));
}

static void test_parts(void)
{
    static const struct attn_split splits[] = { { 2, KV }, { 1, 2 }, { 1, 1 } };
    struct attn_part whole = cpu_whole(0), part;
    struct backend *be;
    accel_error_t err;
    void *scratch;

    if (!tap_is_int(backend_cpu_open(&be, 1, &err), 0, "the CPU"))
        return;
    scratch = malloc(be->attention_scratch(be, &whole.p, true));
    for (int i = 0; i < B * T * ROW; i++)
        cpu.qkv[i] = (float)(i * 37 % 101) / 50.0f - 1.0f;
    for (int i = 0; i < B * T * OUT; i++)
        cpu.dout[i] = (float)(i * 53 % 89) / 40.0f - 1.0f;
    be->attention(be, &whole.p, cpu.out, cpu.lse, scratch);
    be->attention_grad(be, &whole.p, &whole.g, scratch);
    for (size_t s = 0; s < ACCEL_ARRAY_SIZE(splits); s++) {
        memset(cpu.dqkv[1], 0xff, sizeof(cpu.dqkv[1]));
        whole = cpu_whole(1);
        for (int64_t i = 0; i < attn_parts(&whole.p, splits[s]); i++) {
            part = attn_part_at(&whole, splits[s], i);
            gather(cpu.out_part, part.g.out, &part);
            gather(cpu.dout_part, part.g.dout, &part);
            part.g.out = cpu.out_part;
            part.g.dout = cpu.dout_part;
            be->attention_grad(be, &part.p, &part.g, scratch);
        }
        tap_ok(!memcmp(cpu.dqkv[0], cpu.dqkv[1], sizeof(cpu.dqkv[0])),
               "%lld x %lld at a time: the bits of the whole",
               (long long)splits[s].samples, (long long)splits[s].kv_heads);
    }
    part = attn_part_at(&whole, splits[1], 3);
    tap_is_int(part.delta - cpu.delta, (1 * H + 4) * T, "delta of its own");
    free(scratch);
    be->close(be);
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
        { &api->get, "cudnnBackendGetAttribute" },
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

/* ---- devices that are described -------------------------------------------------- */

/* What cuDNN asks of a device; the rest of sm_80, sm_90 and sm_100 is alike. */
static void *describe_device(struct dnn_graph *g, int compute, int sms, size_t memory,
                             int shared)
{
    void *device = dnn_make(g, DNN_DEVICEPROP);
    char text[800];
    int n = snprintf(
        text, sizeof(text),
        "{\"deviceVer\":%d,\"driverVer\":13000,\"cudaDeviceId\":0,"
        "\"totalGlobalMem\":%zu,\"maxGridSize\":[2147483647,65535,65535],"
        "\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"
        "\"multiProcessorCount\":%d,\"warpSize\":32,"
        "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
        "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"
        "\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,"
        "\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,"
        "\"smClockRateKHz\":1980000,\"memClockRateKHz\":2619000,"
        "\"l2CacheSize\":52428800,\"deviceName\":\"described\"}",
        10 * compute, memory, sms, shared);

    dnn_set(g, device, DNN_DEVICEPROP_JSON, DNN_TYPE_CHAR, n + 1, text);
    dnn_finish(g, device, "device");
    return device;
}

static const struct described {
    const char *name;
    int compute, sms;
    size_t memory;
    int shared;
    /* what makes the gradients there, and in how many parts those of `cases` */
    int64_t engine;
    int64_t parts[4];
} devices[] = {
    { "A100 80 GB", 80, 108, 84974239744, 166912, 7, { 1, 1, 4, 1 } },
    { "H100 80 GB", 90, 132, 85029158912, 232448, 6, { 1, 1, 4, 1 } },
    { "B200 180 GB", 100, 148, 191503269888, 232448, 5, { 1, 1, 1, 1 } },
    { "RTX 4090", 89, 128, 25296044032, 101376, 7, { 3, 2, 0, 1 } },
};

static const struct {
    const char *name;
    struct shape shape;
} cases[] = {
    { "GPT-2 32 x 1024", { 32, 1024, 12, 12, 64, true } },
    { "gpt2-xl 8 x 1024", { 8, 1024, 25, 25, 64, true } },
    { "Llama-8B 1 x 8192", { 1, 8192, 32, 8, 128, true } },
    { "Llama-8B 1 x 2048", { 1, 2048, 32, 8, 128, true } },
};

/* A case's plans fit the workspace that the plan of memory has for the device. */
static void test_case(const struct described *d, struct dnn_place *at, int i)
{
    const struct attn_part whole = backward_of(&cases[i].shape);
    struct dnn_attention_plans plans;

    at->most = (int64_t)cuda_workspace_bytes(d->memory);
    dnn_attention_plans(&plans, at, &whole);
    if (!plans.count) {
        tap_is_int(0, d->parts[i], "%s, %s: %s", d->name, cases[i].name,
                   plans.refused->why);
    } else {
        const struct dnn_got *got = &plans.got[0];
        const struct attn_part part = attn_part_at(&whole, plans.split, 0);
        const int64_t kept = attn_kept_bytes(&part.p);

        tap_is_int(attn_parts(&whole.p, plans.split), d->parts[i],
                   "%s, %s: engine %lld in parts, %.1f of %.1f MB", d->name,
                   cases[i].name, (long long)got->engine, (double)got->workspace / 1e6,
                   (double)at->most / 1e6);
        tap_ok(got->engine == d->engine && got->workspace <= at->most &&
                   plans.got[1].workspace <= got->workspace,
               "within it, and the last part, too");
        /* with dk and dv of every query head of grouped heads */
        tap_ok(d->engine == 5 ||
                   (got->workspace >= kept && got->workspace < kept + 4096),
               "the scores, and what grouped heads keep: %lld bytes", (long long)kept);
    }
    dnn_attention_end(&plans);
}

/* cuDNN opens the driver before it looks for engines. The toolkit has a stub of it, in
 * a folder below the libraries'. */
static bool driver_or_stub(void *library)
{
    Dl_info found;
    char path[4096];

    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))
        return true;
    if (!dladdr(dlsym(library, "cudnnGetVersion"), &found))
        return false;
    snprintf(path, sizeof(path), "%.*s/stubs/libcuda.so",
             (int)(strrchr(found.dli_fname, '/') - found.dli_fname), found.dli_fname);
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

static void test_devices(void *library, const struct dnn_api *api)
{
    /* another version may have other engines */
    if (api->version() / 100 != 919 || !driver_or_stub(library)) {
        tap_skip(1, "no cuDNN 9.19, or no driver and no stub of it");
        return;
    }
    for (size_t d = 0; d < ACCEL_ARRAY_SIZE(devices); d++) {
        struct dnn_place at = {
            api, NULL, NULL, devices[d].compute, api->version(), 0
        };
        struct dnn_graph graph;

        dnn_begin(&graph, api);
        at.device = describe_device(&graph, devices[d].compute, devices[d].sms,
                                    devices[d].memory, devices[d].shared);
        tap_ok(!graph.failed, "%s %s", devices[d].name, graph.why);
        for (int i = 0; !graph.failed && i < (int)ACCEL_ARRAY_SIZE(cases); i++)
            test_case(&devices[d], &at, i);
        dnn_end(&graph);
    }
}

static void test_library(void)
{
    void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    struct dnn_api api = { 0 };
    struct dnn_graph graph;
    struct attn_part c;

    if (!library || !find(library, &api) || api.version() < 90800) {
        tap_skip(1, library ? "libcudnn.so.9 makes no graph without a device"
                            : "no libcudnn.so.9 here");
        return;
    }
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shapes); i++)
        for (int backward = 0; backward < 2; backward++) {
            c = backward_of(&shapes[i]);
            dnn_begin(&graph, &api);
            if (backward)
                dnn_attention_backward(&graph, &c, NULL);
            else
                dnn_attention_forward(&graph, &c, NULL);
            tap_ok(!graph.failed && graph.whole, "cuDNN %zu accepts graph %zu, %s %s",
                   api.version(), i, backward ? "backward" : "forward", graph.why);
            dnn_end(&graph);
        }
    c = backward_of(&shapes[0]);
    c.p.k.row = 0;
    c.p.keys = -1;
    dnn_begin(&graph, &api);
    dnn_attention_forward(&graph, &c, NULL);
    tap_ok(graph.failed && graph.why[0], "and refuses what cannot be: %s", graph.why);
    dnn_end(&graph);
    test_devices(library, &api);
}

int main(void)
{
    test_paths();
    test_choice();
    test_settings();
    test_refusal();
    test_splits();
    test_parts();
    test_library();
    return tap_done();
}
