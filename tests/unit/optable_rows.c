/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the op table: ops that see a whole row or dimension at once.
 */
#include <math.h>

#include "tests/unit/optable.h"

/* ---- layernorm and rmsnorm: s[0] rows of s[1], s[2]: with bias; r[0]: eps ------------ */

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
};

const struct op_rows optable_rows = { cases, ACCEL_ARRAY_SIZE(cases) };
