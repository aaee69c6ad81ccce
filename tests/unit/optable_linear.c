/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the op table: ops around a table of weights.
 */
#include "tests/unit/optable.h"

/* ---- linear: s[0] rows, s[1] in, s[2] out, s[3] activation, s[4] with bias ----------- */

static int linear_inputs(const struct op_case *c, struct op_input in[OP_INPUTS])
{
    in[0] = op_computed_input(2, c->s[0], c->s[1], 0, 0);
    in[1] = op_parameter_input(2, c->s[2], c->s[1], 0, 0);
    in[2] = op_parameter_input(1, c->s[2], 0, 0, 0);
    return 2 + (int)c->s[4];
}

static accel_tensor_t *linear(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_linear(in[0], in[1], c->s[4] ? in[2] : NULL,
                        (accel_activation_t)c->s[3]);
}

static void linear_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    int64_t k = c->s[1], n = c->s[2];

    for (int64_t r = 0; r < c->s[0]; r++)
        for (int64_t o = 0; o < n; o++) {
            double v = c->s[4] ? in[2].v[o] : 0;

            for (int64_t i = 0; i < k; i++)
                v += in[0].v[r * k + i] * in[1].v[o * k + i];
            y[r * n + o] = optable_act(v, c->s[3]);
        }
}

/* ---- embedding: s[0] x s[1] ids, s[2] tokens of s[3], s[4] with positions ------------ */

static int embedding_inputs(const struct op_case *c, struct op_input in[OP_INPUTS])
{
    in[0] = (struct op_input){
        .kind = OP_IDS, .ndim = 2, .dim = { c->s[0], c->s[1] }, .high = c->s[2]
    };
    in[1] = op_parameter_input(2, c->s[2], c->s[3], 0, 0);
    in[2] = op_parameter_input(2, c->s[1] + 2, c->s[3], 0, 0);
    return 2 + (int)c->s[4];
}

static accel_tensor_t *embedding(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_embedding(in[0], in[1], c->s[4] ? in[2] : NULL);
}

static void embedding_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    int64_t n = c->s[3];

    for (int64_t r = 0; r < in[0].elems; r++)
        for (int64_t i = 0; i < n; i++)
            y[r * n + i] = in[1].v[(int64_t)in[0].v[r] * n + i] +
                           (c->s[4] ? in[2].v[r % c->s[1] * n + i] : 0);
}

static const struct op_family linear_family = { linear_inputs, linear, linear_ref };
static const struct op_family embedding_family = { embedding_inputs, embedding,
                                                   embedding_ref };

#define LINEAR(name, act)                                                              \
    { "linear " name, &linear_family, { 1, 1, 1, act, 1 }, { 0 }, true },              \
        { "linear " name, &linear_family, { 5, 37, 67, act, 1 }, { 0 }, true },        \
        { "linear " name, &linear_family, { 5, 37, 389, act, 0 }, { 0 }, true },       \
    {                                                                                  \
        "linear " name, &linear_family, { 0, 3, 5, act, 1 }, { 0 }, true               \
    }

static const struct op_case cases[] = {
    LINEAR("none", ACCEL_ACT_NONE),
    { "linear none", &linear_family, { 7, 13, 401, 0, 1 }, { 0 }, false },
    { "linear none", &linear_family, { 521, 3, 5, 0, 0 }, { 0 }, false },
    { "linear none", &linear_family, { 2, 1031, 2, 0, 1 }, { 0 }, false },
    LINEAR("gelu", ACCEL_ACT_GELU),
    LINEAR("gelu_erf", ACCEL_ACT_GELU_ERF),
    LINEAR("silu", ACCEL_ACT_SILU),
    LINEAR("relu", ACCEL_ACT_RELU),
    LINEAR("relu2", ACCEL_ACT_RELU2),
    LINEAR("tanh", ACCEL_ACT_TANH),
    { "embedding", &embedding_family, { 1, 1, 1, 1, 1 }, { 0 }, false },
    { "embedding", &embedding_family, { 3, 7, 11, 67, 1 }, { 0 }, false },
    { "embedding", &embedding_family, { 2, 5, 3, 130, 0 }, { 0 }, false },
    { "embedding", &embedding_family, { 0, 5, 3, 7, 1 }, { 0 }, false },
};

const struct op_rows optable_linear = { cases, ACCEL_ARRAY_SIZE(cases) };
