/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the op table: one element in, one out. Sizes s[0] x s[1]; s[2] is the
 * activation.
 */
#include <math.h>

#include <Random123/philox.h>

#include "tests/unit/optable.h"

double optable_act(double x, int64_t kind)
{
    double cubed = sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);

    switch (kind) {
    case ACCEL_ACT_GELU:
        return 0.5 * x * (1 + tanh(cubed));
    case ACCEL_ACT_GELU_ERF:
        return 0.5 * x * erfc(-x / sqrt(2));
    case ACCEL_ACT_SILU:
        return x / (1 + exp(-x));
    case ACCEL_ACT_RELU:
        return x > 0 ? x : 0;
    case ACCEL_ACT_RELU2:
        return x > 0 ? x * x : 0;
    case ACCEL_ACT_TANH:
        return tanh(x);
    case ACCEL_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case ACCEL_ACT_EXP:
        return exp(x);
    case ACCEL_ACT_LOG:
        return log(x);
    default:
        return x;
    }
}

static int one_input(const struct op_case *c, struct op_input in[OP_INPUTS])
{
    in[0] = op_computed_input(2, c->s[0], c->s[1], 0, 0);
    in[0].reach = c->r[0];
    return 1;
}

/* s[2] is the activation; a logarithm is of what is not too near to 0. */
static int named_input(const struct op_case *c, struct op_input in[OP_INPUTS])
{
    one_input(c, in);
    in[0].least = c->s[2] == ACCEL_ACT_LOG ? c->r[0] / 32 : 0;
    return 1;
}

static int two_inputs(const struct op_case *c, struct op_input in[OP_INPUTS])
{
    in[0] = in[1] = op_computed_input(2, c->s[0], c->s[1], 0, 0);
    in[0].reach = c->r[0];
    return 2;
}

static accel_tensor_t *activate(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_activate(in[0], (accel_activation_t)c->s[2]);
}

/* By the function of its own. */
static accel_tensor_t *named(const struct op_case *c, accel_tensor_t *const *in)
{
    return c->s[2] == ACCEL_ACT_SIGMOID ? accel_sigmoid(in[0])
           : c->s[2] == ACCEL_ACT_EXP   ? accel_exp(in[0])
                                        : accel_log(in[0]);
}

static accel_tensor_t *scale(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_scale(in[0], (float)c->r[1]);
}

/* Its gradient is added to another one. */
static accel_tensor_t *scale_twice(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_add(accel_scale(in[0], (float)c->r[1]), accel_scale(in[0], 1));
}

static void scale_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    for (int64_t i = 0; i < in[0].elems; i++)
        y[i] = (double)(float)c->r[1] * in[0].v[i];
}

static void scale_twice_ref(const struct op_case *c, const struct op_input *in,
                            double *y)
{
    for (int64_t i = 0; i < in[0].elems; i++)
        y[i] = ((double)(float)c->r[1] + 1) * in[0].v[i];
}

static void activate_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    for (int64_t i = 0; i < in[0].elems; i++)
        y[i] = optable_act(in[0].v[i], c->s[2]);
}

static accel_tensor_t *gated(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_gated(in[0], in[1], (accel_activation_t)c->s[2]);
}

static accel_tensor_t *gated_self(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_gated(in[0], in[0], (accel_activation_t)c->s[2]);
}

static accel_tensor_t *mul(const struct op_case *c, accel_tensor_t *const *in)
{
    (void)c;
    return accel_mul(in[0], in[1]);
}

static void gated_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    for (int64_t i = 0; i < in[0].elems; i++)
        y[i] = optable_act(in[0].v[i], c->s[2]) * in[1].v[i];
}

static void gated_self_ref(const struct op_case *c, const struct op_input *in,
                           double *y)
{
    for (int64_t i = 0; i < in[0].elems; i++)
        y[i] = optable_act(in[0].v[i], c->s[2]) * in[0].v[i];
}

static accel_tensor_t *add(const struct op_case *c, accel_tensor_t *const *in)
{
    (void)c;
    return accel_add(in[0], in[1]);
}

static accel_tensor_t *twice(const struct op_case *c, accel_tensor_t *const *in)
{
    (void)c;
    return accel_add(in[0], in[0]);
}

static void add_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    (void)c;
    for (int64_t i = 0; i < in[0].elems; i++)
        y[i] = in[0].v[i] + in[1].v[i];
}

static void twice_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    (void)c;
    for (int64_t i = 0; i < in[0].elems; i++)
        y[i] = 2 * in[0].v[i];
}

static accel_tensor_t *dropout(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_dropout(in[0], (float)c->r[1]);
}

/* The rule of accel.h by the book: the batch is one sample here. */
static void dropout_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    for (int64_t i = 0; i < in[0].elems; i++) {
        uint64_t at = (uint64_t)(OP_FIRST_SAMPLE * in[0].elems + i);
        philox4x32_ctr_t counter = { { (uint32_t)(at / 4), (uint32_t)(at / 4 >> 32), 0,
                                       0x6d61736b } };
        philox4x32_key_t key = { { OP_SEED, 0 } };
        double u;

        counter = philox4x32(counter, key);
        u = counter.v[at % 4] / 4294967296.0;
        y[i] = u < (float)c->r[1] ? 0 : in[0].v[i] / (1 - (double)(float)c->r[1]);
    }
}

static const struct op_family activate_family = { one_input, activate, activate_ref };
static const struct op_family named_family = { named_input, named, activate_ref };
static const struct op_family scale_family = { one_input, scale, scale_ref };
static const struct op_family scale_twice_family = { one_input, scale_twice,
                                                     scale_twice_ref };
static const struct op_family gated_family = { two_inputs, gated, gated_ref };
static const struct op_family gated_self_family = { one_input, gated_self,
                                                    gated_self_ref };
static const struct op_family mul_family = { two_inputs, mul, gated_ref };
static const struct op_family add_family = { two_inputs, add, add_ref };
static const struct op_family twice_family = { one_input, twice, twice_ref };
static const struct op_family dropout_family = { one_input, dropout, dropout_ref };

#define ACT(name, kind)                                                                \
    { "activate " name, &activate_family, { 1, 1, kind }, { 1 }, false },              \
        { "activate " name, &activate_family, { 13, 97, kind }, { 0.02 }, false },     \
        { "activate " name, &activate_family, { 7, 1031, kind }, { 7 }, false },       \
    {                                                                                  \
        "activate " name, &activate_family, { 0, 5, kind }, { 1 }, false               \
    }
#define NAMED(name, kind, reach)                                                       \
    { name, &named_family, { 1, 1, kind }, { 1 }, false },                             \
        { name, &named_family, { 13, 97, kind }, { 1 }, false },                       \
        { name, &named_family, { 7, 1031, kind }, { reach }, false },                  \
    {                                                                                  \
        name, &named_family, { 0, 5, kind }, { 1 }, false                              \
    }
#define GATED(name, kind)                                                              \
    { "gated " name, &gated_family, { 1, 1, kind }, { 2 }, false },                    \
        { "gated " name, &gated_family, { 11, 1031, kind }, { 5 }, false },            \
        { "gated " name, &gated_family, { 3, 0, kind }, { 1 }, false },                \
    {                                                                                  \
        "gated by itself " name, &gated_self_family, { 5, 41, kind }, { 3 }, true      \
    }

static const struct op_case cases[] = {
    ACT("gelu", ACCEL_ACT_GELU),
    ACT("gelu_erf", ACCEL_ACT_GELU_ERF),
    ACT("silu", ACCEL_ACT_SILU),
    ACT("relu", ACCEL_ACT_RELU),
    ACT("relu2", ACCEL_ACT_RELU2),
    ACT("tanh", ACCEL_ACT_TANH),
    NAMED("sigmoid", ACCEL_ACT_SIGMOID, 30),
    NAMED("exp", ACCEL_ACT_EXP, 7),
    NAMED("log", ACCEL_ACT_LOG, 30000),
    { "scale", &scale_family, { 1, 1 }, { 1, 3 }, false },
    { "scale", &scale_family, { 13, 97 }, { 1, -0.7 }, false },
    { "scale", &scale_family, { 7, 4009 }, { 1, 0.25 }, false },
    { "scale", &scale_family, { 0, 5 }, { 1, 2 }, false },
    { "scale added to itself", &scale_twice_family, { 13, 97 }, { 1, 0.3 }, 2 },
    GATED("none", ACCEL_ACT_NONE),
    GATED("gelu", ACCEL_ACT_GELU),
    GATED("gelu_erf", ACCEL_ACT_GELU_ERF),
    GATED("silu", ACCEL_ACT_SILU),
    GATED("relu", ACCEL_ACT_RELU),
    GATED("relu2", ACCEL_ACT_RELU2),
    GATED("tanh", ACCEL_ACT_TANH),
    GATED("sigmoid", ACCEL_ACT_SIGMOID),
    GATED("exp", ACCEL_ACT_EXP),
    { "mul", &mul_family, { 1, 1 }, { 1 }, false },
    { "mul", &mul_family, { 13, 97 }, { 1 }, false },
    { "mul", &mul_family, { 0, 97 }, { 1 }, false },
    { "add", &add_family, { 1, 1 }, { 1 }, false },
    { "add", &add_family, { 13, 97 }, { 1 }, false },
    { "add", &add_family, { 5, 0 }, { 1 }, false },
    { "add of a tensor and itself", &twice_family, { 13, 97 }, { 1 }, true },
    { "dropout", &dropout_family, { 1, 1 }, { 1, 0.5 }, false },
    { "dropout", &dropout_family, { 7, 331 }, { 1, 0.1 }, false },
    { "dropout", &dropout_family, { 3, 2047 }, { 1, 0.9 }, false },
    { "dropout", &dropout_family, { 0, 3 }, { 1, 0.5 }, false },
};

const struct op_rows optable_elementwise = { cases, ACCEL_ARRAY_SIZE(cases) };
