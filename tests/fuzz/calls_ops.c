/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of accel_ops.h: tensors and parameters of all shapes, in place and out of it.
 */
#include <stdlib.h>

#include "tests/fuzz/calls_world.h"

/* What an op is given: any of the side's tensors, as a rule. */
static accel_tensor_t *any_tensor(struct world *w, bool *bad_out)
{
    return calls_once_in(w, 12) ? PICK(w, param, bad_out) : PICK(w, tensor, bad_out);
}

static accel_tensor_t *op_with_params(struct world *w, bool *bad_out)
{
    accel_tensor_t *x = any_tensor(w, bad_out), *p = PICK(w, param, bad_out);
    accel_tensor_t *q = calls_once_in(w, 2) ? NULL : w->now->param[0];
    int small = (int)calls_number(w);

    switch (calls_random(w, 6)) {
    case 0:
        return accel_embedding(x, p, q);
    case 1:
        return accel_layernorm(x, p, q, (float)calls_real(w));
    case 2:
        return accel_rmsnorm(x, p, (float)calls_real(w));
    case 3:
        return accel_linear(x, p, q, (accel_activation_t)small);
    case 4:
        return accel_conv2d(x, p, q, small, (int)calls_number(w), ACCEL_ACT_RELU);
    default:
        return accel_cross_entropy(x, p, q, w->now->tensor[0], NULL);
    }
}

static accel_tensor_t *op_of_one(struct world *w, bool *bad_out)
{
    accel_tensor_t *x = any_tensor(w, bad_out);
    int64_t dims[5], a = calls_number(w), b = calls_number(w);
    accel_rope_t rope = { .theta = (float)calls_real(w),
                          .kind = (accel_rope_kind_t)calls_random(w, 4) };
    bool unused = false;

    for (int i = 0; i < 5; i++)
        dims[i] = calls_number(w);
    switch (calls_random(w, 13)) {
    case 0:
        return accel_activate(x, (accel_activation_t)a);
    case 1:
        return accel_dropout(x, (float)calls_real(w));
    case 2:
        return accel_reshape(x, (int)a, calls_once_in(w, 20) ? NULL : dims);
    case 3:
        return accel_slice(x, (int)a, b, calls_number(w));
    case 4:
        return accel_transpose(x, (int)a, (int)b);
    case 5:
        return accel_cast(x, (accel_dtype_t)a);
    case 6:
        return accel_softmax(x);
    case 7:
        return accel_sum(x, (int)a);
    case 8:
        return accel_mean(x, (int)a);
    case 9:
        return accel_maxpool2d(x, (int)a, (int)b);
    case 10:
        return accel_scale(x, (float)calls_real(w));
    case 11:
        return calls_once_in(w, 2)   ? accel_sigmoid(x)
               : calls_once_in(w, 2) ? accel_exp(x)
                                     : accel_log(x);
    default:
        return accel_rope(x, (int)a, calls_once_in(w, 2) ? NULL : &rope,
                          calls_once_in(w, 3) ? PICK(w, kv, &unused) : NULL);
    }
}

static accel_tensor_t *op_of_several(struct world *w, bool *bad_out)
{
    const int32_t ignored = 1;
    accel_tensor_t *x = any_tensor(w, bad_out), *y = any_tensor(w, bad_out);
    const accel_cross_entropy_t o = { sizeof(o), .ignore_index = &ignored,
                                      .label_smoothing = (float)calls_real(w) };
    accel_attention_t a = { sizeof(a),
                            .heads = (int)calls_number(w),
                            .kv_heads = (int)calls_random(w, 3),
                            .causal = 1,
                            .dropout = (float)calls_random(w, 2) / 2,
                            .layer = (int)calls_number(w) };
    bool unused = false;

    switch (calls_random(w, 9)) {
    case 0:
        return accel_gated(x, y, (accel_activation_t)calls_number(w));
    case 1:
        return accel_add(x, y);
    case 2:
        return accel_mul(x, y);
    case 3:
        return accel_mse(x, y);
    case 4:
        return accel_cross_entropy(x, NULL, NULL, y, &o);
    case 5:
        a.cache = calls_once_in(w, 2) ? PICK(w, kv, &unused) : NULL;
        a.lengths = calls_once_in(w, 4) ? y : NULL;
        a.mask = calls_once_in(w, 4) ? y : NULL;
        return accel_attention(x, y, calls_once_in(w, 2) ? y : x, &a);
    case 6:
        return accel_binary_cross_entropy(x, y);
    case 7:
        return accel_soft_cross_entropy(x, y);
    default:
        return accel_attention(x, NULL, NULL, calls_once_in(w, 20) ? NULL : &a);
    }
}

/* ---- an op of the program -------------------------------------------------------- */

static accel_status_t own_shape(const void *attr, const accel_array_t *in, int n,
                                accel_array_t *out, accel_error_t *err)
{
    (void)n;
    if (in[0].dtype != ACCEL_F32)
        return accel_error_set(err, ACCEL_EINVAL, "a sentence of the program", NULL);
    *out = in[0];
    out->ndim = attr ? *(const int *)attr : in[0].ndim;
    return ACCEL_OK;
}

static accel_status_t own_forward(const void *attr, const accel_array_t *in, int n,
                                  const accel_array_t *out, accel_error_t *err)
{
    (void)attr, (void)n, (void)err;
    for (int64_t i = 0; i < out->elems && i < in[0].elems; i++)
        ((float *)out->data)[i] = 2 * ((const float *)in[0].data)[i];
    return ACCEL_OK;
}

static accel_status_t own_backward(const void *attr, const accel_array_t *in, int n,
                                   const accel_array_t *out, const accel_array_t *dout,
                                   const accel_array_t *din, accel_error_t *err)
{
    (void)attr, (void)in, (void)n, (void)out, (void)err;
    for (int64_t i = 0; din[0].data && i < din[0].elems && i < dout->elems; i++)
        ((float *)din[0].data)[i] += 2 * ((const float *)dout->data)[i];
    return ACCEL_OK;
}

static accel_tensor_t *op_own(struct world *w, bool *bad_out)
{
    static const accel_op_t twice = { sizeof(twice), "twice", own_shape, own_forward,
                                      own_backward };
    static const accel_op_t empty = { sizeof(empty), "empty", NULL, NULL, NULL };
    static const int odd[] = { 0, 5, -1 };
    accel_tensor_t *in[8];
    const int *attr = calls_once_in(w, 10) ? &odd[calls_random(w, 3)] : NULL;
    int n = 1 + (int)calls_random(w, 2);

    for (int i = 0; i < 8; i++)
        in[i] = i < n ? any_tensor(w, bad_out) : NULL;
    if (calls_once_in(w, 20)) {
        n = calls_once_in(w, 2) ? 0 : 8;
        *bad_out = true;
    }
    if (calls_once_in(w, 20)) {
        *bad_out = true;
        return accel_apply(calls_once_in(w, 2) ? NULL : &empty, in, n, attr);
    }
    return accel_apply(&twice, calls_once_in(w, 40) ? NULL : in, n, attr);
}

static void call_op(struct world *w)
{
    bool bad = false;
    accel_tensor_t *t;

    /* the first error stays until then */
    if (calls_once_in(w, 2))
        calls_begin(w);
    calls_say(w, "an op");
    switch (calls_random(w, 4)) {
    case 0:
        t = op_with_params(w, &bad);
        break;
    case 1:
        t = op_of_one(w, &bad);
        break;
    case 2:
        t = op_of_several(w, &bad);
        break;
    default:
        t = op_own(w, &bad);
    }
    calls_made(w, "an op", bad, t);
    KEEP(w, tensor, t);
}

/* ---- tensors --------------------------------------------------------------------- */

static void call_tensor(struct world *w)
{
    bool bad = false;
    accel_tensor_t *t = any_tensor(w, &bad);
    const int64_t *dims = NULL;
    int ndim = accel_tensor_shape(t, calls_once_in(w, 20) ? NULL : &dims);
    float values[4096] = { 0 };
    size_t n = 1;

    for (int i = 0; dims && i < ndim; i++)
        n *= (size_t)dims[i];
    if (!dims || n > 4096 || calls_once_in(w, 8))
        n = calls_random(w, 30);
    (void)accel_tensor_dtype(t);
    if (calls_once_in(w, 2))
        CALL(w, !t,
             accel_tensor_read(t, calls_once_in(w, 20) ? NULL : values, n,
                               calls_error(w)));
    else
        CALL(w, !t,
             accel_tensor_write(t, calls_once_in(w, 20) ? NULL : values, n * 4,
                                calls_error(w)));
}

static void call_kv(struct world *w)
{
    bool bad = false, none = false;
    size_t at = calls_random(w, CALLS_SLOTS);
    accel_t *run = calls_run(w, &bad);
    accel_kv_t *kv;

    if (calls_once_in(w, 3)) {
        int n[5];

        for (int i = 0; i < 5; i++) {
            n[i] = (int)calls_number(w);
            bad = bad || n[i] < 1;
        }
        calls_say(w, "accel_kv_new");
        kv = accel_kv_new(run, n[0], n[1], n[2], n[3], n[4], calls_error(w));
        calls_made(w, "accel_kv_new", bad, kv);
        accel_kv_free(w->now->kv[at]);
        w->now->kv[at] = kv;
        return;
    }
    kv = PICK(w, kv, &none);
    if (accel_kv_length(kv) > accel_kv_capacity(kv))
        calls_finding(w, "accel_kv_length", "it is above the capacity");
    if (calls_once_in(w, 2))
        CALL(w, !kv, accel_kv_advance(kv, (int)calls_number(w), calls_error(w)));
    else
        CALL(w, !kv, accel_kv_trim(kv, (int)calls_number(w), calls_error(w)));
}

const struct calls_action calls_of_ops[] = {
    { call_op, 10, false },
    { call_tensor, 4, false },
    { call_kv, 1, false },
    { NULL, 0, false },
};
