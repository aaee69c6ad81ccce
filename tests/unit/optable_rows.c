/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the op table: ops that see a whole row or dimension at once.
 */
#include <math.h>

#include "tests/unit/optable.h"

/* ---- layernorm and rmsnorm: s[0] rows of s[1], s[2]: with bias; r[0]: eps -------- */

static int norm_inputs(const struct op_case *c, struct op_input in[OP_INPUTS])
{
    in[0] = op_computed_input(2, c->s[0], c->s[1], 0, 0);
    in[1] = in[2] = op_parameter_input(1, c->s[1], 0, 0, 0);
    return 2 + (int)c->s[2];
}

static accel_tensor_t *layernorm(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_layernorm(in[0], in[1], c->s[2] ? in[2] : NULL, (float)c->r[0]);
}

static accel_tensor_t *rmsnorm(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_rmsnorm(in[0], in[1], (float)c->r[0]);
}

static void norm_rows(const struct op_case *c, const struct op_input *in, double *y,
                      int rms)
{
    int64_t n = c->s[1];

    for (int64_t r = 0; r < c->s[0]; r++) {
        const double *x = in[0].v + r * n;
        double mean = 0, var = 0;

        for (int64_t i = 0; i < n && !rms; i++)
            mean += x[i] / (double)n;
        for (int64_t i = 0; i < n; i++)
            var += (x[i] - mean) * (x[i] - mean) / (double)n;
        for (int64_t i = 0; i < n; i++)
            y[r * n + i] = (x[i] - mean) / sqrt(var + (float)c->r[0]) * in[1].v[i] +
                           (c->s[2] ? in[2].v[i] : 0);
    }
}

static void layernorm_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    norm_rows(c, in, y, 0);
}

static void rmsnorm_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    norm_rows(c, in, y, 1);
}

static const struct op_family layernorm_family = { norm_inputs, layernorm,
                                                   layernorm_ref };
static const struct op_family rmsnorm_family = { norm_inputs, rmsnorm, rmsnorm_ref };

/* ---- softmax: s[0] rows of s[1] -------------------------------------------------- */

static int softmax_inputs(const struct op_case *c, struct op_input in[OP_INPUTS])
{
    in[0] = op_computed_input(2, c->s[0], c->s[1], 0, 0);
    in[0].reach = c->r[0];
    return 1;
}

static accel_tensor_t *softmax(const struct op_case *c, accel_tensor_t *const *in)
{
    (void)c;
    return accel_softmax(in[0]);
}

static void softmax_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    int64_t n = c->s[1];

    for (int64_t r = 0; r < c->s[0] && n; r++) {
        const double *x = in[0].v + r * n;
        double max = x[0], sum = 0;

        for (int64_t i = 0; i < n; i++)
            max = fmax(max, x[i]);
        for (int64_t i = 0; i < n; i++)
            sum += y[r * n + i] = exp(x[i] - max);
        for (int64_t i = 0; i < n; i++)
            y[r * n + i] /= sum;
    }
}

/* ---- sum, mean: [s0, s1, s2] over dimension s[3] --------------------------------- */

static int reduce_inputs(const struct op_case *c, struct op_input in[OP_INPUTS])
{
    in[0] = op_computed_input(3, c->s[0], c->s[1], c->s[2], 0);
    return 1;
}

static accel_tensor_t *sum(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_sum(in[0], (int)c->s[3]);
}

static accel_tensor_t *mean(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_mean(in[0], (int)c->s[3]);
}

static void sum_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    int64_t n = 0;

    y[0] = 0;
    for (int64_t a = 0; a < c->s[0]; a++)
        for (int64_t b = 0; b < c->s[1]; b++)
            for (int64_t k = 0; k < c->s[2]; k++, n++) {
                int64_t to = c->s[3] == 0   ? b * c->s[2] + k
                             : c->s[3] == 1 ? a * c->s[2] + k
                             : c->s[3] == 2 ? a * c->s[1] + b
                                            : 0;
                int64_t first = c->s[3] == 0   ? a
                                : c->s[3] == 1 ? b
                                : c->s[3] == 2 ? k
                                               : n;

                y[to] = (first ? y[to] : 0) + in[0].v[n];
            }
}

static void mean_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    int64_t n = c->s[3] < 0 ? in[0].elems : c->s[c->s[3]];

    sum_ref(c, in, y);
    for (int64_t i = 0; i < (c->s[3] < 0 ? 1 : n ? in[0].elems / n : 0); i++)
        y[i] = n ? y[i] / (double)n : 0;
}

/* ---- mse: two of [s0, s1]; s[2]: y is cast to float32 ---------------------------- */

static int mse_inputs(const struct op_case *c, struct op_input in[OP_INPUTS])
{
    in[0] = in[1] = op_computed_input(2, c->s[0], c->s[1], 0, 0);
    return 2;
}

static accel_tensor_t *mse(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_mse(in[0], c->s[2] ? accel_cast(in[1], ACCEL_F32) : in[1]);
}

static void mse_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    (void)c;
    y[0] = 0;
    for (int64_t i = 0; i < in[0].elems; i++)
        y[0] +=
            (in[0].v[i] - in[1].v[i]) * (in[0].v[i] - in[1].v[i]) / (double)in[0].elems;
}

static accel_tensor_t *logit(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_binary_cross_entropy(in[0],
                                      c->s[2] ? accel_cast(in[1], ACCEL_F32) : in[1]);
}

static accel_tensor_t *soft(const struct op_case *c, accel_tensor_t *const *in)
{
    (void)c;
    return accel_soft_cross_entropy(in[0], in[1]);
}

static int logit_inputs(const struct op_case *c, struct op_input in[OP_INPUTS])
{
    mse_inputs(c, in);
    in[0].reach = c->r[0];
    return 2;
}

/* As it is in books: log(s) is exact enough in double where s is not too near to 0. */
static void logit_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    (void)c;
    y[0] = 0;
    for (int64_t i = 0; i < in[0].elems; i++) {
        double s = 1 / (1 + exp(-in[0].v[i])), not = 1 / (1 + exp(in[0].v[i]));

        y[0] -=
            (in[1].v[i] * log(s) + (1 - in[1].v[i]) * log(not )) / (double)in[0].elems;
    }
}

static void soft_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    y[0] = 0;
    for (int64_t r = 0; r < c->s[0] && c->s[1]; r++) {
        const double *x = in[0].v + r * c->s[1], *p = in[1].v + r * c->s[1];
        double sum = 0;

        for (int64_t i = 0; i < c->s[1]; i++)
            sum += exp(x[i]);
        for (int64_t i = 0; i < c->s[1]; i++)
            y[0] -= p[i] * log(exp(x[i]) / sum) / (double)c->s[0];
    }
}

/* ---- cast: [s0, s1] to float32 (0) or bfloat16 (1); s[2]: of int32 --------------- */

static int cast_inputs(const struct op_case *c, struct op_input in[OP_INPUTS])
{
    in[0] = op_computed_input(2, c->s[0], c->s[1], 0, 0);
    return 1;
}

static int cast_ids(const struct op_case *c, struct op_input in[OP_INPUTS])
{
    in[0] = (struct op_input){ .kind = OP_IDS,
                               .ndim = 2,
                               .dim = { c->s[0], c->s[1] },
                               .low = -1000,
                               .high = 100000 };
    return 1;
}

static accel_tensor_t *cast(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_cast(in[0], (accel_dtype_t)c->s[2]);
}

static void cast_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    (void)c;
    for (int64_t i = 0; i < in[0].elems; i++)
        y[i] = in[0].v[i];
}

static const struct op_family softmax_family = { softmax_inputs, softmax, softmax_ref };
static const struct op_family sum_family = { reduce_inputs, sum, sum_ref };
static const struct op_family mean_family = { reduce_inputs, mean, mean_ref };
static const struct op_family mse_family = { mse_inputs, mse, mse_ref };
static const struct op_family logit_family = { logit_inputs, logit, logit_ref };
static const struct op_family soft_family = { logit_inputs, soft, soft_ref };
static const struct op_family cast_family = { cast_inputs, cast, cast_ref };
static const struct op_family ids_family = { cast_ids, cast, cast_ref };

static const struct op_case cases[] = {
    { "layernorm", &layernorm_family, { 1, 1, 1 }, { 1e-5 }, false },
    { "layernorm", &layernorm_family, { 131, 17, 1 }, { 1e-5 }, false },
    { "layernorm", &layernorm_family, { 3, 263, 1 }, { 1e-12 }, false },
    { "layernorm", &layernorm_family, { 0, 5, 1 }, { 1e-5 }, false },
    { "layernorm without bias", &layernorm_family, { 1, 1, 0 }, { 1e-5 }, false },
    { "layernorm without bias", &layernorm_family, { 67, 131, 0 }, { 1e-5 }, false },
    { "rmsnorm", &rmsnorm_family, { 1, 1, 0 }, { 1e-6 }, false },
    { "rmsnorm", &rmsnorm_family, { 131, 17, 0 }, { 1e-6 }, false },
    { "rmsnorm", &rmsnorm_family, { 5, 263, 0 }, { 1e-5 }, false },
    { "rmsnorm", &rmsnorm_family, { 0, 7, 0 }, { 1e-6 }, false },
    { "softmax", &softmax_family, { 1, 1 }, { 1 }, true },
    { "softmax", &softmax_family, { 67, 17 }, { 3 }, true },
    { "softmax", &softmax_family, { 3, 1031 }, { 20 }, true },
    { "softmax", &softmax_family, { 5, 0 }, { 1 }, true },
    { "softmax", &softmax_family, { 0, 5 }, { 1 }, true },
    { "sum", &sum_family, { 1, 1, 1, 0 }, { 0 }, false },
    { "sum", &sum_family, { 7, 3, 67, 0 }, { 0 }, false },
    { "sum", &sum_family, { 3, 131, 70, 1 }, { 0 }, false },
    { "sum", &sum_family, { 5, 2, 67, 2 }, { 0 }, false },
    { "sum", &sum_family, { 1, 1, 40009, 2 }, { 0 }, false },
    { "sum of all", &sum_family, { 3, 17, 701, -1 }, { 0 }, false },
    { "sum of none", &sum_family, { 3, 0, 7, -1 }, { 0 }, false },
    { "mean", &mean_family, { 3, 131, 7, 1 }, { 0 }, false },
    { "mean", &mean_family, { 3, 2, 263, 2 }, { 0 }, false },
    { "mean of all", &mean_family, { 1, 1, 1, -1 }, { 0 }, false },
    { "mean of all", &mean_family, { 5, 7, 11, -1 }, { 0 }, false },
    { "mean of none", &mean_family, { 0, 7, 5, -1 }, { 0 }, false },
    { "mse", &mse_family, { 1, 1, 0 }, { 0 }, false },
    { "mse", &mse_family, { 131, 257, 0 }, { 0 }, false },
    { "mse", &mse_family, { 7, 13, 1 }, { 0 }, false },
    { "mse of none", &mse_family, { 0, 13, 0 }, { 0 }, false },
    { "binary cross-entropy", &logit_family, { 1, 1, 0 }, { 1 }, false },
    { "binary cross-entropy", &logit_family, { 67, 131, 0 }, { 30 }, false },
    { "binary cross-entropy", &logit_family, { 7, 13, 1 }, { 5 }, false },
    { "binary cross-entropy of none", &logit_family, { 0, 13, 0 }, { 1 }, false },
    { "soft cross-entropy", &soft_family, { 1, 1 }, { 1 }, false },
    { "soft cross-entropy", &soft_family, { 67, 17 }, { 3 }, false },
    { "soft cross-entropy", &soft_family, { 3, 1031 }, { 20 }, false },
    { "soft cross-entropy of none", &soft_family, { 0, 5 }, { 1 }, false },
    { "soft cross-entropy of none", &soft_family, { 5, 0 }, { 1 }, false },
    { "cast to float32", &cast_family, { 7, 331, ACCEL_F32 }, { 0 }, false },
    { "cast to float32", &cast_family, { 0, 3, ACCEL_F32 }, { 0 }, false },
    { "cast of int32", &ids_family, { 3, 701, ACCEL_F32 }, { 0 }, false },
};

const struct op_rows optable_rows = { cases, ACCEL_ARRAY_SIZE(cases) };
