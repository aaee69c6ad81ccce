/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the op table: ops around a table of weights.
 */
#include "tests/unit/optable.h"

/* ---- linear: s[0] rows, s[1] in, s[2] out, s[3] activation, s[4] with bias, s[5]: of
 * int8 ----------------------------------------------------------------------------- */

static int linear_inputs(const struct op_case *c, struct op_input in[OP_INPUTS])
{
    in[0] = op_computed_input(2, c->s[0], c->s[1], 0, 0);
    if (c->s[5]) {
        in[0].kind = OP_BYTES;
        in[0].low = INT8_MIN;
        in[0].high = INT8_MAX + 1;
    }
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

/* ---- chain: the linear above, s[5] outputs of a second one without bias and
 * activation; r[0]: its input is read twice
 * ---------------------------------------------------------- */

static int chain_inputs(const struct op_case *c, struct op_input in[OP_INPUTS])
{
    in[0] = op_computed_input(2, c->s[0], c->s[1], 0, 0);
    in[1] = op_parameter_input(2, c->s[2], c->s[1], 0, 0);
    in[2] = op_parameter_input(2, c->s[5], c->s[2], 0, 0);
    in[3] = op_parameter_input(1, c->s[2], 0, 0, 0);
    return 3 + (int)c->s[4];
}

static accel_tensor_t *chain(const struct op_case *c, accel_tensor_t *const *in)
{
    accel_tensor_t *h =
        accel_linear(in[0], in[1], c->s[4] ? in[3] : NULL, (accel_activation_t)c->s[3]);
    accel_tensor_t *y = accel_linear(h, in[2], NULL, ACCEL_ACT_NONE);

    return c->r[0] > 0 ? accel_add(y, accel_linear(h, in[2], NULL, ACCEL_ACT_NONE)) : y;
}

static void chain_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    int64_t k = c->s[1], hidden = c->s[2], n = c->s[5];

    for (int64_t r = 0; r < c->s[0]; r++) {
        for (int64_t o = 0; o < n; o++)
            y[r * n + o] = 0;
        for (int64_t j = 0; j < hidden; j++) {
            double v = c->s[4] ? in[3].v[j] : 0;

            for (int64_t i = 0; i < k; i++)
                v += in[0].v[r * k + i] * in[1].v[j * k + i];
            v = optable_act(v, c->s[3]) * (c->r[0] > 0 ? 2 : 1);
            for (int64_t o = 0; o < n; o++)
                y[r * n + o] += v * in[2].v[o * hidden + j];
        }
    }
}

/* ---- embedding: s[0] x s[1] ids, s[2] tokens of s[3], s[4] with positions -------- */

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

/* ---- conv2d: x [s0, s1, s2, s3], weight [s4, s1, s5, s6]; s[7] = stride + 10 pad +
 * 100 activation; r[0]: with bias
 * ------------------------------------------------------ */

static int conv_inputs(const struct op_case *c, struct op_input in[OP_INPUTS])
{
    in[0] = op_computed_input(4, c->s[0], c->s[1], c->s[2], c->s[3]);
    in[1] = op_parameter_input(4, c->s[4], c->s[1], c->s[5], c->s[6]);
    in[2] = op_parameter_input(1, c->s[4], 0, 0, 0);
    return 2 + (int)c->r[0];
}

static accel_tensor_t *conv(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_conv2d(in[0], in[1], c->r[0] > 0 ? in[2] : NULL, (int)(c->s[7] % 10),
                        (int)(c->s[7] / 10 % 10), (accel_activation_t)(c->s[7] / 100));
}

/* The sum under one output of conv2d. */
static double taps(const struct op_case *c, const struct op_input *in, int64_t b,
                   int64_t o, int64_t top, int64_t left)
{
    const int64_t *s = c->s;
    double sum = 0;

    for (int64_t k = 0; k < s[1]; k++)
        for (int64_t u = 0; u < s[5]; u++)
            for (int64_t v = 0; v < s[6]; v++) {
                int64_t y = top + u, x = left + v;

                if (y >= 0 && y < s[2] && x >= 0 && x < s[3])
                    sum += in[0].v[((b * s[1] + k) * s[2] + y) * s[3] + x] *
                           in[1].v[((o * s[1] + k) * s[5] + u) * s[6] + v];
            }
    return sum;
}

static void conv_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    const int64_t *s = c->s;
    int64_t stride = s[7] % 10, pad = s[7] / 10 % 10;
    int64_t h = (s[2] + 2 * pad - s[5]) / stride + 1;
    int64_t w = (s[3] + 2 * pad - s[6]) / stride + 1;

    for (int64_t i = 0; i < s[0] * s[4] * h * w; i++) {
        int64_t o = i / w / h % s[4];
        double v = taps(c, in, i / w / h / s[4], o, i / w % h * stride - pad,
                        i % w * stride - pad);

        y[i] = optable_act(v + (c->r[0] > 0 ? in[2].v[o] : 0), s[7] / 100);
    }
}

/* ---- maxpool2d: x [s0, s1, s2, s3], windows of s[4], stride s[5] ----------------- */

static int pool_inputs(const struct op_case *c, struct op_input in[OP_INPUTS])
{
    in[0] = op_computed_input(4, c->s[0], c->s[1], c->s[2], c->s[3]);
    return 1;
}

static accel_tensor_t *pool(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_maxpool2d(in[0], (int)c->s[4], (int)c->s[5]);
}

static void pool_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    const int64_t *s = c->s;
    int64_t h = (s[2] - s[4]) / s[5] + 1, w = (s[3] - s[4]) / s[5] + 1;

    for (int64_t i = 0; i < s[0] * s[1] * h * w; i++) {
        const double *at =
            in[0].v + i / w / h * s[2] * s[3] + i / w % h * s[5] * s[3] + i % w * s[5];

        y[i] = at[0];
        for (int64_t k = 0; k < s[4] * s[4]; k++)
            if (at[k / s[4] * s[3] + k % s[4]] > y[i])
                y[i] = at[k / s[4] * s[3] + k % s[4]];
    }
}

static const struct op_family conv_family = { conv_inputs, conv, conv_ref };
static const struct op_family pool_family = { pool_inputs, pool, pool_ref };
static const struct op_family linear_family = { linear_inputs, linear, linear_ref };
static const struct op_family chain_family = { chain_inputs, chain, chain_ref };
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
    { "linear of int8", &linear_family, { 6, 37, 401, 0, 1, 1 }, { 0 }, false },
    { "linear of int8", &linear_family, { 37, 61, 19, 0, 1, 1 }, { 0 }, false },
    { "linear of int8 relu", &linear_family, { 9, 13, 70, 4, 1, 1 }, { 0 }, true },
    LINEAR("gelu", ACCEL_ACT_GELU),
    LINEAR("gelu_erf", ACCEL_ACT_GELU_ERF),
    LINEAR("silu", ACCEL_ACT_SILU),
    LINEAR("relu", ACCEL_ACT_RELU),
    LINEAR("relu2", ACCEL_ACT_RELU2),
    LINEAR("tanh", ACCEL_ACT_TANH),
    { "chain gelu", &chain_family, { 5, 11, 24, ACCEL_ACT_GELU, 1, 7 }, { 0 }, 2 },
    { "chain gelu", &chain_family, { 5, 11, 23, ACCEL_ACT_GELU, 1, 7 }, { 0 }, 2 },
    { "chain gelu", &chain_family, { 3, 9, 520, ACCEL_ACT_GELU, 0, 3 }, { 0 }, 2 },
    { "chain gelu, twice", &chain_family, { 5, 11, 24, 1, 1, 7 }, { 1 }, 2 },
    { "chain erf", &chain_family, { 5, 11, 24, 2, 1, 7 }, { 0 }, 2 },
    { "chain silu", &chain_family, { 3, 7, 16, ACCEL_ACT_SILU, 0, 5 }, { 0 }, 2 },
    { "chain relu", &chain_family, { 5, 11, 40, ACCEL_ACT_RELU, 1, 7 }, { 0 }, 2 },
    { "chain relu, twice", &chain_family, { 5, 11, 24, 4, 1, 7 }, { 1 }, 2 },
    { "chain tanh", &chain_family, { 4, 6, 8, ACCEL_ACT_TANH, 1, 2 }, { 0 }, 2 },
    { "chain of none", &chain_family, { 0, 3, 5, ACCEL_ACT_GELU, 1, 2 }, { 0 }, 2 },
    { "embedding", &embedding_family, { 1, 1, 1, 1, 1 }, { 0 }, false },
    { "embedding", &embedding_family, { 3, 7, 11, 67, 1 }, { 0 }, false },
    { "embedding", &embedding_family, { 2, 5, 3, 130, 0 }, { 0 }, false },
    { "embedding", &embedding_family, { 0, 5, 3, 7, 1 }, { 0 }, false },
    { "conv2d", &conv_family, { 1, 1, 1, 1, 1, 1, 1, 1 }, { 1 }, false },
    { "conv2d", &conv_family, { 2, 3, 7, 11, 5, 3, 3, 11 }, { 1 }, false },
    { "conv2d", &conv_family, { 3, 2, 13, 9, 4, 5, 2, 22 }, { 0 }, false },
    { "conv2d", &conv_family, { 2, 1, 5, 5, 2, 5, 5, 1 }, { 1 }, false },
    { "conv2d in chunks", &conv_family, { 1, 1, 53, 61, 3, 3, 3, 11 }, { 1 }, false },
    { "conv2d deep", &conv_family, { 2, 67, 5, 7, 3, 3, 3, 11 }, { 1 }, false },
    { "conv2d gelu", &conv_family, { 2, 3, 5, 6, 2, 3, 3, 112 }, { 1 }, true },
    { "conv2d relu", &conv_family, { 2, 3, 6, 5, 3, 3, 1, 401 }, { 1 }, true },
    { "conv2d of none", &conv_family, { 0, 3, 6, 5, 3, 3, 1, 401 }, { 1 }, true },
    { "maxpool2d", &pool_family, { 1, 1, 1, 1, 1, 1 }, { 0 }, false },
    { "maxpool2d", &pool_family, { 3, 2, 7, 11, 2, 2 }, { 0 }, false },
    { "maxpool2d that overlaps", &pool_family, { 2, 3, 9, 7, 3, 2 }, { 0 }, false },
    { "maxpool2d of none", &pool_family, { 0, 3, 9, 7, 3, 2 }, { 0 }, false },
};

/* Sizes of fewer numbers than a block of 128, of just one, and of several. */
static const struct op_case fp8_rows[] = {
    { "linear none", &linear_family, { 33, 48, 80, 0, 1 }, { 0 }, false },
    { "linear none", &linear_family, { 130, 144, 144, 0, 0 }, { 0 }, false },
    { "linear none", &linear_family, { 128, 128, 48, 0, 1 }, { 0 }, false },
    { "linear gelu", &linear_family, { 7, 144, 32, ACCEL_ACT_GELU, 1 }, { 0 }, false },
    { "linear silu", &linear_family, { 16, 16, 16, ACCEL_ACT_SILU, 0 }, { 0 }, false },
    { "linear relu", &linear_family, { 0, 16, 32, ACCEL_ACT_RELU, 1 }, { 0 }, false },
    { "linear of int8", &linear_family, { 33, 48, 80, 0, 1, 1 }, { 0 }, false },
    { "chain gelu", &chain_family, { 32, 48, 64, ACCEL_ACT_GELU, 1, 32 }, { 0 }, 2 },
    { "chain relu, twice", &chain_family, { 9, 32, 48, 4, 1, 16 }, { 1 }, 2 },
};

const struct op_rows optable_fp8 = { fp8_rows, (int)ACCEL_ARRAY_SIZE(fp8_rows) };
const struct op_rows optable_linear = { cases, ACCEL_ARRAY_SIZE(cases) };
