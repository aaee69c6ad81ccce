/* SPDX-License-Identifier: Apache-2.0
 *
 * The module tree: names, units by the wrap policy, misuse of modules and ops (an error
 * that names op, module and shapes, never a crash), lifetime of tensors.
 */
#include <string.h>

#include "backend/device.h"
#include "numbers/bf16.h"
#include "models/model_config.h"
#include "tensor/tape.h"
#include "tests/tap.h"
#include "tests/world/resident.h"

/* How a module or an op is used, and parts of the message; NULL: no error. */
#define EACH_USE(F)                                                                    \
    F(FITS, NULL, NULL)                                                                \
    F(LINEAR_WIDTH, "user: linear", "x [2, 3, 5] and weight [6, 4] do not fit")        \
    F(LINEAR_BIAS, "user: linear", "weight [6, 4] and bias [4] do not fit")            \
    F(LINEAR_ACT, "user: linear", "unknown activation 10")                             \
    F(LINEAR_WEIGHT_NDIM, "user: linear", "2 dimensions, but user.gain is [4]")        \
    F(LINEAR_WEIGHT_ACTIVATION, "user: linear", "must be a parameter")                 \
    F(LINEAR_DTYPE, "user: linear", "dtype float32, not dtype int32")                  \
    F(LINEAR_PARAMETER, "user: linear", "not parameter user.weight")                   \
    F(LINEAR_NULL, "user: linear", "input 1 is NULL")                                  \
    F(LINEAR_UNPREPARED, "user: linear", "parameter user.late has no values yet")      \
    F(NORM_WIDTH, "user: layernorm", "x [2, 3, 5] and gain [4] do not fit")            \
    F(NORM_EPS, "user: layernorm", "eps -1 is negative")                               \
    F(EMBED_FLOAT_IDS, "user: embedding", "ids must be int32")                         \
    F(EMBED_LONG, "user: embedding", "longer than the positions")                      \
    F(EMBED_RANGE, "user: embedding", "id 1 of the batch is not in [0, 6)")            \
    F(EMBED_NEGATIVE, "user: embedding", "id 1 of the batch is not in [0, 6)")         \
    F(ATTENTION_HEADS, "user: attention", "qkv [2, 3, 12] does not fit 3 heads")       \
    F(ATTENTION_ZERO_HEADS, "user: attention", "does not fit 0 heads")                 \
    F(ADD_SHAPES, "user: add", "x [2, 3, 4] and y [2, 3, 5] do not fit")               \
    F(ADD_PARAMETER, "user: add", "user.gain")                                         \
    F(XENT_ROWS, "user: cross_entropy", "x [2, 3, 4] and targets [2, 2] do not fit")   \
    F(XENT_RANGE, "user: cross_entropy", "target 0 of the batch is not below 6")       \
    F(STALE, "user: add", "used after its module returned")                            \
    F(RETURNS_NULL, "user", "class User returned NULL")

#define USE_ENUM(what, where, text) what,
enum misuse { EACH_USE(USE_ENUM) };

#define USE_ROW(what, where, text) { what, where, text },
static const struct misuse_case {
    enum misuse what;
    const char *where, *text;
} misuses[] = { EACH_USE(USE_ROW) };

struct user {
    enum misuse what;
    accel_tensor_t *weight, *gain, *late, *stale;
    accel_module_t *inner;
};

static accel_tensor_t *make(struct graph *g, accel_dtype_t t, int64_t a, int64_t b,
                            int64_t c)
{
    accel_tensor_t *x = graph_tensor(g, t, c ? 3 : 2, (int64_t[]){ a, b, c });

    if (x)
        memset(x->data, 0, (size_t)x->elems * accel_dtype_bytes(t));
    return x;
}

/* Keeps a tensor that it does not return. */
static accel_tensor_t *inner_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    struct user *u = accel_module_state(m->parent);

    (void)n;
    u->stale = accel_add(in[0], in[0]);
    return accel_add(u->stale, in[0]);
}

static accel_tensor_t *embed_misuse(struct graph *g, struct user *u,
                                    accel_tensor_t *const *in)
{
    accel_tensor_t *ids = make(g, ACCEL_I32, 1, 2, 0);

    if (u->what == EMBED_FLOAT_IDS)
        return accel_embedding(in[0], u->weight, NULL);
    if (u->what == EMBED_LONG)
        return accel_embedding(make(g, ACCEL_I32, 1, 7, 0), u->weight, u->weight);
    ((int32_t *)ids->data)[1] = u->what == EMBED_RANGE ? 6 : -1;
    return accel_embedding(ids, u->weight, NULL);
}

static accel_tensor_t *linear_misuse(struct graph *g, struct user *u, accel_tensor_t *x,
                                     accel_tensor_t *wide)
{
    switch (u->what) {
    case LINEAR_WIDTH:
        return accel_linear(wide, u->weight, NULL, ACCEL_ACT_NONE);
    case LINEAR_BIAS:
        return accel_linear(x, u->weight, u->gain, ACCEL_ACT_NONE);
    case LINEAR_ACT:
        return accel_linear(x, u->weight, NULL, (accel_activation_t)10);
    case LINEAR_WEIGHT_NDIM:
        return accel_linear(x, u->gain, NULL, ACCEL_ACT_NONE);
    case LINEAR_WEIGHT_ACTIVATION:
        return accel_linear(x, wide, NULL, ACCEL_ACT_NONE);
    case LINEAR_DTYPE:
        return accel_linear(make(g, ACCEL_I32, 2, 4, 0), u->weight, NULL,
                            ACCEL_ACT_NONE);
    case LINEAR_PARAMETER:
        return accel_linear(u->weight, u->weight, NULL, ACCEL_ACT_NONE);
    case LINEAR_NULL:
        return accel_linear(NULL, u->weight, NULL, ACCEL_ACT_NONE);
    default:
        return accel_linear(x, u->late, NULL, ACCEL_ACT_NONE);
    }
}

static accel_tensor_t *user_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    struct user *u = accel_module_state(m);
    accel_tensor_t *x = n == 1 ? in[0] : NULL, *wide = make(m->g, ACCEL_F32, 2, 3, 5);
    accel_tensor_t *targets = make(m->g, ACCEL_I32, 2, 3, 0);

    if (u->what >= LINEAR_WIDTH && u->what <= LINEAR_UNPREPARED)
        return linear_misuse(m->g, u, x, wide);
    switch (u->what) {
    case NORM_WIDTH:
        return accel_layernorm(wide, u->gain, u->gain, 0.0f);
    case NORM_EPS:
        return accel_layernorm(x, u->gain, u->gain, -1.0f);
    case EMBED_FLOAT_IDS:
    case EMBED_LONG:
    case EMBED_RANGE:
    case EMBED_NEGATIVE:
        return embed_misuse(m->g, u, in);
    case ATTENTION_HEADS:
        return accel_attention(
            make(m->g, ACCEL_F32, 2, 3, 12), NULL, NULL,
            &(accel_attention_t){ sizeof(accel_attention_t), .heads = 3 });
    case ATTENTION_ZERO_HEADS:
        return accel_attention(
            x, NULL, NULL, &(accel_attention_t){ .bytes = sizeof(accel_attention_t) });
    case ADD_SHAPES:
        return accel_add(x, wide);
    case ADD_PARAMETER:
        return accel_add(x, u->gain);
    case XENT_ROWS:
        return accel_cross_entropy(x, u->weight, NULL, make(m->g, ACCEL_I32, 2, 2, 0),
                                   NULL);
    case XENT_RANGE:
        ((int32_t *)targets->data)[0] = 6;
        return accel_cross_entropy(x, u->weight, NULL, targets, NULL);
    case STALE:
        x = accel_call(u->inner, &x, 1);
        return accel_add(x, u->stale);
    case RETURNS_NULL:
        return NULL;
    default:
        x = accel_layernorm(x, u->gain, u->gain, 1e-5f);
        return accel_cross_entropy(x, u->weight, NULL, targets, NULL);
    }
}

static accel_tensor_t *pass(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)m;
    return n ? in[0] : NULL;
}

static const accel_class_t root_class = { sizeof(root_class), "Root", pass, 0 };
static const accel_class_t user_class = { sizeof(user_class), "User", user_forward,
                                          sizeof(struct user) };
static const accel_class_t inner_class = { sizeof(inner_class), "Inner", inner_forward,
                                           0 };

struct rig {
    struct backend *be;
    struct graph g;
    accel_module_t *root, *user;
    struct units units;
    struct resident r;
};

static bool rig_open(struct rig *k)
{
    const int64_t four = 4;
    struct user *u;

    memset(k, 0, sizeof(*k));
    if (backend_cpu_open(&k->be, 1, NULL) ||
        graph_open(&k->g, k->be, ACCEL_F32, false, NULL))
        return false;
    k->root = nn_module_new(&k->g, &root_class, NULL, "model");
    k->user = nn_module_new(&k->g, &user_class, k->root, "user");
    u = accel_module_state(k->user);
    u->inner = nn_module_new(&k->g, &inner_class, k->user, "inner");
    u->weight = accel_param(k->user, "weight", 2, (int64_t[]){ 6, 4 },
                            (accel_init_t){ ACCEL_INIT_NORMAL, 1 });
    u->gain = accel_param(k->user, "gain", 1, &four, (accel_init_t){ 0 });
    if (nn_units_build(k->root, false, NULL, &k->units, NULL) ||
        resident_open(&k->r, &k->units, ACCEL_F32, 1))
        return false;
    u->late = accel_param(k->user, "late", 2, (int64_t[]){ 6, 4 }, (accel_init_t){ 0 });
    k->g.residency = resident_residency(&k->r);
    return true;
}

static void rig_close(struct rig *k)
{
    resident_close(&k->r);
    units_free(&k->units);
    nn_module_free(k->root);
    graph_close(&k->g);
    backend_close(k->be);
}

/* A TAP line: nothing was made, and the error has these words. Then there is none. */
static void is_refused(struct rig *k, const void *made, const char *where,
                       const char *text)
{
    tap_ok(!made && strstr(k->g.error.where, where) && strstr(k->g.error.text, text),
           "%s: %s", k->g.error.where, k->g.error.text);
    graph_reset(&k->g);
}

static void test_misuse(struct rig *k)
{
    struct user *u = accel_module_state(k->user);

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(misuses); i++) {
        const struct misuse_case *c = &misuses[i];
        accel_error_t err = { 0 };
        accel_tensor_t *x, *y;

        graph_reset(&k->g);
        u->what = c->what;
        x = make(&k->g, ACCEL_F32, 2, 3, 4);
        y = accel_call(k->user, &x, 1);
        if (!c->where) {
            tap_ok(y && !graph_backward(&k->g, y, 1.0f, &err), "right use: %s",
                   k->g.error.text);
            continue;
        }
        tap_ok(!y && strstr(k->g.error.where, c->where) &&
                   strstr(k->g.error.text, c->text),
               "%s: %s", k->g.error.where, k->g.error.text);
        tap_ok(!accel_add(x, x) && strstr(k->g.error.text, c->text),
               "the first error stays and later ops return NULL");
        tap_ok(graph_backward(&k->g, y, 1.0f, &err) == k->g.error.code &&
                   strstr(err.text, c->text),
               "backward reports it");
    }
    graph_reset(&k->g);
    tap_is_int(k->r.faults, 0, "residency protocol");
}

static void test_loss(struct rig *k)
{
    accel_tensor_t *x = make(&k->g, ACCEL_F32, 2, 3, 4);
    accel_tensor_t *one = make(&k->g, ACCEL_F32, 1, 1, 0);
    accel_error_t err = { 0 };
    float f;

    tap_is_int(graph_backward(&k->g, NULL, 1, NULL), ACCEL_EINVAL, "loss NULL");
    tap_ok(graph_backward(&k->g, x, 1, &err) == ACCEL_EINVAL &&
               strstr(err.text, "one float32, not float32 [2, 3, 4]"),
           "loss not a scalar: %s", err.text);
    tap_ok(graph_backward(&k->g, k->user->param[0], 1, &err) == ACCEL_EINVAL &&
               strstr(err.text, "parameter user.weight"),
           "loss a parameter: %s", err.text);
    tap_is_int(graph_backward(&k->g, one, 1, NULL), ACCEL_EINVAL, "loss of nothing");
    tap_is_int(accel_tensor_read(x, &f, 1, NULL), ACCEL_EINVAL, "read: wrong size");
    tap_is_int(accel_tensor_read(NULL, &f, 1, NULL), ACCEL_EINVAL, "read: NULL");
    tap_is_int(accel_tensor_read(k->user->param[0], &f, 1, NULL), ACCEL_EINVAL,
               "read: parameter");
    tap_ok(!accel_call(NULL, &x, 1) && !accel_add(NULL, NULL) &&
               !accel_attention(NULL, NULL, NULL, NULL),
           "NULL everywhere gives NULL");
    is_refused(k, make(&k->g, ACCEL_F32, -1, 3, 0), "", "size 0 is -1");
    is_refused(k, graph_tensor(&k->g, ACCEL_F32, 5, (int64_t[]){ 1, 1, 1, 1, 1 }), "",
               "5 dimensions");
    is_refused(k, graph_tensor(&k->g, ACCEL_F32, 1, (int64_t[]){ INT64_C(1) << 31 }),
               "", "size 0 is 2147483648");
    k->g.draws.calls = 3;
    graph_reset(&k->g);
    tap_is_int(k->g.draws.calls, 0, "each micro-batch counts its draws from 0");
}

/* A tensor of the micro-batch before is not one of this micro-batch, which would have
 * its address: between the two the graph is reset by the step and by the next batch. */
static void test_stale(struct rig *k)
{
    accel_tensor_t *before = make(&k->g, ACCEL_F32, 2, 3, 0), *x, *loss;
    accel_error_t err = { 0 };
    float f[6];

    before = accel_add(before, before);
    loss = accel_sum(before, -1);
    loss->needs_grad = true;
    graph_reset(&k->g);
    graph_reset(&k->g);
    tap_ok(graph_backward(&k->g, loss, 1, &err) == ACCEL_EINVAL &&
               strstr(err.text, "does not belong to this micro-batch"),
           "a loss of the step before: %s", err.text);
    x = make(&k->g, ACCEL_F32, 2, 3, 0);
    x = accel_add(x, x);
    tap_ok(accel_tensor_read(before, f, 6, NULL) == ACCEL_EINVAL &&
               !accel_tensor_read(x, f, 6, NULL),
           "a tensor of the step before has no values");
    is_refused(k, accel_mul(x, before), "", "input 2, [2, 3], is used after");
}

static accel_status_t negative_shape(const void *attr, const accel_array_t *in, int n,
                                     accel_array_t *out, accel_error_t *err)
{
    (void)attr, (void)in, (void)n, (void)err;
    out->ndim = 2;
    out->dims[0] = -4;
    out->dims[1] = 3;
    return ACCEL_OK;
}

static accel_status_t no_forward(const void *attr, const accel_array_t *in, int n,
                                 const accel_array_t *out, accel_error_t *err)
{
    (void)attr, (void)in, (void)n, (void)out;
    return accel_error_set(err, ACCEL_EBUG, "not to be called", NULL);
}

static const accel_op_t negative = { sizeof(negative), "negative", negative_shape,
                                     no_forward, NULL };

/* A new tensor each time: what is refused frees the others. */
static accel_tensor_t *wide(struct rig *k)
{
    return make(&k->g, ACCEL_F32, 2, 3, 0);
}

static accel_tensor_t *tall(struct rig *k)
{
    return make(&k->g, ACCEL_F32, 3, 2, 0);
}

static accel_tensor_t *narrow(struct rig *k)
{
    return make(&k->g, ACCEL_BF16, 2, 3, 0);
}

static accel_tensor_t *ids(struct rig *k)
{
    return make(&k->g, ACCEL_I32, 2, 3, 0);
}

/* Ops without parameters, called outside of modules. */
static void test_refused(struct rig *k)
{
    accel_tensor_t *x;

    is_refused(k, accel_gated(wide(k), tall(k), ACCEL_ACT_SILU), "gated",
               "gate [2, 3] and up [3, 2] do not fit");
    is_refused(k, accel_mul(wide(k), narrow(k)), "mul",
               "x is float32, but y is bfloat16");
    is_refused(k, accel_activate(wide(k), (accel_activation_t)-1), "activate",
               "unknown activation -1");
    is_refused(k, accel_dropout(wide(k), 1.0f), "dropout",
               "the probability 1 is not in [0, 1)");
    is_refused(k, accel_reshape(wide(k), 2, (int64_t[]){ 4, -1 }), "reshape",
               "x [2, 3] cannot become [4, -1]");
    is_refused(k, accel_slice(wide(k), 1, 2, 2), "slice",
               "x [2, 3] does not have 2 elements from 2 on in dimension 1");
    is_refused(k, accel_transpose(wide(k), 0, 2), "transpose",
               "[2, 3] has no dimension 2");
    is_refused(k, accel_softmax(ids(k)), "softmax",
               "x must be float32, bfloat16 or float16, not int32");
    is_refused(k, accel_sum(wide(k), -2), "sum", "[2, 3] has no dimension -2");
    is_refused(k, accel_mse(wide(k), tall(k)), "mse",
               "x [2, 3] and y [3, 2] do not fit");
    is_refused(k, accel_cast(wide(k), ACCEL_I32), "cast", "cannot cast x to int32");
    is_refused(k, accel_maxpool2d(wide(k), 2, 2), "maxpool2d",
               "x [2, 3] has no window of 2 x 2");
    x = wide(k);
    is_refused(k, accel_apply(&negative, &x, 1, NULL), "negative",
               "invalid tensor [-4, 3]: size 0 is -4");
    is_refused(k, accel_log(ids(k)), "log",
               "x must be float32, bfloat16 or float16, not int32");
    is_refused(k, accel_scale(ids(k), 2), "scale",
               "x must be float32, bfloat16 or float16, not int32");
    is_refused(k, accel_binary_cross_entropy(wide(k), tall(k)), "binary_cross_entropy",
               "x [2, 3] and y [3, 2] do not fit");
    is_refused(k, accel_soft_cross_entropy(wide(k), narrow(k)), "soft_cross_entropy",
               "x is float32, but y is bfloat16");
    is_refused(k, accel_mean(k->user->param[0], 0), "mean",
               "x must not be a parameter");
    is_refused(k, accel_reshape(k->user->param[0], 1, (int64_t[]){ -1 }), "reshape",
               "x must not be a parameter");
}

/* Edges of dimensions and sizes, of a tensor of [2, 3]. */
static void test_views(struct rig *k)
{
    static const struct {
        int ndim;
        int64_t dims[5];
        const char *text;
    } shapes[] = {
        { 2, { -1, -1 }, "x [2, 3] cannot become [-1, -1]" },
        { 2, { 6, -2 }, "x [2, 3] cannot become [6, -2]" },
        { 2, { 0, -1 }, "x [2, 3] cannot become [0, -1]" },
        { 0, { 6 }, "a tensor cannot have 0 dimensions" },
        { 5, { 1, 1, 1, 2, 3 }, "a tensor cannot have 5 dimensions" },
        { 3, { 1, -1, 3 }, NULL },
    };
    static const struct {
        int dim;
        int64_t begin, count;
        const char *text;
    } slices[] = {
        { 0, -1, 1, "does not have 1 elements from -1" },
        { 0, 0, -1, "does not have -1 elements" },
        { 0, 3, 0, "does not have 0 elements from 3" },
        { 1, 0, 4, "does not have 4 elements" },
        { -1, 0, 1, "no dimension -1" },
        { 2, 0, 1, "no dimension 2" },
        { 0, 2, 0, NULL },
        { 1, 2, 1, NULL },
    };
    accel_tensor_t *one;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shapes) + ACCEL_ARRAY_SIZE(slices); i++) {
        size_t j = i - ACCEL_ARRAY_SIZE(shapes);
        bool shape = i < ACCEL_ARRAY_SIZE(shapes);
        accel_tensor_t *x = wide(k);
        accel_tensor_t *y =
            shape ? accel_reshape(x, shapes[i].ndim, shapes[i].dims)
                  : accel_slice(x, slices[j].dim, slices[j].begin, slices[j].count);
        const char *text = shape ? shapes[i].text : slices[j].text;

        if (text)
            is_refused(k, y, "", text);
        else
            tap_ok(y && !k->g.error.code, "a view at the edge %s", k->g.error.text);
        graph_reset(&k->g);
    }
    is_refused(k, accel_dropout(wide(k), -0.5f), "", "-0.5");
    k->g.draws.batch = 2;
    is_refused(k, accel_dropout(tall(k), 0.5f), "", "not a multiple of the 2 samples");
    k->g.training = false;
    one = tall(k);
    tap_ok(accel_dropout(one, 0.5f) == one && k->g.draws.calls == 0,
           "without training nothing is dropped or drawn");
    k->g.training = true;
    k->g.draws.batch = 1;
    graph_reset(&k->g);
}

/* No two things of a module have one name, whatever they are. */
static void test_taken(struct rig *k)
{
    static const char *const names[] = { "module", "parameter", "buffer", "alias" };
    accel_module_t *m = nn_module_new(&k->g, &root_class, NULL, NULL);
    const accel_init_t zeros = { 0 };
    const int64_t one = 1;
    accel_tensor_t *p;

    nn_module_new(&k->g, &root_class, m, names[0]);
    p = accel_param(m, names[1], 1, &one, zeros);
    accel_buffer(m, names[2], ACCEL_F32, 1, &one, zeros);
    accel_tie(m, names[3], p);
    tap_ok(!k->g.error.code, "four names %s", k->g.error.text);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(names); i++) {
        bool refused = true;

        for (int kind = 0; kind < 4; kind++) {
            void *made =
                kind == 0   ? (void *)nn_module_new(&k->g, &root_class, m, names[i])
                : kind == 1 ? (void *)accel_param(m, names[i], 1, &one, zeros)
                : kind == 2
                    ? (void *)accel_buffer(m, names[i], ACCEL_F32, 1, &one, zeros)
                    : (void *)accel_tie(m, names[i], p);

            refused = refused && !made && strstr(k->g.error.text, "already exists");
            graph_reset(&k->g);
        }
        tap_ok(refused, "nothing else may have the name of a %s", names[i]);
    }
    for (int kind = 0; kind < 3; kind++) {
        const char *bad = kind == 0 ? "" : kind == 1 ? "a/b" : NULL;

        is_refused(k, accel_param(m, bad, 1, &one, zeros), "", "is not a valid name");
    }
    nn_module_free(m);
}

/* Buffers as they begin, and those that cannot be. */
static void test_buffers(struct rig *k)
{
    static const struct {
        const char *text;
        accel_dtype_t type;
        int ndim;
        int64_t dims[5];
        accel_init_t init;
    } refused[] = {
        { "start with random values", ACCEL_F32, 1, { 3 }, { ACCEL_INIT_NORMAL, 1 } },
        { "start with random values", ACCEL_F32, 1, { 3 }, { ACCEL_INIT_UNIFORM, 1 } },
        { "size 1 is 0", ACCEL_F32, 2, { 3, 0 }, { 0 } },
        { "size 0 is -1", ACCEL_F32, 1, { -1 }, { 0 } },
        { "size 1 is 2147483648", ACCEL_F32, 2, { 1, 1L << 31 }, { 0 } },
        { "has 0 dimensions", ACCEL_F32, 0, { 3 }, { 0 } },
        { "has 5 dimensions", ACCEL_F32, 5, { 1, 1, 1, 1, 1 }, { 0 } },
        { "has dtype float64", ACCEL_F64, 1, { 3 }, { 0 } },
    };
    static const accel_dtype_t types[] = { ACCEL_F32, ACCEL_BF16, ACCEL_I32 };
    accel_module_t *m = nn_module_new(&k->g, &root_class, NULL, NULL);
    const int64_t dims[] = { 2, 3 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(refused); i++)
        is_refused(k,
                   accel_buffer(m, "b", refused[i].type, refused[i].ndim,
                                refused[i].dims, refused[i].init),
                   "", refused[i].text);
    for (int i = 0; i < 9; i++) {
        const char name[] = { (char)('a' + i), '\0' };
        accel_init_t init = { i / 3 == 0   ? ACCEL_INIT_ZEROS
                              : i / 3 == 1 ? ACCEL_INIT_ONES
                                           : ACCEL_INIT_CONSTANT,
                              -7 };

        accel_buffer(m, name, types[i % 3], 2, dims, init);
    }
    tap_ok(!nn_buffers_open(m, &k->g.error) && m->buffer_count == 9, "nine buffers");
    for (int i = 0; i < m->buffer_count; i++) {
        const void *data = m->buffer[i]->data;
        double last = i % 3 == 0   ? (double)((const float *)data)[5]
                      : i % 3 == 1 ? (double)bf16_to_f32(((const bf16_t *)data)[5])
                                   : (double)((const int32_t *)data)[5];

        tap_ok(last == (i / 3 == 0   ? 0
                        : i / 3 == 1 ? 1
                                     : -7),
               "%s begins as %g", accel_dtype_name(types[i % 3]), last);
    }
    nn_module_free(m);
}

static void test_names(struct rig *k)
{
    accel_tensor_t *late = k->user->param[2];
    const int64_t zero = 0;

    tap_is_str(k->root->path, "", "the root has no name");
    tap_is_str(late->name, "user.late", "full name of a parameter");
    is_refused(k, accel_param(k->user, "gain", 1, &zero, (accel_init_t){ 0 }), "",
               "user.gain already exists");
    is_refused(k, accel_param(k->user, "none", 1, &zero, (accel_init_t){ 0 }), "",
               "size 0 is 0");
    tap_ok(!nn_module_new(&k->g, &user_class, k->root, ""), "a module without name");
    graph_reset(&k->g);
}

static void wrap(accel_module_t *m, const char *classes, int want, const char *message)
{
    struct units units = { 0 };
    accel_error_t err = { 0 };
    accel_status_t status = nn_classes_check(&m, 1, classes, &err);

    if (status == ACCEL_OK)
        status = nn_units_build(m, true, classes, &units, &err);
    if (message)
        tap_ok(status == ACCEL_ECONFIG && strstr(err.text, message) != NULL,
               "'%s': %s; %s", classes, err.text, err.hint);
    else
        tap_is_int(units.count, want, "'%s': %d units", classes, want);
    units_free(&units);
}

/* A block in a block is no unit of its own; the root is none, whatever its class. */
static void test_nested(struct rig *k)
{
    static const accel_class_t block = { sizeof(block), "SomeBlock", pass, 0 };
    accel_module_t *root = nn_module_new(&k->g, &block, NULL, NULL);
    accel_module_t *a = nn_module_new(&k->g, &block, root, "a");
    accel_module_t *c =
        nn_module_new(&k->g, &block, nn_module_new(&k->g, &root_class, a, "b"), "c");
    const int64_t one = 1;
    struct units units = { 0 };

    accel_param(root, "p", 1, &one, (accel_init_t){ 0 });
    accel_param(a, "p", 1, &one, (accel_init_t){ 0 });
    accel_param(c, "p", 1, &one, (accel_init_t){ 0 });
    for (int named = 0; named < 2; named++) {
        tap_is_int(nn_units_build(root, true, named ? "SomeBlock" : NULL, &units, NULL),
                   0, "a block in a block");
        tap_ok(units.count == 2 && !strcmp(units.unit[0].name, "") &&
                   !strcmp(units.unit[1].name, "a") && units.unit[0].param_count == 1 &&
                   units.unit[1].param_count == 2 && c->unit == 1,
               "is of the unit of the outer one (%d units)", units.count);
        units_free(&units);
    }
    root->param[0]->needs_grad = false;
    tap_is_int(nn_units_build(root, false, NULL, &units, NULL), 0, "not wrapped");
    tap_is_int(units.count, 1, "all is one unit");
    tap_ok(a->param[0]->param->unit_offset == 0 &&
               c->param[0]->param->unit_offset == 32 &&
               root->param[0]->param->unit_offset == 64 && units.unit[0].elems == 96 &&
               units.unit[0].frozen == 32,
           "what is frozen lies behind what is trained");
    units_free(&units);
    nn_module_free(root);
}

static void test_units(struct rig *k)
{
    const accel_model_config_t cfg = { .model_type = "gpt2",
                                       .layers = 3,
                                       .heads = 2,
                                       .width = 6,
                                       .context = 5,
                                       .vocab = 7 };
    accel_model_config_t bad = cfg;
    accel_module_t *m = model_new(&k->g, &cfg, NULL);
    struct units units;
    accel_error_t err = { 0 };
    bool order = true;

    wrap(m, "", 4, NULL);
    wrap(m, "GPT2Block", 4, NULL);
    wrap(m, " GPT2Block , GPT2MLP", 4, NULL);
    wrap(m, "GPT2MLP,GPT2Attention", 7, NULL);
    wrap(m, "GPT2Blok", 0, "no class 'GPT2Blok'");
    wrap(m, "GPT2Block,Llama", 0, "no class 'Llama'");
    wrap(m, "GPT2", 0, "no class 'GPT2'");
    wrap(m, "Block", 0, "no class 'Block'");
    wrap(m, "\tGPT2Block\t,", 4, NULL);
    wrap(k->root, "", 1, NULL);
    tap_is_int(nn_classes_check(&m, 1, "GPT2Blok", &err), ACCEL_ECONFIG, "typo");
    tap_is_str(err.hint, "did you mean GPT2Block?", "the nearest class is named");
    tap_is_int(nn_units_build(m, true, "", &units, &err), 0, "build");
    tap_is_str(units.unit[0].name, "", "unit 0 is the rest");
    tap_is_str(units.unit[2].name, "h.1", "units are named by their module");
    tap_is_int(units.unit[0].param_count, 4, "wte, wpe and the last norm");
    tap_is_int(units.unit[3].param_count, 12, "a block's parameters");
    tap_is_str(units.unit[1].param[2]->name, "h.0.attn.c_attn.weight",
               "declared order");
    tap_is_int(units.unit[1].param[2]->param->unit_offset, 64,
               "offsets on cache lines");
    for (int u = 0; u < units.count; u++)
        for (int i = 0; i < units.unit[u].param_count; i++)
            order = order && units.unit[u].param[i]->param->unit == u &&
                    units.unit[u].param[i]->param->unit_offset % 16 == 0 &&
                    (!i || units.unit[u].param[i]->param->unit_offset >=
                               units.unit[u].param[i - 1]->param->unit_offset +
                                   units.unit[u].param[i - 1]->elems);
    tap_ok(order, "parameters do not overlap and know their unit");
    units_free(&units);
    nn_module_free(m);
    bad.heads = 4;
    tap_ok(!model_new(&k->g, &bad, &err) &&
               strstr(err.text, "width 6 is not a multiple of 4 heads"),
           "heads that do not divide the width");
    bad = cfg;
    bad.layers = 0;
    tap_ok(!model_new(&k->g, &bad, &err), "no layers");
}

int main(void)
{
    struct rig k;

    if (!tap_ok(rig_open(&k), "open: %s", k.g.error.text))
        return tap_done();
    test_misuse(&k);
    test_loss(&k);
    test_stale(&k);
    test_refused(&k);
    test_views(&k);
    test_names(&k);
    test_taken(&k);
    test_buffers(&k);
    test_nested(&k);
    test_units(&k);
    rig_close(&k);
    return tap_done();
}
