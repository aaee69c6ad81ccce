/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_ops.h: tensors, the ops of a forward, and your own ops. Each op records its
 * backward.
 */
#include "accel.h" /* which includes this header at its end */

#ifndef ACCEL_OPS_H
#define ACCEL_OPS_H

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- ops: coarse and fused; each records its own backward ---------------------------
 * Activations have the compute dtype of the run (float32, bfloat16 or float16);
 * arithmetic inside an op is float32. [..., C] means any leading shape, 1 to 4 sizes in
 * all; any size may be 0. table, positions, weight, bias and gain are parameters. All
 * other tensors are activations: results of an op, accel_next or accel_input, or
 * buffers. In ops without parameters x may have any of the three dtypes, whatever the
 * compute dtype (except attention and rope). The result is a new tensor of the dtype of
 * x, unless stated otherwise, and lives as accel_call says. NULL on failure:
 * ACCEL_EINVAL (shapes, dtypes, options, a tensor whose module has returned or whose
 * step is over). Ops with parameters are collective: they gather them. */

typedef enum accel_activation {
    ACCEL_ACT_NONE = 0,
    ACCEL_ACT_GELU = 1,     /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    ACCEL_ACT_GELU_ERF = 2, /* x Phi(x) */
    ACCEL_ACT_SILU = 3,     /* x sigmoid(x) */
    ACCEL_ACT_RELU = 4,
    ACCEL_ACT_RELU2 = 5, /* relu(x)^2 */
    ACCEL_ACT_TANH = 6,
    ACCEL_ACT_SIGMOID = 7, /* 1 / (1 + exp(-x)) */
    ACCEL_ACT_EXP = 8,     /* exp(x) */
    ACCEL_ACT_LOG = 9,     /* log(x), to the base e: -infinity at 0, NaN below */
} accel_activation_t;

/* ids int32 [B, T], table [V, C], positions [P, C] with P >= T or NULL -> [B, T, C] in
 * the compute dtype: table[ids[b, t]] + positions[t]. An id outside [0, V) is
 * ACCEL_EINVAL. */
accel_tensor_t *accel_embedding(accel_tensor_t *ids, accel_tensor_t *table,
                                accel_tensor_t *positions);
/* x [..., C], gain [C], bias [C] or NULL, eps >= 0 -> [..., C]:
 * (x - mean) / sqrt(var + eps) * gain + bias; var divides by C, not C - 1 (Ba et al.
 * 2016). */
accel_tensor_t *accel_layernorm(accel_tensor_t *x, accel_tensor_t *gain,
                                accel_tensor_t *bias, float eps);
/* x [..., C], gain [C] -> [..., C]: x / sqrt(mean of x^2 + eps) * gain. */
accel_tensor_t *accel_rmsnorm(accel_tensor_t *x, accel_tensor_t *gain, float eps);
/* x [..., I], weight [O, I], bias [O] or NULL -> act(x weight^T + bias) [..., O] in the
 * compute dtype. x may also be int8, as it comes in a batch: the matmul uses its values
 * exactly, and on CPUs stores no wider copy. */
accel_tensor_t *accel_linear(accel_tensor_t *x, accel_tensor_t *weight,
                             accel_tensor_t *bias, accel_activation_t act);
/* Keys and values of past positions, for generation, so that they are computed only
 * once. Needs accel_inference_mode. A cache serves one sequence per sample of its
 * batch. It is in the compute dtype, on the run's device. */
typedef struct accel_kv accel_kv_t;
/* Creates a cache for `layers` attention layers and `capacity` positions. The caller
 * frees it before accel_close. NULL and `err` on failure: ACCEL_EINVAL (a size below
 * 1). */
accel_kv_t *accel_kv_new(accel_t *run, int layers, int batch, int capacity,
                         int kv_heads, int head_width, accel_error_t *err);
/* The positions it holds, and the most it can hold; 0 for NULL. */
int accel_kv_length(const accel_kv_t *kv);
int accel_kv_capacity(const accel_kv_t *kv);
/* Counts `positions` new positions; call it when every layer has processed them. */
accel_status_t accel_kv_advance(accel_kv_t *kv, int positions, accel_error_t *err);
/* Forgets all but the first `length` positions. Both: ACCEL_EINVAL (too many). */
accel_status_t accel_kv_trim(accel_kv_t *kv, int length, accel_error_t *err);
void accel_kv_free(accel_kv_t *kv); /* NULL is fine */

typedef struct accel_attention {
    size_t bytes;
    int heads;
    int kv_heads;            /* heads % kv_heads == 0; 0: heads */
    int causal;              /* 1: query t attends to keys 0 .. S - T + t */
    accel_tensor_t *lengths; /* int32 [B]: keys from there on are padding; NULL: none */
    accel_tensor_t *mask;    /* int32 [B, S]: keys at 0 are padding; NULL: none */
    float scale;             /* of the scores; 0: 1 / sqrt(D) */
    float dropout;           /* of the probabilities, in training; 0: none */
    accel_kv_t *cache;       /* NULL: none */
    int layer;               /* in the cache, from 0 */
} accel_attention_t;

/* softmax(scale q k^T) v per head: q [B, T, heads * D], k and v [B, S, kv_heads * D] ->
 * [B, T, heads * D]. Or k and v are NULL and q holds the three side by side, [B, T,
 * (heads + 2 kv_heads) * D]. Query head h reads key head h / (heads / kv_heads). A
 * query that attends to no key gives zeros. With a cache, k and v belong to the T new
 * positions, which are appended; S and `mask` then include the cached positions.
 * Nothing of size T x S is stored. Vaswani et al. 2017; shared heads: Ainslie et al.
 * 2023. */
accel_tensor_t *accel_attention(accel_tensor_t *q, accel_tensor_t *k, accel_tensor_t *v,
                                const accel_attention_t *o);
/* act(x), same shape. ACCEL_ACT_NONE: x itself. */
accel_tensor_t *accel_activate(accel_tensor_t *x, accel_activation_t act);
/* accel_activate with the function of that name. */
accel_tensor_t *accel_sigmoid(accel_tensor_t *x);
accel_tensor_t *accel_exp(accel_tensor_t *x);
accel_tensor_t *accel_log(accel_tensor_t *x);
/* by * x, same shape. No gradient with respect to `by`. */
accel_tensor_t *accel_scale(accel_tensor_t *x, float by);
/* act(gate) * up, same shape and dtype. With ACCEL_ACT_SILU: SwiGLU. */
accel_tensor_t *accel_gated(accel_tensor_t *gate, accel_tensor_t *up,
                            accel_activation_t act);
/* x + y and x * y, same shape and dtype. */
accel_tensor_t *accel_add(accel_tensor_t *x, accel_tensor_t *y);
accel_tensor_t *accel_mul(accel_tensor_t *x, accel_tensor_t *y);
/* Dropout. In training each element is 0 with probability p in [0, 1), else x / (1 -
 * p). In evaluation, and with p = 0, the result is x itself. Samples must be in the
 * first dimension. The mask depends on the run's seed, the sample's number and the
 * number of random ops before it in the forward, so it is the same for any number of
 * ranks and threads. */
accel_tensor_t *accel_dropout(accel_tensor_t *x, float p);
/* x with other sizes, the same elements in the same order; one of dims[ndim] may be -1
 * and follows from the others. Any dtype. Shares the data of x: nothing is copied. */
accel_tensor_t *accel_reshape(accel_tensor_t *x, int ndim, const int64_t *dims);
/* A slice: elements begin .. begin + count - 1 of dimension `dim` (the first is 0). Any
 * dtype. Shares the data of x when the sizes before `dim` are 1, else copies. */
accel_tensor_t *accel_slice(accel_tensor_t *x, int dim, int64_t begin, int64_t count);
/* x with two dimensions swapped. Any dtype. Copies once, because tensors are
 * contiguous; not at all when the order of the elements does not change. */
accel_tensor_t *accel_transpose(accel_tensor_t *x, int dim0, int dim1);
/* x as float32, bfloat16 or float16; x may have any dtype. A gradient of x has the
 * dtype of x. Returns x itself when it already has `dtype`. */
accel_tensor_t *accel_cast(accel_tensor_t *x, accel_dtype_t dtype);
/* exp(x) / sum of exp(x) over the last dimension, same shape. */
accel_tensor_t *accel_softmax(accel_tensor_t *x);
/* Sum and mean over dimension `dim` (the first is 0), which is removed: [2, 3, 4] over
 * 1 -> [2, 4]; a single dimension becomes [1]. dim -1: over all elements -> one
 * float32. The mean of no elements is 0. */
accel_tensor_t *accel_sum(accel_tensor_t *x, int dim);
accel_tensor_t *accel_mean(accel_tensor_t *x, int dim);
/* Mean squared error: the mean of (x - y)^2 as one float32, same shape; 0 for no
 * elements. */
accel_tensor_t *accel_mse(accel_tensor_t *x, accel_tensor_t *y);
/* Binary cross-entropy of logits x and targets y, probabilities in [0, 1]. The mean of
 * -y log(sigmoid(x)) - (1 - y) log(1 - sigmoid(x)) over all elements as one float32; x
 * and y have the same shape. Finite for any finite x; 0 for no elements. A critic's
 * loss. */
accel_tensor_t *accel_binary_cross_entropy(accel_tensor_t *x, accel_tensor_t *y);
/* Cross-entropy with soft targets: logits x [..., V] and targets y [..., V], the
 * probabilities of the V classes, same shape and dtype -> the mean over rows of the sum
 * over V of -y log softmax(x) as one float32; 0 for no rows. Distillation at
 * temperature T: T^2 times that of x = scale(student, 1 / T) and y =
 * softmax(scale(teacher, 1 / T)). Where targets are class numbers:
 * accel_cross_entropy. */
accel_tensor_t *accel_soft_cross_entropy(accel_tensor_t *x, accel_tensor_t *y);
/* x [B, C, H, W], weight [O, C, kh, kw], bias [O] or NULL -> act(conv + bias)
 * [B, O, (H + 2 pad - kh) / stride + 1, (W + 2 pad - kw) / stride + 1], with `pad`
 * zeros on every side of x. The weight is not mirrored, as usual in deep learning. */
accel_tensor_t *accel_conv2d(accel_tensor_t *x, accel_tensor_t *weight,
                             accel_tensor_t *bias, int stride, int pad,
                             accel_activation_t act);
/* x [B, C, H, W] -> the largest of each size x size window,
 * [B, C, (H - size) / stride + 1, (W - size) / stride + 1]. */
accel_tensor_t *accel_maxpool2d(accel_tensor_t *x, int size, int stride);
typedef struct accel_cross_entropy {
    size_t bytes;
    const int32_t *ignore_index; /* one more target to ignore; NULL: none */
    float label_smoothing;       /* s, 0 .. 1: part of the target spread over all V */
} accel_cross_entropy_t;

/* Fused head and loss: x [..., C], weight [V, C], bias [V] or NULL, targets int32 [...]
 * -> mean of -log softmax(x weight^T + bias)[target] as one float32. Or weight and bias
 * are NULL and x holds the logits themselves, [..., V]. Targets < 0 are ignored; the
 * mean is 0 when none are left. With label smoothing s the loss of a row is (1 - s)
 * times that plus s times the mean of -log softmax over all V. The logits of the whole
 * batch are never stored. `o` (NULL: defaults) is read during the call. */
accel_tensor_t *accel_cross_entropy(accel_tensor_t *x, accel_tensor_t *weight,
                                    accel_tensor_t *bias, accel_tensor_t *targets,
                                    const accel_cross_entropy_t *o);
typedef enum accel_rope_kind {
    ACCEL_ROPE_PLAIN = 0,
    ACCEL_ROPE_LINEAR = 1, /* positions divided by `factor` */
    ACCEL_ROPE_LLAMA3 = 2, /* low frequencies divided by `factor`, a band in between */
} accel_rope_kind_t;

typedef struct accel_rope {
    float theta; /* base of the frequencies; 0: 10000 */
    accel_rope_kind_t kind;
    float factor;                            /* LINEAR, LLAMA3 */
    float low_freq_factor, high_freq_factor; /* LLAMA3 */
    int original_context;                    /* LLAMA3 */
} accel_rope_t;

/* Rotary positions: x [B, T, heads * D], D even and at most 512 -> same shape. Rotates
 * each pair (i, i + D / 2) by theta^(-2i / D) times its position, which is t plus the
 * length of the cache (NULL: 0). Su et al. 2021, with the pairs and the frequency
 * scaling of Hugging Face's Llama. `rope` NULL: ACCEL_ROPE_PLAIN with theta 10000. */
accel_tensor_t *accel_rope(accel_tensor_t *x, int heads, const accel_rope_t *rope,
                           const accel_kv_t *cache);
/* A tensor as an own op sees it: contiguous, in the memory of the run's device (on CPUs
 * host memory), valid during the call only. */
typedef struct accel_array {
    accel_dtype_t dtype;
    int ndim;
    int64_t dims[4];
    int64_t elems;
    void *data;
} accel_array_t;

/* An op of the program's own, as a static table. Functions return ACCEL_OK, or a status
 * and a text in `err` (accel_error_set), which becomes the step's error at the op's
 * module path. `in` has the n inputs; parameters come in the compute dtype. Data is in
 * the memory of the run's device: on a GPU the functions launch kernels on the stream
 * of accel_stream. */
typedef struct accel_op {
    size_t bytes;
    const char *name;
    /* Derives dtype and dims of *out from those of in[n] (data is NULL); the library
     * computes elems. */
    accel_status_t (*shape)(const void *attr, const accel_array_t *in, int n,
                            accel_array_t *out, accel_error_t *err);
    /* Writes all of out->data. */
    accel_status_t (*forward)(const void *attr, const accel_array_t *in, int n,
                              const accel_array_t *out, accel_error_t *err);
    /* Adds the derivative of the loss with respect to in[i] to din[i].data; NULL data:
     * not wanted. din[i] has the shape of in[i], and is float32 for parameters, else
     * has the dtype of in[i]. `dout` has the shape and dtype of `out`. NULL function:
     * the op has no derivative, and its output needs no gradient. */
    accel_status_t (*backward)(const void *attr, const accel_array_t *in, int n,
                               const accel_array_t *out, const accel_array_t *dout,
                               const accel_array_t *din, accel_error_t *err);
} accel_op_t;

/* Runs an own op on in[n], 1 <= n <= 7: any tensors, and parameters of at most two
 * units. The result has the compute dtype unless op->shape sets another. `op` and
 * `attr` must outlive the step. */
accel_tensor_t *accel_apply(const accel_op_t *op, accel_tensor_t *const *in, int n,
                            const void *attr);
/* Number of dimensions, and the sizes in *dims_out (valid as long as the tensor); 0 for
 * NULL. */
int accel_tensor_shape(const accel_tensor_t *t, const int64_t **dims_out);
accel_dtype_t accel_tensor_dtype(const accel_tensor_t *t);
/* Copies the values, converted to float32, into host[elems]; `elems` must be the number
 * of elements. Errors: ACCEL_EINVAL (a parameter: use accel_param_read; a tensor that
 * was freed; another size), and errors of earlier work on the device. */
accel_status_t accel_tensor_read(const accel_tensor_t *t, float *host, size_t elems,
                                 accel_error_t *err);
/* Copies the whole tensor, `bytes` bytes in its own dtype, from host memory into a
 * buffer or an activation of this step. Errors: ACCEL_EINVAL (a parameter, a tensor
 * without memory, another size). */
accel_status_t accel_tensor_write(accel_tensor_t *t, const void *host, size_t bytes,
                                  accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
