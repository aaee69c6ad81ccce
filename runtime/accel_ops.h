/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_ops.h: tensors, the ops of a forward, and ops of your own. Each op records its
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
 * all; any size may be 0. table, positions, weight, bias and gain are parameters; all
 * other tensors are activations: what an op, accel_next or accel_input returned, or a
 * buffer. Where there are no parameters x may have any of the three whatever the
 * compute dtype (attention and rope: no). The result is a new tensor of the dtype of x,
 * if nothing else is said, and lives as accel_call says. NULL on failure: ACCEL_EINVAL
 * (shapes, dtypes, options, a tensor whose module returned or whose step is over). Ops
 * with parameters are collective: they gather them. */

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
 * the compute dtype: table[ids[b, t]] + positions[t]. An id outside of [0, V) is
 * ACCEL_EINVAL. */
accel_tensor_t *accel_embedding(accel_tensor_t *ids, accel_tensor_t *table,
                                accel_tensor_t *positions);
/* x [..., C], gain [C], bias [C] or NULL, eps >= 0 -> [..., C]; (x - mean) / sqrt(var +
 * eps) * gain + bias, var over C, not C - 1 (Ba et al. 2016). */
accel_tensor_t *accel_layernorm(accel_tensor_t *x, accel_tensor_t *gain,
                                accel_tensor_t *bias, float eps);
/* x [..., C], gain [C] -> [..., C]; x / sqrt(mean of x^2 + eps) * gain. */
accel_tensor_t *accel_rmsnorm(accel_tensor_t *x, accel_tensor_t *gain, float eps);
/* x [..., I], weight [O, I], bias [O] or NULL -> act(x weight^T + bias) [..., O] in the
 * compute dtype. x may also be int8, as a batch has it: the products take its numbers
 * exactly, and on CPUs nothing wider is stored. */
accel_tensor_t *accel_linear(accel_tensor_t *x, accel_tensor_t *weight,
                             accel_tensor_t *bias, accel_activation_t act);
/* Keys and values of past positions, for generation: what was computed for a position
 * is not computed again. Needs accel_inference_mode; one cache serves one sequence per
 * sample of its batch. In the compute dtype, on the run's device. */
typedef struct accel_kv accel_kv_t;
/* A cache for `layers` attention layers and `capacity` positions. The caller frees it,
 * before accel_close. NULL and `err` on failure: ACCEL_EINVAL (a size below 1). */
accel_kv_t *accel_kv_new(accel_t *run, int layers, int batch, int capacity,
                         int kv_heads, int head_width, accel_error_t *err);
/* Positions that it holds, and the most it can hold; 0 for NULL. */
int accel_kv_length(const accel_kv_t *kv);
int accel_kv_capacity(const accel_kv_t *kv);
/* Call this when every layer has processed the new positions: they count from now
 * on. */
accel_status_t accel_kv_advance(accel_kv_t *kv, int positions, accel_error_t *err);
/* Forgets all but the first `length` positions. Both: ACCEL_EINVAL (too many). */
accel_status_t accel_kv_trim(accel_kv_t *kv, int length, accel_error_t *err);
void accel_kv_free(accel_kv_t *kv); /* NULL is fine */

typedef struct accel_attention {
    int heads;
    int kv_heads;            /* heads % kv_heads == 0; 0: heads */
    int causal;              /* 1: query t sees keys 0 .. S - T + t */
    accel_tensor_t *lengths; /* int32 [B]: keys from there on are padding; NULL: none */
    accel_tensor_t *mask;    /* int32 [B, S]: keys at 0 are padding; NULL: none */
    float scale;             /* of the scores; 0: 1 / sqrt(D) */
    float dropout;           /* of the probabilities, in training; 0: none */
    accel_kv_t *cache;       /* NULL: none */
    int layer;               /* in the cache, from 0 */
} accel_attention_t;

/* softmax(scale q k^T) v per head: q [B, T, heads * D], k and v [B, S, kv_heads * D] ->
 * [B, T, heads * D]; or k and v NULL and q the three side by side, [B, T, (heads + 2
 * kv_heads) * D]. Query head h reads key head h / (heads / kv_heads). A query that sees
 * no key gives zeros. With a cache: k and v are of the T new positions, which are
 * appended, and S counts those in the cache too (so does mask). Nothing of size T x S
 * is stored. Vaswani et al. 2017, shared heads Ainslie et al. 2023. */
accel_tensor_t *accel_attention(accel_tensor_t *q, accel_tensor_t *k, accel_tensor_t *v,
                                const accel_attention_t *o);
/* act(x), the shape of x. ACCEL_ACT_NONE: x itself. */
accel_tensor_t *accel_activate(accel_tensor_t *x, accel_activation_t act);
/* accel_activate with the function of that name. */
accel_tensor_t *accel_sigmoid(accel_tensor_t *x);
accel_tensor_t *accel_exp(accel_tensor_t *x);
accel_tensor_t *accel_log(accel_tensor_t *x);
/* by * x, the shape of x. No gradient by `by`. */
accel_tensor_t *accel_scale(accel_tensor_t *x, float by);
/* act(gate) * up, same shape and dtype. With ACCEL_ACT_SILU: SwiGLU. */
accel_tensor_t *accel_gated(accel_tensor_t *gate, accel_tensor_t *up,
                            accel_activation_t act);
/* x + y and x * y, same shape and dtype. */
accel_tensor_t *accel_add(accel_tensor_t *x, accel_tensor_t *y);
accel_tensor_t *accel_mul(accel_tensor_t *x, accel_tensor_t *y);
/* In training each element is 0 with probability p in [0, 1), else x / (1 - p); in
 * evaluation, and with p = 0, it is x itself. The samples must be in the first
 * dimension:
 * the mask follows from the run's seed, the sample's number and how many random ops the
 * forward had before: the same for any number of ranks and threads. */
accel_tensor_t *accel_dropout(accel_tensor_t *x, float p);
/* x with other sizes, as many elements, in the same order; one of dims[ndim] may be -1
 * and follows from the others. Any dtype. Shares the data of x: nothing is copied. */
accel_tensor_t *accel_reshape(accel_tensor_t *x, int ndim, const int64_t *dims);
/* Elements begin .. begin + count - 1 of dimension `dim` (the first is 0). Any dtype.
 * Shares the data of x when the sizes before `dim` are 1, else copies. */
accel_tensor_t *accel_slice(accel_tensor_t *x, int dim, int64_t begin, int64_t count);
/* x with two dimensions swapped. Any dtype. One copy, as tensors are contiguous; none
 * when the order of the elements does not change. */
accel_tensor_t *accel_transpose(accel_tensor_t *x, int dim0, int dim1);
/* x as float32, bfloat16 or float16; x of any dtype (its gradient, if it has one, in
 * its own). x itself when it has that dtype. */
accel_tensor_t *accel_cast(accel_tensor_t *x, accel_dtype_t dtype);
/* exp(x) / sum of exp(x) over the last dimension, the shape of x. */
accel_tensor_t *accel_softmax(accel_tensor_t *x);
/* Sum and mean over dimension `dim` (the first is 0), which disappears: [2, 3, 4] over
 * 1 -> [2, 4]; a single dimension becomes [1]. dim -1: over all elements -> one
 * float32. The mean of nothing is 0. */
accel_tensor_t *accel_sum(accel_tensor_t *x, int dim);
accel_tensor_t *accel_mean(accel_tensor_t *x, int dim);
/* Mean of (x - y)^2 as one float32, same shape; 0 for no elements. */
accel_tensor_t *accel_mse(accel_tensor_t *x, accel_tensor_t *y);
/* Binary cross-entropy of logits x and targets y, probabilities in [0, 1]: the mean of
 * -y log(sigmoid(x)) - (1 - y) log(1 - sigmoid(x)) over all elements as one float32,
 * same shape, finite for any finite x; 0 for no elements. A critic's loss. */
accel_tensor_t *accel_binary_cross_entropy(accel_tensor_t *x, accel_tensor_t *y);
/* Cross-entropy of logits x [..., V] and targets y [..., V], the probabilities of the V
 * classes: the mean over rows of the sum over V of -y log softmax(x) as one float32,
 * same shape and dtype; 0 for no rows. Distillation at temperature T: T^2 times that of
 * x = scale(student, 1 / T) and y = softmax(scale(teacher, 1 / T)). Targets that are
 * class numbers: accel_cross_entropy. */
accel_tensor_t *accel_soft_cross_entropy(accel_tensor_t *x, accel_tensor_t *y);
/* x [B, C, H, W], weight [O, C, kh, kw], bias [O] or NULL -> act(conv + bias) [B, O, (H
 * + 2 pad - kh) / stride + 1, (W + 2 pad - kw) / stride + 1], with `pad` zeros on every
 * side of x; the weight is not mirrored, as in all of deep learning. */
accel_tensor_t *accel_conv2d(accel_tensor_t *x, accel_tensor_t *weight,
                             accel_tensor_t *bias, int stride, int pad,
                             accel_activation_t act);
/* x [B, C, H, W] -> the largest of each size x size window,
 * [B, C, (H - size) / stride + 1, (W - size) / stride + 1]. */
accel_tensor_t *accel_maxpool2d(accel_tensor_t *x, int size, int stride);
typedef struct accel_cross_entropy {
    const int32_t *ignore_index; /* one more target to ignore; NULL: none */
    float label_smoothing;       /* s, 0 .. 1: part of the target spread over all V */
} accel_cross_entropy_t;

/* Fused head and loss: x [..., C], weight [V, C], bias [V] or NULL, targets int32 [...]
 * -> mean of -log softmax(x weight^T + bias)[target] as one float32; or weight and bias
 * NULL and x the logits themselves, [..., V]. Targets < 0 are ignored; with none left
 * the mean is
 * 0. `o` (NULL: defaults) is read during the call. With label smoothing the loss of a
 *    row is (1 - s) times that plus s times the mean of -log softmax over all V. The
 *    logits of the whole batch are never stored. */
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

/* Rotary positions: x [B, T, heads * D], D even and at most 512 -> the same shape.
 * Turns each pair (i, i + D / 2) by the angle of its position, which is the cache's
 * length (NULL: 0) plus t, times theta^(-2i / D); Su et al. 2021, with the pairs and
 * the scaling of frequencies of Hugging Face's Llama. `rope` NULL: the plain ones at
 * theta 10000. */
accel_tensor_t *accel_rope(accel_tensor_t *x, int heads, const accel_rope_t *rope,
                           const accel_kv_t *cache);
/* A tensor as an own op sees it: contiguous, in device memory (on the CPU: host
 * memory), valid during the call only. */
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
 * the memory of the run's device: on a GPU the functions put kernels on the stream of
 * accel_stream. */
typedef struct accel_op {
    const char *name;
    /* From dtype and dims of in[n] (data is NULL) to those of *out (elems is
     * computed). */
    accel_status_t (*shape)(const void *attr, const accel_array_t *in, int n,
                            accel_array_t *out, accel_error_t *err);
    /* Writes all of out->data. */
    accel_status_t (*forward)(const void *attr, const accel_array_t *in, int n,
                              const accel_array_t *out, accel_error_t *err);
    /* Adds to din[i].data the derivative of the loss by in[i]; NULL data: not wanted.
     * It has in[i]'s shape; float32 for parameters, else in[i]'s dtype. `dout` has
     * out's shape and dtype. NULL function: the op has no derivative, its output needs
     * no gradient. */
    accel_status_t (*backward)(const void *attr, const accel_array_t *in, int n,
                               const accel_array_t *out, const accel_array_t *dout,
                               const accel_array_t *din, accel_error_t *err);
} accel_op_t;

/* Runs an own op on in[n], 1 <= n <= 7, any tensors and parameters of at most two
 * units; the result is in the compute dtype unless op->shape sets another. `op` and
 * `attr` must outlive the step. */
accel_tensor_t *accel_apply(const accel_op_t *op, accel_tensor_t *const *in, int n,
                            const void *attr);
/* Number of dimensions and the sizes (valid as long as the tensor); 0 for NULL. */
int accel_tensor_shape(const accel_tensor_t *t, const int64_t **dims_out);
accel_dtype_t accel_tensor_dtype(const accel_tensor_t *t);
/* Copies the values, widened to float32, into host[elems]; `elems` must be the number
 * of elements. Errors: ACCEL_EINVAL (a parameter: use accel_save; a tensor that was
 * freed; another size), and errors of earlier work on the device. */
accel_status_t accel_tensor_read(const accel_tensor_t *t, float *host, size_t elems,
                                 accel_error_t *err);
/* Copies `bytes` bytes, the whole tensor in its own dtype, from host memory into a
 * buffer or an activation of this step. Errors: ACCEL_EINVAL (a parameter, a tensor
 * without memory, another size). */
accel_status_t accel_tensor_write(accel_tensor_t *t, const void *host, size_t bytes,
                                  accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
