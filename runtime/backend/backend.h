/* SPDX-License-Identifier: Apache-2.0
 *
 * The device vtable: every kernel the ops are made of. Pointers are the device's; nobody
 * outside a backend dereferences them. Arithmetic is float32 whatever the storage
 * ("type": ACCEL_F32 or ACCEL_BF16), results are rounded once. The bits of a result
 * depend on the shapes and the CPU kernel of the BLAS, never on the number of threads.
 * A device works behind the calls: kernels and copies are put at the end of the queue in
 * use and done in that order; queues run beside each other unless a wait orders them. Its
 * failures are kept and told by check and sync; after one, every call does nothing. The CPU
 * has done everything when a call returns: there is nothing to order.
 */
#ifndef ACCEL_BACKEND_BACKEND_H
#define ACCEL_BACKEND_BACKEND_H

#include "common/common.h"

struct backend;

/* c[m,n] = act(op(a) op(b) + bias), row-major; op(a) is [m,k], op(b) is [k,n]. m, n
 * and, with add, k may be 0. For the backward: c = op(a) op(b) * act'(pre), and the sums of
 * op(a) over k, which are the gradient of a bias where a^T b is that of a weight. */
struct gemm {
    bool trans_a, trans_b; /* stored [k,m], [n,k] */
    int64_t m, n, k;
    const void *a, *b;
    accel_dtype_t a_type, b_type;
    int64_t lda, ldb; /* elements between stored rows */
    void *c;
    accel_dtype_t c_type;
    int64_t ldc;
    bool add;         /* c += instead of c =; not together with bias or act */
    const void *bias; /* [n] or NULL */
    accel_dtype_t bias_type;
    accel_activation_t act;
    void *pre; /* value before the activation, as c; NULL: not wanted */
    /* c = op(a) op(b) * act'(pre), with a pre that is read (for RELU it may be the
     * activation's result); not together with add or bias. The product is rounded before,
     * as for act_grad; a device may leave that out. */
    bool act_grad;
    /* [m] += sums of op(a) over k; only with trans_a and lda = m. NULL: not wanted */
    float *row_sums;
};

/* Where the values of one position and head are: head_width elements side by side at
 * data + sample * b + row * t + head * h elements. */
struct heads {
    const void *data;
    int64_t sample, row, head;
};

/* y = (x - mean) / sqrt(var + eps) * gain + bias, or x / sqrt(mean of x^2 + eps) * gain,
 * for each of the rows. */
struct norm {
    accel_dtype_t type;
    int64_t rows, cols;
    float eps;
    bool rms;
};

struct mask; /* backend/maths.h */

/* x [batch, channels, height, width] and weight [outputs, channels, kernel_h, kernel_w] to
 * y [batch, outputs, out_h, out_w]: y(r, c) = sum of weight(u, v) x(r * stride - pad + u,
 * c * stride - pad + v), zeros around x. */
struct conv {
    accel_dtype_t type;
    int64_t batch, channels, height, width;
    int64_t outputs, kernel_h, kernel_w, out_h, out_w;
    int64_t stride, pad;
};

struct conv_forward {
    void *y, *pre; /* act(pre) and pre = product + bias; NULL: not wanted */
    const void *x, *weight, *bias; /* bias [outputs] or NULL */
    accel_activation_t act;
};

struct conv_backward {
    const void *dy, *x, *weight;
    void *dx; /* written, or added to; NULL: not wanted */
    bool add;
    float *dweight, *dbias; /* added to; NULL: not wanted */
};

/* planes of [height, width] to planes of [out_h, out_w], windows of size x size, all of
 * them inside. */
struct pool {
    accel_dtype_t type;
    int64_t planes, height, width, out_h, out_w, size, stride;
};

struct attention {
    accel_dtype_t type; /* of all but lse */
    int64_t batch, queries, keys, heads, kv_heads, head_width;
    struct heads q, k, v; /* [batch, queries, heads], [batch, keys, kv_heads] twice */
    bool causal;          /* query t sees the keys up to offset + t */
    int64_t offset;
    const int32_t *lengths; /* [batch]: keys from there on are padding; NULL: none */
    const int32_t *mask;    /* [batch, keys]: 0 is padding; NULL: none */
    float scale;
    /* Part of the probabilities that is dropped, the rest scaled up. Key j of a query is
     * dropped when word j % 4 of rng_block(seed, stream, row * ceil(keys / 4) + j / 4) is
     * below dropout * 2^32; row = ((first_sample + b) * heads + h) * queries + t. */
    float dropout;
    uint64_t seed, stream;
    int64_t first_sample;
};

#define ROPE_MAX_PAIRS 256

/* Angle of pair i at position t: (first + t) * frequency[i]. */
struct rope {
    accel_dtype_t type;
    int64_t batch, time, heads, head_width; /* [batch, time, heads * head_width] */
    int64_t first;
    float frequency[ROPE_MAX_PAIRS];
};

/* A gradient to write, or to add to; data NULL: not wanted. */
struct heads_out {
    void *data;
    int64_t sample, row, head;
    bool add;
};

struct attention_grads {
    const void *out, *dout; /* [batch, queries, heads * head_width] */
    const float *lse;
    struct heads_out dq, dk, dv;
};

/* Constants of one optimizer step, computed once in double (optim/). */
struct adamw_step {
    float beta1, beta2;
    float one_minus_beta1, one_minus_beta2;
    float rate;       /* lr / (1 - beta1^t) */
    float root_scale; /* 1 / sqrt(1 - beta2^t) */
    float eps;
    float decay;      /* 1 - lr * weight_decay */
    float grad_scale; /* applied to every gradient first (clipping) */
};

struct sgd_step {
    float lr, momentum;
    float own,
        mixed;   /* weights of gradient and momentum: 0, 1; Nesterov: 1, momentum */
    float decay; /* weight_decay: added to the gradient, times p */
    float grad_scale;
};

struct lion_step {
    float lr, beta1, beta2;
    float one_minus_beta1, one_minus_beta2;
    float decay; /* 1 - lr * weight_decay */
    float grad_scale;
};

/* Cross-entropy: which targets count, and how much of one is spread over all classes. */
struct xent {
    int32_t ignore; /* does not count; nor does any that is negative */
    float smoothing;
};

/* Compute: all kernels of the tape and the optimizer. Gather and reduce: parameters and
 * gradients on their way between the ranks. Copy: to and from the host. */
enum backend_queue {
    QUEUE_COMPUTE,
    QUEUE_GATHER,
    QUEUE_REDUCE,
    QUEUE_COPY,
    QUEUE_COUNT
};

/* Activations get their memory in steps of this many bytes: a multiple of the huge page, and
 * of what devices map at once. */
#define BACKEND_STEP ((size_t)32 << 20)

struct backend_event; /* the device's */

/* What memory is for: out of memory says who holds how much. */
enum backend_memory {
    MEMORY_PARAMETERS,
    MEMORY_MOMENTS,
    MEMORY_GRADIENTS,
    MEMORY_GATHERED,
    MEMORY_REDUCE,
    MEMORY_ACTIVATIONS,
    MEMORY_BUFFERS,
    MEMORY_WORK,
    MEMORY_KINDS
};

static inline const char *backend_memory_name(enum backend_memory kind)
{
    static const char *const name[MEMORY_KINDS] = {
        "parameters",    "moments",     "gradients", "gathered parameters",
        "reduce buffer", "activations", "buffers",   "working memory"
    };

    return name[kind];
}

/* Memory of a device: bytes. */
struct backend_usage {
    size_t total, used; /* by all processes, as the driver counts */
    size_t peak; /* the most that was used so far, as far as this process knows */
    size_t held[MEMORY_KINDS]; /* by this process, of `used` */
};

struct span {
    const float *x;
    int64_t n;
};

/* Whose work comes next, for messages of failures that a device tells later. Both texts stay
 * where they are while there may be any; path NULL: no module's. */
struct backend_mark {
    const char *op, *path;
    bool backward;
};

/* Asked again and again while the calling thread waits for the device, `first` at the begin
 * of a wait. Not ACCEL_OK: what is waited for will never be there (a peer of the collectives
 * is gone); the device keeps that failure as its own and does nothing from then on. */
struct backend_watch {
    struct backend_watch *next; /* asked as well; NULL: the last */
    accel_status_t (*poll)(void *user, bool first, accel_error_t *err);
    void *user;
};

struct backend {
    const char *name; /* "cpu", "cuda", "meta" */
    const char
        *isa; /* CPU: vector instructions chosen at run time, and the BLAS kernel */
    int threads;
    bool shapes_only; /* nothing is computed: memory must not be touched */
    bool device;      /* its memory is not the host's: only to_host, from_host cross */
    size_t fixed_bytes;  /* working memory beside the arena */
    size_t own_least;    /* what kernels may take by themselves in any case; see room */
    size_t memory_bytes; /* of the device, or the node, in all; 0: not known */
    const char *bus_id;  /* of the device: "0000:17:00.0"; NULL: none */
    struct backend_watch *watch; /* NULL: none; the callers' */
    void *state;
    void (*close)(struct backend *be);

    /* From now on kernels and copies go to q; QUEUE_COMPUTE at first. */
    void (*use)(const struct backend *be, enum backend_queue q);
    enum backend_queue (*queue)(const struct backend *be); /* the one in use */
    /* Events mark a place in a queue. NULL is one that is never recorded: fine everywhere,
     * and all that the CPU has. */
    struct backend_event *(*event_new)(const struct backend *be);
    void (*event_free)(const struct backend *be, struct backend_event *e);
    void (*record)(const struct backend *be, struct backend_event *e,
                   enum backend_queue q);
    /* What comes later in q starts after what was in the other queue when e was last
     * recorded; no wait when it never was. The calling thread goes on. */
    void (*wait)(const struct backend *be, enum backend_queue q,
                 struct backend_event *e);
    /* The library's own handle of a queue (cudaStream_t), for collectives; NULL. */
    void *(*native)(const struct backend *be, enum backend_queue q);
    /* The first failure that is known so far; cheap, never waits for the device. */
    accel_status_t (*check)(const struct backend *be, accel_error_t *err);
    /* Waits for all queues. The first failure, also ids and targets out of range. */
    accel_status_t (*sync)(const struct backend *be, accel_error_t *err);
    /* Around forward and backward of one micro-batch: a device may record what is between
     * and launch it as one graph. */
    void (*step_begin)(const struct backend *be);
    void (*step_end)(const struct backend *be);
    /* NULL: a new micro-batch, no op yet. */
    void (*mark)(const struct backend *be, const struct backend_mark *mark);

    /* Memory that outlives a step, zeroed; present at once, so that a lack of it shows here
     * and not in a step: ACCEL_ENOMEM then says what was asked and what is held. free takes
     * what alloc gave; NULL is fine. */
    accel_status_t (*alloc)(const struct backend *be, enum backend_memory kind,
                            size_t bytes, void **out, accel_error_t *err);
    void (*free)(const struct backend *be, void *p);
    /* `bytes` more (or fewer) of that kind in the books: memory of the device that a library
     * took by itself. */
    void (*count)(const struct backend *be, enum backend_memory kind, int64_t bytes);
    /* Memory for what kernels of the compute queue take beside their operands (gemm_own ...),
     * once, before any of them runs: what does not fit in comes from the device piece by
     * piece. */
    accel_status_t (*room)(const struct backend *be, size_t bytes, accel_error_t *err);
    /* NULL where memory is the host's. Zeros when the device does not tell. */
    void (*usage)(const struct backend *be, struct backend_usage *out);
    /* A range of addresses for activations, memory behind it from its start on as wanted:
     * [from, to) in multiples of BACKEND_STEP. NULL, false: refused. */
    void *(*reserve)(const struct backend *be, size_t bytes);
    bool (*commit)(const struct backend *be, void *base, size_t from, size_t to);
    void (*release)(const struct backend *be, void *base, size_t reserved,
                    size_t committed);
    /* Memory of the host that a device copies from and to at full speed, zeroed. */
    void *(*host_alloc)(const struct backend *be, size_t bytes);
    void (*host_free)(const struct backend *be, void *p, size_t bytes);

    void (*fill)(const struct backend *be, void *dst, accel_dtype_t type, int64_t n,
                 float value);
    /* Either side may be memory of host_alloc, which then is left alone until the copy, that
     * comes in its turn, is over. */
    void (*copy)(const struct backend *be, void *dst, const void *src, size_t bytes);
    /* Values as float32, or bytes as they are; there when the call returns. */
    void (*to_host)(const struct backend *be, float *host, const void *src,
                    accel_dtype_t type, int64_t n);
    void (*to_host_bytes)(const struct backend *be, void *host, const void *src,
                          size_t bytes);
    /* `host` may be changed when the call returns. */
    void (*from_host)(const struct backend *be, void *dst, const void *host,
                      size_t bytes);
    void (*zero)(const struct backend *be, void *dst, size_t bytes);
    /* float32 -> bfloat16; dst may be src itself. */
    void (*narrow)(const struct backend *be, void *dst, const float *src, int64_t n);
    /* src[count][n] float32 -> as many arrays of a scaled type of the wire (common/wire.h), n
     * numbers each, one behind the other. dst may be src itself when n is a multiple of 32;
     * it begins with a multiple of 4. */
    void (*narrow_parts)(const struct backend *be, void *dst, accel_dtype_t type,
                         const float *src, int count, int64_t n);
    /* bfloat16 -> float32; no overlap. */
    void (*widen)(const struct backend *be, float *dst, const void *src, int64_t n);
    /* x *= by */
    void (*scale)(const struct backend *be, float *x, int64_t n, float by);
    /* Sum of the squares of all elements, in an order that depends on the lengths only;
     * waits for the device. */
    double (*sumsq)(const struct backend *be, const struct span *x, int count);
    /* out = (accumulate ? out : 0) + scale * (parts[0] + parts[1] + ... in this order), sums
     * in float32; parts [count] arrays of n numbers as they lie on the wire (common/wire.h),
     * no overlap with out. */
    void (*sum_parts)(const struct backend *be, float *out, bool accumulate,
                      const void *parts, accel_dtype_t type, int count, int64_t n,
                      float scale);
    /* Optimizer steps (maths.h has the formulas), in place over p[n] and its state, with
     * gradients g[n], which are zero afterwards; the arrays do not overlap. SGD's m is NULL
     * without momentum. */
    void (*adamw)(const struct backend *be, float *p, float *m, float *v, float *g,
                  int64_t n, const struct adamw_step *k);
    void (*sgd)(const struct backend *be, float *p, float *m, float *g, int64_t n,
                const struct sgd_step *k);
    void (*lion)(const struct backend *be, float *p, float *m, float *g, int64_t n,
                 const struct lion_step *k);

    /* dst = a + b; dst may be a or b. */
    void (*add)(const struct backend *be, void *dst, const void *a, const void *b,
                accel_dtype_t type, int64_t n);
    void (*gemm)(const struct backend *be, const struct gemm *p);
    /* dst[c] += sum over rows of src[r,c] */
    void (*column_sum)(const struct backend *be, float *dst, const void *src,
                       accel_dtype_t type, int64_t rows, int64_t cols);

    /* y = act(x) */
    void (*act)(const struct backend *be, void *y, const void *x, accel_dtype_t type,
                int64_t n, accel_activation_t act);
    /* dx (+)= dy * act'(pre). For RELU `pre` may be the result as well. */
    void (*act_grad)(const struct backend *be, void *dx, bool add, const void *dy,
                     const void *pre, accel_dtype_t type, int64_t n,
                     accel_activation_t act);
    /* y = act(gate) * up */
    void (*gated)(const struct backend *be, void *y, const void *gate, const void *up,
                  accel_dtype_t type, int64_t n, accel_activation_t act);
    /* dgate (+)= dy * up * act'(gate), dup (+)= dy * act(gate). Either may be NULL; they
     * are not the same. */
    void (*gated_grad)(const struct backend *be, void *dgate, bool add_gate, void *dup,
                       bool add_up, const void *dy, const void *gate, const void *up,
                       accel_dtype_t type, int64_t n, accel_activation_t act);
    /* y (+)= x times the mask: forward and backward */
    void (*dropout)(const struct backend *be, void *y, bool add, const void *x,
                    accel_dtype_t type, int64_t n, const struct mask *mask);

    /* Row by row, strides in elements: dst[r,c] (+)= src[r,c]. Any dtype; add: float32
     * and bfloat16 only. */
    void (*copy_rows)(const struct backend *be, void *dst, int64_t dst_stride, bool add,
                      const void *src, int64_t src_stride, accel_dtype_t type,
                      int64_t rows, int64_t cols);
    /* src [a][b][c][d][e] = dim[5] -> dst [a][d][c][b][e]; dtypes as copy_rows. */
    void (*transpose)(const struct backend *be, void *dst, bool add, const void *src,
                      accel_dtype_t type, const int64_t dim[5]);

    /* dst (+)= src, rounded; src of any dtype, dst float32 or bfloat16 */
    void (*cast)(const struct backend *be, void *dst, accel_dtype_t dst_type, bool add,
                 const void *src, accel_dtype_t src_type, int64_t n);

    /* y = softmax of each row; dx (+)= (dy - sum of dy y) y */
    void (*softmax)(const struct backend *be, void *y, const void *x,
                    accel_dtype_t type, int64_t rows, int64_t cols);
    void (*softmax_grad)(const struct backend *be, void *dx, bool add, const void *dy,
                         const void *y, accel_dtype_t type, int64_t rows, int64_t cols);
    /* x [a][b][c] = dim[3]: y[a,c] = scale * sum over b; dx[a,b,c] (+)= scale * dy[a,c] */
    void (*reduce)(const struct backend *be, void *y, accel_dtype_t y_type,
                   const void *x, accel_dtype_t type, const int64_t dim[3],
                   float scale);
    void (*reduce_grad)(const struct backend *be, void *dx, accel_dtype_t type,
                        bool add, const void *dy, accel_dtype_t dy_type,
                        const int64_t dim[3], float scale);
    /* mean[0] = mean of (x - y)^2, 0 when n is 0; dx (+)= dmean[0] 2 / n (x - y) */
    void (*mse)(const struct backend *be, float *mean, const void *x,
                accel_dtype_t x_type, const void *y, accel_dtype_t y_type, int64_t n);
    void (*mse_grad)(const struct backend *be, void *dx, bool add, const void *x,
                     accel_dtype_t x_type, const void *y, accel_dtype_t y_type,
                     const float *dmean, int64_t n);

    /* What these kernels take by themselves while they run; NULL: nothing. */
    size_t (*gemm_own)(const struct backend *be, const struct gemm *p);
    size_t (*embed_grad_own)(const struct backend *be, int64_t rows);
    size_t (*attention_own)(const struct backend *be, const struct attention *p,
                            const struct attention_grads *grads);

    size_t (*conv_scratch)(const struct backend *be, const struct conv *p,
                           bool backward);
    void (*conv)(const struct backend *be, const struct conv *p,
                 const struct conv_forward *f, void *scratch);
    void (*conv_grad)(const struct backend *be, const struct conv *p,
                      const struct conv_backward *b, void *scratch);
    /* where[i]: element of its plane that y[i] is */
    void (*maxpool)(const struct backend *be, const struct pool *p, void *y,
                    int32_t *where, const void *x);
    size_t (*maxpool_scratch)(const struct backend *be, const struct pool *p);
    /* dx (+)= dy where the maxima were */
    void (*maxpool_grad)(const struct backend *be, const struct pool *p, void *dx,
                         bool add, const void *dy, const int32_t *where, void *scratch);

    /* out[r,:] = table[ids[r],:] + positions[r % time,:]. Returns the first r whose id is
     * not in [0, vocab), or -1; a device returns -1 and tells it in sync. */
    int64_t (*embed)(const struct backend *be, void *out, const int32_t *ids,
                     const void *table, const void *positions, accel_dtype_t type,
                     int64_t rows, int64_t time, int64_t vocab, int64_t cols);
    /* Adds into dtable and dpositions; either may be NULL. */
    void (*embed_grad)(const struct backend *be, float *dtable, float *dpositions,
                       const int32_t *ids, const void *dy, accel_dtype_t type,
                       int64_t rows, int64_t time, int64_t cols);

    /* stats[2*rows]: mean (0 when rms) and 1/deviation of each row. `bias` may be
     * NULL. */
    void (*norm)(const struct backend *be, const struct norm *p, void *y, float *stats,
                 const void *x, const void *gain, const void *bias);
    void (*norm_grad)(const struct backend *be, const struct norm *p, void *dx,
                      bool add, const void *dy, const void *x, const float *stats,
                      const void *gain);
    /* Adds into dgain and dbias; either may be NULL. */
    void (*norm_param_grad)(const struct backend *be, const struct norm *p,
                            float *dgain, float *dbias, const void *dy, const void *x,
                            const float *stats);

    /* Turns each pair (i, i + head_width / 2) by its angle, or back. */
    void (*rope)(const struct backend *be, void *dst, const void *src,
                 const struct rope *p, bool back, bool add);
    /* Copies the values of [batch, rows, count] heads of `width`; to.add is not used. */
    void (*copy_heads)(const struct backend *be, struct heads_out to, struct heads from,
                       accel_dtype_t type, int64_t batch, int64_t rows, int64_t count,
                       int64_t width);
    /* Shapes and dropout of `p` count, its pointers need not be there. */
    size_t (*attention_scratch)(const struct backend *be, const struct attention *p,
                                bool backward);
    /* out [batch, queries, heads * head_width]; zero for a query that sees no key.
     * lse[batch,heads,queries]: log-sum-exp of each score row, for the backward; infinity
     * for a query that sees no key. */
    void (*attention)(const struct backend *be, const struct attention *p, void *out,
                      float *lse, void *scratch);
    /* dq, dk and dv may be one tensor: they are done in this order. */
    void (*attention_grad)(const struct backend *be, const struct attention *p,
                           const struct attention_grads *grads, void *scratch);

    /* Rows of one chunk: lse[r] and loss[r] (0 where the target does not count). Returns the
     * first row whose target is >= vocab, or -1; a device as with embed. */
    int64_t (*xent)(const struct backend *be, const struct xent *o, float *lse,
                    float *loss, const float *logits, const int32_t *targets,
                    int64_t rows, int64_t vocab);
    /* mean[0] = sum of loss / count; count[0] = targets that count. None: mean 0. */
    void (*xent_mean)(const struct backend *be, const struct xent *o, float *mean,
                      float *count, const float *loss, const int32_t *targets,
                      int64_t rows);
    /* In place: logits -> d(mean)/d(logits) * dmean[0], as `type`: each row of it begins
     * where its row of logits began. */
    void (*xent_grad)(const struct backend *be, const struct xent *o, float *logits,
                      accel_dtype_t type, const float *lse, const float *count,
                      const float *dmean, const int32_t *targets, int64_t rows,
                      int64_t vocab);
};

/* Kernels on this process's cores: OpenMP with `threads` threads (0: all OpenMP would
 * use), every BLAS call single-threaded. */
accel_status_t backend_cpu_open(struct backend **out, int threads, accel_error_t *err);
/* Kernels that do nothing, with the scratch sizes of `like`: the same forward and
 * backward on a counting arena tells the peak. `like` must outlive it. */
accel_status_t backend_meta_open(struct backend **out, const struct backend *like,
                                 accel_error_t *err);
/* The most that one kernel would have taken for itself so far; at least what every kernel
 * of such a backend may take. 0: `like` has no such kernels. */
size_t backend_meta_own_bytes(const struct backend *meta);
/* No kernels, only the scratch sizes of the CPU backend with `threads` >= 1 threads: the
 * `like` of a meta backend where nothing is computed. */
accel_status_t backend_cpu_sizes_open(struct backend **out, int threads,
                                      accel_error_t *err);
/* The same for the CUDA backend; cuDNN's share is an estimate. */
accel_status_t backend_cuda_sizes_open(struct backend **out, accel_error_t *err);
/* Queues, events and late errors for a backend that has none of them. */
void backend_no_queues(struct backend *be);
void backend_close(struct backend *be); /* NULL is fine */

#endif
