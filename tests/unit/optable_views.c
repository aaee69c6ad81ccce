/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the op table: reshape, slice, transpose. The input is [s0, s1, s2, s3]; r[0]
 * and r[1] are the dimensions or the slice's dimension and first element.
 */
#include "tests/unit/optable.h"

static int inputs(const struct op_case *c, struct op_input in[OP_INPUTS])
{
    in[0] = op_computed_input(4, c->s[0], c->s[1], c->s[2], c->s[3]);
    return 1;
}

/* The result is used twice, and so is x: their gradients must not meet in one
 * memory. */
static accel_tensor_t *doubled(accel_tensor_t *y)
{
    return accel_add(y, y);
}

static accel_tensor_t *reshape(const struct op_case *c, accel_tensor_t *const *in)
{
    return doubled(accel_reshape(in[0], 2, (int64_t[]){ c->s[0] * c->s[1], -1 }));
}

static void reshape_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    (void)c;
    for (int64_t i = 0; i < in[0].elems; i++)
        y[i] = 2 * in[0].v[i];
}

/* x + reshape(x): the gradient comes back once as it is and once renamed. */
static accel_tensor_t *both_ways(const struct op_case *c, accel_tensor_t *const *in)
{
    accel_tensor_t *flat = accel_reshape(in[0], 1, (int64_t[]){ -1 });

    flat = accel_add(flat, flat);
    return accel_add(accel_reshape(flat, 4, c->s), in[0]);
}

static void both_ways_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    (void)c;
    for (int64_t i = 0; i < in[0].elems; i++)
        y[i] = 3 * in[0].v[i];
}

static accel_tensor_t *slice(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_slice(in[0], (int)c->r[0], (int64_t)c->r[1], c->s[4]);
}

/* Two slices that overlap. */
static accel_tensor_t *slices(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_add(accel_slice(in[0], (int)c->r[0], (int64_t)c->r[1], c->s[4]),
                     accel_slice(in[0], (int)c->r[0], 0, c->s[4]));
}

static void cut(const struct op_case *c, const struct op_input *in, double *y,
                int64_t first, double keep)
{
    int dim = (int)c->r[0];
    int64_t outer = 1, inner = 1, to = 0;

    for (int i = 0; i < 4; i++)
        *(i < dim ? &outer : i > dim ? &inner : &to) *= c->s[i];
    to = 0;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < c->s[4]; k++)
            for (int64_t i = 0; i < inner; i++, to++)
                y[to] = keep * y[to] + in[0].v[(o * c->s[dim] + first + k) * inner + i];
}

static void slice_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    cut(c, in, y, (int64_t)c->r[1], 0);
}

static void slices_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    cut(c, in, y, (int64_t)c->r[1], 0);
    cut(c, in, y, 0, 1);
}

static accel_tensor_t *transpose(const struct op_case *c, accel_tensor_t *const *in)
{
    return accel_transpose(in[0], (int)c->r[0], (int)c->r[1]);
}

/* x + its transpose twice over: the gradient is added to one that is there. */
static accel_tensor_t *to_and_fro(const struct op_case *c, accel_tensor_t *const *in)
{
    accel_tensor_t *t = accel_transpose(in[0], (int)c->r[0], (int)c->r[1]);

    return accel_add(in[0], accel_transpose(t, (int)c->r[1], (int)c->r[0]));
}

static void transpose_ref(const struct op_case *c, const struct op_input *in, double *y)
{
    int64_t i[4], size[4], step[4], to = 0, at;
    int a = (int)c->r[0], b = (int)c->r[1];

    for (int k = 3; k >= 0; k--) {
        size[k] = c->s[k];
        step[k] = k == 3 ? 1 : step[k + 1] * c->s[k + 1];
    }
    at = size[a], size[a] = size[b], size[b] = at;
    at = step[a], step[a] = step[b], step[b] = at;
    for (i[0] = 0; i[0] < size[0]; i[0]++)
        for (i[1] = 0; i[1] < size[1]; i[1]++)
            for (i[2] = 0; i[2] < size[2]; i[2]++)
                for (i[3] = 0; i[3] < size[3]; i[3]++)
                    y[to++] = in[0].v[i[0] * step[0] + i[1] * step[1] + i[2] * step[2] +
                                      i[3] * step[3]];
}

static const struct op_family reshape_family = { inputs, reshape, reshape_ref };
static const struct op_family both_family = { inputs, both_ways, both_ways_ref };
static const struct op_family slice_family = { inputs, slice, slice_ref };
static const struct op_family slices_family = { inputs, slices, slices_ref };
static const struct op_family transpose_family = { inputs, transpose, transpose_ref };
static const struct op_family fro_family = { inputs, to_and_fro, reshape_ref };

static const struct op_case cases[] = {
    { "reshape", &reshape_family, { 1, 1, 1, 1 }, { 0 }, true },
    { "reshape", &reshape_family, { 3, 5, 7, 2 }, { 0 }, true },
    { "reshape of what is used as well", &both_family, { 2, 3, 5, 7 }, { 0 }, true },
    { "slice of the first", &slice_family, { 5, 3, 1, 2, 3 }, { 0, 1 }, false },
    { "slice of a middle", &slice_family, { 2, 7, 3, 2, 4 }, { 1, 3 }, false },
    { "slice of the last", &slice_family, { 2, 3, 2, 11, 1 }, { 3, 10 }, false },
    { "slice of none", &slice_family, { 2, 3, 2, 5, 0 }, { 1, 3 }, false },
    { "slice of no rows", &slice_family, { 0, 3, 2, 5, 2 }, { 1, 1 }, false },
    { "slices that overlap", &slices_family, { 2, 7, 3, 2, 5 }, { 1, 2 }, true },
    { "slices that overlap", &slices_family, { 7, 1, 3, 5, 5 }, { 0, 2 }, true },
    { "transpose", &transpose_family, { 1, 1, 1, 1 }, { 0, 1 }, false },
    { "transpose", &transpose_family, { 2, 3, 5, 7 }, { 1, 2 }, false },
    { "transpose", &transpose_family, { 2, 3, 5, 7 }, { 3, 0 }, false },
    { "transpose", &transpose_family, { 2, 3, 37, 67 }, { 2, 3 }, false },
    { "transpose", &transpose_family, { 33, 3, 2, 35 }, { 0, 3 }, false },
    { "transpose", &transpose_family, { 2, 3, 5, 7 }, { 1, 1 }, false },
    { "transpose", &transpose_family, { 2, 1, 5, 1 }, { 1, 2 }, false },
    { "transpose", &transpose_family, { 0, 3, 5, 2 }, { 0, 2 }, false },
    { "transpose to and fro", &fro_family, { 2, 37, 1, 41 }, { 1, 3 }, true },
    { "transpose to and fro", &fro_family, { 3, 5, 7, 2 }, { 0, 1 }, true },
};

const struct op_rows optable_views = { cases, ACCEL_ARRAY_SIZE(cases) };
