/* SPDX-License-Identifier: Apache-2.0
 *
 * The device vtable: every kernel the ops are made of. Pointers belong to the device;
 * only a backend dereferences them. Arithmetic is float32 whatever the storage ("type":
 * ACCEL_F32 or ACCEL_BF16), and results are rounded once. The bits of a result depend
 * on the shapes and on the CPU kernel of the BLAS, never on the number of threads.
 *
 * A device works asynchronously: each call appends a kernel or a copy to the queue in
 * use. A queue runs in order; queues run side by side unless a wait orders them. The
 * device keeps its first failure, which check and sync report; from then on every call
 * does nothing. The CPU has finished when a call returns, so nothing needs ordering
 * there.
 *
 * Unless a row says otherwise: sizes are in elements, matrices are row-major, "(+)="
 * means written or, with the flag `add`, added to, and the caller owns every pointer.
 */
#ifndef ACCEL_BACKEND_BACKEND_H
#define ACCEL_BACKEND_BACKEND_H

#include "common/common.h"

struct backend;

/* c[m,n] = act(op(a) op(b) + bias), row-major; op(a) is [m,k], op(b) is [k,n]. m, n
 * and, with add, k may be 0. The backward uses two more forms: c = op(a) op(b) *
 * act'(pre), and row_sums, the sums of op(a) over k. Where a^T b is the gradient of a
 * weight, these sums are the gradient of its bias. */
struct gemm {
    /* a is stored as [k,m], b as [n,k] */
    bool trans_a, trans_b;
    int64_t m, n, k;
    const void *a, *b;
    accel_dtype_t a_type, b_type;
    /* elements between the starts of stored rows */
    int64_t lda, ldb;
    void *c;
    accel_dtype_t c_type;
    int64_t ldc;
    /* c += instead of c =; not together with bias or act */
    bool add;
    const void *bias; /* [n] or NULL */
    accel_dtype_t bias_type;
    accel_activation_t act;
    /* out: the value before the activation, of c's type and stride; NULL: not wanted */
    void *pre;
    /* c = op(a) op(b) * act'(pre), where pre is an input (for RELU it may be the
     * activation's result); not together with add or bias. The product is rounded
     * first, as it would be for act_grad; a device may skip that rounding. */
    bool act_grad;
    /* [m] += sums of op(a) over k; only with trans_a and lda = m. NULL: not wanted */
    float *row_sums;
};

/* Addresses the values of one position and head: head_width adjacent elements at data +
 * sample * b + row * t + head * h elements. */
struct heads {
    const void *data;
    int64_t sample, row, head;
};

/* y = (x - mean) / sqrt(var + eps) * gain + bias, or with rms x / sqrt(mean of x^2 +
 * eps) * gain; row by row, x and y [rows, cols]. */
struct norm {
    accel_dtype_t type;
    int64_t rows, cols;
    float eps;
    bool rms;
};

struct mask; /* backend/maths.h */

/* x [batch, channels, height, width] and weight [outputs, channels, kernel_h, kernel_w]
 * to y [batch, outputs, out_h, out_w]: y(r, c) = sum of weight(u, v) x(r * stride - pad
 * + u, c * stride - pad + v), zeros around x. */
struct conv {
    accel_dtype_t type;
    int64_t batch, channels, height, width;
    int64_t outputs, kernel_h, kernel_w, out_h, out_w;
    int64_t stride, pad;
};

struct conv_forward {
    /* y = act(pre), pre = product + bias; pre NULL: not wanted */
    void *y, *pre;
    /* bias [outputs] or NULL */
    const void *x, *weight, *bias;
    accel_activation_t act;
};

struct conv_backward {
    const void *dy, *x, *weight;
    /* written or, with add, added to; NULL: not wanted */
    void *dx;
    bool add;
    /* always added to; NULL: not wanted */
    float *dweight, *dbias;
};

/* Max pooling from planes of [height, width] to planes of [out_h, out_w]. Windows are
 * size x size and lie wholly inside: there is no padding. */
struct pool {
    accel_dtype_t type;
    int64_t planes, height, width, out_h, out_w, size, stride;
};

/* Shapes, operands and rules of one attention call. Query head h reads key head h /
 * (heads / kv_heads). */
struct attention {
    /* of every tensor but lse, which is float32 */
    accel_dtype_t type;
    int64_t batch, queries, keys, heads, kv_heads, head_width;
    /* q [batch, queries, heads], k and v [batch, keys, kv_heads] */
    struct heads q, k, v;
    /* query t sees keys 0 .. offset + t */
    bool causal;
    int64_t offset;
    /* [batch]: keys from lengths[b] on are padding; NULL: none */
    const int32_t *lengths;
    const int32_t *mask; /* [batch, keys]: 0 is padding; NULL: none */
    float scale;
    /* Share of the probabilities that is dropped; the rest is scaled up. Key j of a
     * query is dropped when word j % 4 of rng_block(seed, stream, row * ceil(keys / 4)
     * + j / 4) is below dropout * 2^32; row = ((first_sample + b) * heads + h) *
     * queries + t. Counting samples over the whole run makes the mask independent of
     * rank and kernel. */
    float dropout;
    uint64_t seed, stream;
    int64_t first_sample;
};

#define ROPE_MAX_PAIRS 256

/* The angle of pair i at position t is (first + t) * frequency[i], in radians. */
struct rope {
    accel_dtype_t type;
    int64_t batch, time, heads, head_width; /* [batch, time, heads * head_width] */
    int64_t first;
    float frequency[ROPE_MAX_PAIRS];
};

/* A gradient that is written or, with add, added to; data NULL: not wanted. */
struct heads_out {
    void *data;
    int64_t sample, row, head;
    bool add;
};

/* Inputs and results of the attention's backward, beside those of struct attention. */
struct attention_grads {
    const void *out, *dout; /* [batch, queries, heads * head_width] */
    const float *lse;
    struct heads_out dq, dk, dv;
};

/* Constants of one optimizer step. optim/ computes them once, in double precision. */
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
    /* weights of the gradient and of the momentum: 0 and 1; Nesterov: 1 and momentum */
    float own, mixed;
    /* weight_decay: this times p is added to the gradient */
    float decay;
    float grad_scale;
};

struct lion_step {
    float lr, beta1, beta2;
    float one_minus_beta1, one_minus_beta2;
    float decay; /* 1 - lr * weight_decay */
    float grad_scale;
};

/* Cross-entropy: which targets count, and how much of one target is spread over all
 * classes (label smoothing). */
struct xent {
    /* this target does not count, nor does any negative one */
    int32_t ignore;
    float smoothing;
};

/* The queues of a device. Compute: kernels of the tape and the optimizer. Gather and
 * reduce: parameters and gradients in flight between ranks. Copy: transfers to and from
 * the host. */
enum backend_queue {
    QUEUE_COMPUTE,
    QUEUE_GATHER,
    QUEUE_REDUCE,
    QUEUE_COPY,
    QUEUE_COUNT
};

/* The arena of activations grows in steps of this many bytes: a multiple of the huge
 * page and of the granularity at which devices map memory. */
#define BACKEND_STEP ((size_t)32 << 20)

/* opaque; each device defines its own */
struct backend_event;

/* What memory is used for. An out-of-memory message lists how much each kind holds. */
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

/* Memory use of a device, in bytes. */
struct backend_usage {
    /* of all processes, as the driver counts */
    size_t total, used;
    /* highest `used` that this process has seen */
    size_t peak;
    /* what this process holds of `used`, by kind */
    size_t held[MEMORY_KINDS];
};

/* n float32 elements at x. */
struct span {
    const float *x;
    int64_t n;
};

/* Names the op whose work follows, for failures that a device reports late. Both texts
 * must stay valid as long as work of theirs may be in flight. path NULL: the op belongs
 * to no module. */
struct backend_mark {
    const char *op, *path;
    bool backward;
};

/* A callback polled while the calling thread waits for the device; `first` is true on
 * the first poll of a wait. Any result but ACCEL_OK means that the wait will never end
 * (a peer of a collective is gone); the device then keeps that failure as its own and
 * does nothing from then on. */
struct backend_watch {
    /* polled as well; NULL: last of the list */
    struct backend_watch *next;
    accel_status_t (*poll)(void *user, bool first, accel_error_t *err);
    void *user;
};

/* The vtable of one opened device. Functions that are NULL do not exist on that
 * backend; where this is allowed, their comment says so. */
struct backend {
    const char *name; /* "cpu", "cuda", "meta" */
    /* CPU: the vector instructions chosen at run time, and the BLAS kernel */
    const char *isa;
    int threads;
    /* nothing is computed: memory must not be touched */
    bool shapes_only;
    /* its memory is not the host's: only to_host and from_host cross */
    bool device;
    /* workspace of kernels outside the arena, in bytes; see reserve_workspace */
    size_t fixed_bytes;
    /* total memory of the device or node; 0: not known */
    size_t memory_bytes;
    /* PCI address, such as "0000:17:00.0"; NULL: none */
    const char *bus_id;
    /* polled during waits; NULL: none. Callers own the list */
    struct backend_watch *watch;
    /* the backend's own state, freed by close */
    void *state;
    void (*close)(struct backend *be);

    /* Kernels and copies go to q from now on; QUEUE_COMPUTE at first. */
    void (*use)(const struct backend *be, enum backend_queue q);
    /* the queue in use */
    enum backend_queue (*queue)(const struct backend *be);
    /* Events mark a place in a queue. NULL is an event that is never recorded: valid
     * everywhere, and the only one the CPU has. */
    struct backend_event *(*event_new)(const struct backend *be);
    void (*event_free)(const struct backend *be, struct backend_event *e);
    void (*record)(const struct backend *be, struct backend_event *e,
                   enum backend_queue q);
    /* Work queued on q after this call starts when the work queued before e's last
     * recording is complete; no wait when e was never recorded. The calling thread does
     * not block. */
    void (*wait)(const struct backend *be, enum backend_queue q,
                 struct backend_event *e);
    /* The native handle of a queue (cudaStream_t), for collectives; NULL: there is
     * none. */
    void *(*native)(const struct backend *be, enum backend_queue q);
    /* Returns the first failure known so far; cheap, never waits for the device. */
    accel_status_t (*check)(const struct backend *be, accel_error_t *err);
    /* Waits for all queues and returns the first failure, ids and targets out of range
     * included. */
    accel_status_t (*sync)(const struct backend *be, accel_error_t *err);
    /* Bracket the forward and backward of one micro-batch: a device may record what
     * lies between and launch it as one graph. */
    void (*step_begin)(const struct backend *be);
    void (*step_end)(const struct backend *be);
    /* Sets the op of the kernels that follow. NULL: a new micro-batch, no op yet. */
    void (*mark)(const struct backend *be, const struct backend_mark *mark);

    /* Memory that outlives a step, zeroed. It is mapped at once, so that a shortage
     * shows here and not in a step: ACCEL_ENOMEM then names the request and what is
     * held. free takes what alloc returned; NULL is fine. */
    accel_status_t (*alloc)(const struct backend *be, enum backend_memory kind,
                            size_t bytes, void **memory_out, accel_error_t *err);
    void (*free)(const struct backend *be, void *p);
    /* Adds `bytes` (negative: subtracts) to the books of that kind: device memory that
     * a library allocated by itself. */
    void (*count)(const struct backend *be, enum backend_memory kind, int64_t bytes);
    /* Reserves the internal workspace of the compute queue's kernels, whose size
     * depends on the device alone and is part of fixed_bytes; a run does so when it
     * opens the device. Without it, and for a request that exceeds it, a kernel
     * allocates for itself. NULL where memory is the host's. */
    accel_status_t (*reserve_workspace)(const struct backend *be, accel_error_t *err);
    /* NULL where memory is the host's. Zeros when the device cannot tell. */
    void (*usage)(const struct backend *be, struct backend_usage *usage_out);
    /* A range of addresses for activations that is backed by memory from its start on,
     * as needed: commit maps [from, to), both multiples of BACKEND_STEP. NULL or false:
     * refused. */
    void *(*reserve)(const struct backend *be, size_t bytes);
    bool (*commit)(const struct backend *be, void *base, size_t from, size_t to);
    void (*release)(const struct backend *be, void *base, size_t reserved,
                    size_t committed);
    /* Host memory, zeroed, that a device copies from and to at full speed
     * (page-locked). */
    void *(*host_alloc)(const struct backend *be, size_t bytes);
    void (*host_free)(const struct backend *be, void *p, size_t bytes);

    /* dst[0 .. n) = value */
    void (*fill)(const struct backend *be, void *dst, accel_dtype_t type, int64_t n,
                 float value);
    /* Either side may be memory of host_alloc. The host must not touch it until the
     * copy, which takes its turn in the queue, is complete. */
    void (*copy)(const struct backend *be, void *dst, const void *src, size_t bytes);
    /* Values as float32, or bytes unchanged; complete when the call returns. */
    void (*to_host)(const struct backend *be, float *host, const void *src,
                    accel_dtype_t type, int64_t n);
    void (*to_host_bytes)(const struct backend *be, void *host, const void *src,
                          size_t bytes);
    /* The caller may change `host` as soon as the call returns. */
    void (*from_host)(const struct backend *be, void *dst, const void *host,
                      size_t bytes);
    void (*zero)(const struct backend *be, void *dst, size_t bytes);
    /* float32 -> bfloat16; dst may be src itself. */
    void (*narrow)(const struct backend *be, void *dst, const float *src, int64_t n);
    /* src[count][n] float32 -> `count` adjacent arrays of n numbers of a scaled wire
     * type (common/wire.h). dst may be src itself when n is a multiple of 32; dst is
     * aligned to 4 bytes. */
    void (*narrow_parts)(const struct backend *be, void *dst, accel_dtype_t type,
                         const float *src, int count, int64_t n);
    /* bfloat16 -> float32; no overlap. */
    void (*widen)(const struct backend *be, float *dst, const void *src, int64_t n);
    /* x *= by */
    void (*scale)(const struct backend *be, float *x, int64_t n, float by);
    /* Sum of the squares of all elements, in an order that depends on the lengths only.
     * Waits for the device. */
    double (*sumsq)(const struct backend *be, const struct span *x, int count);
    /* out = (accumulate ? out : 0) + scale * (parts[0] + parts[1] + ... in this order),
     * summed in float32. `parts` holds [count] arrays of n numbers in wire format
     * (common/wire.h) and must not overlap out. */
    void (*sum_parts)(const struct backend *be, float *out, bool accumulate,
                      const void *parts, accel_dtype_t type, int count, int64_t n,
                      float scale);
    /* Optimizer steps (formulas in maths.h), in place over p[n] and its state. They
     * zero the gradients g[n]. The arrays must not overlap. SGD's m is NULL without
     * momentum. */
    void (*adamw)(const struct backend *be, float *p, float *m, float *v, float *g,
                  int64_t n, const struct adamw_step *k);
    void (*sgd)(const struct backend *be, float *p, float *m, float *g, int64_t n,
                const struct sgd_step *k);
    void (*lion)(const struct backend *be, float *p, float *m, float *g, int64_t n,
                 const struct lion_step *k);

    /* dst = a + b; dst may be a or b. */
    void (*add)(const struct backend *be, void *dst, const void *a, const void *b,
                accel_dtype_t type, int64_t n);
    /* One matrix product; see struct gemm. */
    void (*gemm)(const struct backend *be, const struct gemm *p);
    /* dst[c] += sum over rows of src[r,c] */
    void (*column_sum)(const struct backend *be, float *dst, const void *src,
                       accel_dtype_t type, int64_t rows, int64_t cols);

    /* y = act(x) */
    void (*act)(const struct backend *be, void *y, const void *x, accel_dtype_t type,
                int64_t n, accel_activation_t act);
    /* dx (+)= dy * act'(pre). For RELU, `pre` may also be the activation's result. */
    void (*act_grad)(const struct backend *be, void *dx, bool add, const void *dy,
                     const void *pre, accel_dtype_t type, int64_t n,
                     accel_activation_t act);
    /* y = act(gate) * up */
    void (*gated)(const struct backend *be, void *y, const void *gate, const void *up,
                  accel_dtype_t type, int64_t n, accel_activation_t act);
    /* dgate (+)= dy * up * act'(gate), dup (+)= dy * act(gate). Either may be NULL;
     * they must not be the same array. */
    void (*gated_grad)(const struct backend *be, void *dgate, bool add_gate, void *dup,
                       bool add_up, const void *dy, const void *gate, const void *up,
                       accel_dtype_t type, int64_t n, accel_activation_t act);
    /* y (+)= x * mask, in forward and backward alike */
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
    /* x [a][b][c] = dim[3]: y[a,c] = scale * sum over b; dx[a,b,c] (+)= scale * dy[a,c]
     */
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

    /* Scratch is memory that the caller hands in: bytes, from the shape alone.
     * `backward` asks for conv_grad's. */
    size_t (*conv_scratch)(const struct backend *be, const struct conv *p,
                           bool backward);
    void (*conv)(const struct backend *be, const struct conv *p,
                 const struct conv_forward *f, void *scratch);
    void (*conv_grad)(const struct backend *be, const struct conv *p,
                      const struct conv_backward *b, void *scratch);
    /* where[i]: the element of its plane that y[i] was taken from; backward reads it */
    void (*maxpool)(const struct backend *be, const struct pool *p, void *y,
                    int32_t *where, const void *x);
    size_t (*maxpool_scratch)(const struct backend *be, const struct pool *p);
    /* dx (+)= dy at the places of the maxima */
    void (*maxpool_grad)(const struct backend *be, const struct pool *p, void *dx,
                         bool add, const void *dy, const int32_t *where, void *scratch);

    /* out[r,:] = table[ids[r],:] + positions[r % time,:]. Returns the first r whose id
     * is not in [0, vocab), or -1; a device returns -1 and reports it in sync. */
    int64_t (*embed)(const struct backend *be, void *out, const int32_t *ids,
                     const void *table, const void *positions, accel_dtype_t type,
                     int64_t rows, int64_t time, int64_t vocab, int64_t cols);
    /* Adds into dtable and dpositions; either may be NULL. */
    void (*embed_grad)(const struct backend *be, float *dtable, float *dpositions,
                       const int32_t *ids, const void *dy, accel_dtype_t type,
                       int64_t rows, int64_t time, int64_t cols);

    /* stats[2*rows]: mean (0 when rms) and 1 / deviation of each row, kept for the
     * backward. `bias` may be NULL. */
    void (*norm)(const struct backend *be, const struct norm *p, void *y, float *stats,
                 const void *x, const void *gain, const void *bias);
    void (*norm_grad)(const struct backend *be, const struct norm *p, void *dx,
                      bool add, const void *dy, const void *x, const float *stats,
                      const void *gain);
    /* Adds into dgain and dbias; either may be NULL. */
    void (*norm_param_grad)(const struct backend *be, const struct norm *p,
                            float *dgain, float *dbias, const void *dy, const void *x,
                            const float *stats);

    /* Rotates each pair (i, i + head_width / 2) by its angle; `back` rotates the other
     * way, which is the backward. */
    void (*rope)(const struct backend *be, void *dst, const void *src,
                 const struct rope *p, bool back, bool add);
    /* Copies the values of [batch, rows, count] heads of `width`; to.add is ignored. A
     * KV cache is filled this way. */
    void (*copy_heads)(const struct backend *be, struct heads_out to, struct heads from,
                       accel_dtype_t type, int64_t batch, int64_t rows, int64_t count,
                       int64_t width);
    /* Bytes of scratch. Reads the shapes and dropout of `p`; its pointers need not be
     * set. */
    size_t (*attention_scratch)(const struct backend *be, const struct attention *p,
                                bool backward);
    /* out [batch, queries, heads * head_width], zero for a query that sees no key.
     * lse[batch, heads, queries]: log-sum-exp of each row of scores, for the backward;
     * infinity for a query that sees no key. */
    void (*attention)(const struct backend *be, const struct attention *p, void *out,
                      float *lse, void *scratch);
    /* dq, dk and dv may be one tensor: they are written in this order. */
    void (*attention_grad)(const struct backend *be, const struct attention *p,
                           const struct attention_grads *grads, void *scratch);

    /* One chunk of rows: writes lse[r] and loss[r] (0 where the target does not count).
     * Returns the first row whose target is >= vocab, or -1; a device reports it as
     * embed does. */
    int64_t (*xent)(const struct backend *be, const struct xent *o, float *lse,
                    float *loss, const float *logits, const int32_t *targets,
                    int64_t rows, int64_t vocab);
    /* mean[0] = sum of loss / count; count[0] = number of targets that count. If there
     * are none, the mean is 0. */
    void (*xent_mean)(const struct backend *be, const struct xent *o, float *mean,
                      float *count, const float *loss, const int32_t *targets,
                      int64_t rows);
    /* In place: logits -> d(mean)/d(logits) * dmean[0], stored as `type`. Each row
     * starts where its row of logits started. */
    void (*xent_grad)(const struct backend *be, const struct xent *o, float *logits,
                      accel_dtype_t type, const float *lse, const float *count,
                      const float *dmean, const int32_t *targets, int64_t rows,
                      int64_t vocab);
};

/* Opens the CPU backend: OpenMP with `threads` threads (0: as many as OpenMP would
 * use), every BLAS call single-threaded. The caller closes it with backend_close, as
 * with all opens below. */
accel_status_t backend_cpu_open(struct backend **backend_out, int threads,
                                accel_error_t *err);
/* Opens a backend whose kernels do nothing, with the scratch sizes of `like`. The same
 * forward and backward on a counting arena gives the peak. `like` must outlive it. */
accel_status_t backend_meta_open(struct backend **backend_out,
                                 const struct backend *like, accel_error_t *err);
/* Opens a backend without kernels, only with the scratch sizes of the CPU backend with
 * `threads` >= 1 threads: the `like` of a meta backend where nothing is computed. */
accel_status_t backend_cpu_sizes_open(struct backend **backend_out, int threads,
                                      accel_error_t *err);
/* The same for the CUDA backend. */
accel_status_t backend_cuda_sizes_open(struct backend **backend_out,
                                       accel_error_t *err);
/* Fills in queues, events and late errors for a backend that has none. */
void backend_no_queues(struct backend *be);
void backend_close(struct backend *be); /* NULL is fine */

#endif
