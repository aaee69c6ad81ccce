/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels that ops, optimizers and collectives are made of: one row per kernel.
 * Each is a member of struct backend, called as be->NAME(be, ...). Whoever includes
 * this list first defines what a row becomes:
 *
 *   KERNEL(type, name, ...)  the result's type, the name, the parameters after `be`
 *
 * A new kernel is a row here, cpu_NAME in cpu/ and cuda_NAME in cuda/. The meta
 * backend gets its empty body from the row.
 *
 * "type" is the storage, ACCEL_F32, ACCEL_BF16 or ACCEL_F16 (plain, not the blocks of
 * numbers/wire.h) unless the row says more. Arithmetic is float32 whatever the storage,
 * and a result is rounded once, to nearest even; beyond float16's range it becomes
 * infinity. The bits of a result depend on the shapes and on whether bfloat16 is
 * multiplied in pairs, never on the number of threads. "(+)=" is written or, with
 * `add`, added to. Sizes are in elements, matrices are row-major and without gaps
 * unless a row says otherwise; operands.h has the structs.
 */

/* ---- filling and converting: arrays of n elements -------------------------------- */

/* dst[n] = value */
KERNEL(void, fill, void *dst, accel_dtype_t type, int64_t n, float value)
/* `bytes` bytes of zero, whatever the type */
KERNEL(void, zero, void *dst, size_t bytes)
/* float32 -> type, a narrow one; dst may be src itself. */
KERNEL(void, narrow, void *dst, accel_dtype_t type, const float *src, int64_t n)
/* src[count][n] float32 -> `count` adjacent arrays of n numbers of a scaled wire type
 * (numbers/wire.h). dst may be src itself when n is a multiple of 32; dst is aligned to
 * 4 bytes. */
KERNEL(void, narrow_parts, void *dst, accel_dtype_t type, const float *src, int count,
       int64_t n)
/* type, a narrow one -> float32; no overlap. */
KERNEL(void, widen, float *dst, const void *src, accel_dtype_t type, int64_t n)
/* dst[n] (+)= src[n], rounded; src of any dtype, dst of a storage type */
KERNEL(void, cast, void *dst, accel_dtype_t dst_type, bool add, const void *src,
       accel_dtype_t src_type, int64_t n)

/* dst[n] = src[n] * scale[0] as `to`, e4m3 or e5m2: rounded to nearest even; beyond the
 * largest number it becomes that; NaN stays NaN. amax[0] becomes the largest magnitude
 * in src, if that is larger; NaN does not count. Either may be NULL: not wanted. */
KERNEL(void, quantize, void *dst, accel_dtype_t to, const void *src, accel_dtype_t type,
       int64_t n, const float *scale, float *amax)

/* The same for src [rows, cols], and its transpose: transposed [cols, narrow_ld(rows)],
 * with zeros after the last row. Only dst may be NULL. src may be codes of type `to`,
 * which are transposed as they are; dst, scale and amax are NULL then. */
KERNEL(void, quantize_transposed, void *dst, void *transposed, accel_dtype_t to,
       const void *src, accel_dtype_t type, int64_t rows, int64_t cols,
       const float *scale, float *amax)

/* The matrix src [rows, cols] as `to`, e4m3 or e5m2, in blocks, as up to two copies:
 * dst[i] with s[i], NULL: not wanted. Makes the scale of each block from its largest
 * magnitude (numbers/fp8_blocks.h; NaN does not count), stores its inverse in s[i]
 * and the scaled numbers in dst[i], rounded as by quantize. Only blocks that fp8_blocks
 * has. */
KERNEL(void, quantize_blocks, void *const dst[2], accel_dtype_t to, const void *src,
       accel_dtype_t type, int64_t rows, const struct block_scales s[2])

/* scale[0] = that of a tensor whose largest magnitude is amax[0], for `to` (current
 * scaling, precision/fp8.h), 1 where that is 0 or infinite; `power`: rounded down to a
 * power of two. scale[1] = 1 / scale[0] */
KERNEL(void, scale_of, float *scale, accel_dtype_t to, bool power, const float *amax)

/* ---- gradients and parameters: float32, n elements ------------------------------- */

/* x[n] *= by */
KERNEL(void, scale, float *x, int64_t n, float by)
/* x[n] brought into [-limit, limit]; NaN stays NaN */
KERNEL(void, clamp, float *x, int64_t n, float limit)
/* x[n] = keep * x + take * y: moving averages of weights; no overlap */
KERNEL(void, blend, float *x, const float *y, int64_t n, float keep, float take)
/* sum_out[0] = sum of the squares of all elements of x[count], in an order that depends
 * on the lengths only. sum_out is memory of host_alloc, which a device writes when it
 * comes to it: read it after sync. */
KERNEL(void, sumsq, double *sum_out, const struct span *x, int count)
/* out[n] = (accumulate ? out : 0) + scale * (parts[0] + parts[1] + ... in this order),
 * summed in float32. `parts` holds [count] arrays of n numbers in wire format
 * (numbers/wire.h) and must not overlap out. `first`: a sum that parts[0] is added to,
 * or NULL; it may be out. */
KERNEL(void, sum_parts, float *out, bool accumulate, const float *first,
       const void *parts, accel_dtype_t type, int count, int64_t n, float scale)
/* One step of the optimizer (formulas in maths.h), in place over x[count]; zeroes the
 * gradients. The ranges must not overlap. All of k[] have one kind, all moments one
 * type, and with SGD, whose momentum is float32, all ranges have one or none; all
 * parameters have one type. */
KERNEL(void, update, const struct update_span *x, int count, const struct optim_step *k)
/* n 8-bit moments, from the start of a block, to float32 and back, to the nearest.
 * `positive`: they are averages of squares. No overlap. */
KERNEL(void, moments_widen, float *dst, struct moments src, bool positive, int64_t n)
KERNEL(void, moments_narrow, struct moments dst, const float *src, bool positive,
       int64_t n)
/* n numbers of an array with scales (numbers/scaled.h), from the start of a block, as
 * `type`, a storage type; and float32 to that form, to the nearest. `squares`: one
 * above 0 keeps a code above 0, since the optimizer divides by it. No overlap. */
KERNEL(void, scaled_widen, void *dst, accel_dtype_t type, struct scaled src, int64_t n)
KERNEL(void, scaled_narrow, struct scaled dst, const float *src, int64_t n,
       bool squares)
/* The same to e4m3 by stochastic rounding, of gradients that are the sum of `sums`
 * micro-batches. first: the number of src[0] in its unit, a multiple of 32
 * (gradient_code in moments.h). */
KERNEL(void, scaled_narrow_sum, struct scaled dst, const float *src, int64_t n,
       int64_t first, uint32_t sums)

/* ---- elements: arrays of n of one type ------------------------------------------- */

/* dst = a + b; dst may be a or b. */
KERNEL(void, add, void *dst, const void *a, const void *b, accel_dtype_t type,
       int64_t n)
/* y = act(x). `narrow`, here and below: y in fp8, too; NULL: not wanted. */
KERNEL(void, act, void *y, const void *x, accel_dtype_t type, int64_t n,
       accel_activation_t act, const struct narrow_copy *narrow)
/* dx (+)= dy * act'(pre). For RELU, `pre` may also be the activation's result. */
KERNEL(void, act_grad, void *dx, bool add, const void *dy, const void *pre,
       accel_dtype_t type, int64_t n, accel_activation_t act)
/* y = act(gate) * up */
KERNEL(void, gated, void *y, const void *gate, const void *up, accel_dtype_t type,
       int64_t n, accel_activation_t act, const struct narrow_copy *narrow)
/* dgate (+)= dy * up * act'(gate), dup (+)= dy * act(gate). Either may be NULL; they
 * must not be the same array. */
KERNEL(void, gated_grad, void *dgate, bool add_gate, void *dup, bool add_up,
       const void *dy, const void *gate, const void *up, accel_dtype_t type, int64_t n,
       accel_activation_t act)
/* y (+)= by * x, in forward and backward alike */
KERNEL(void, multiply, void *y, bool add, const void *x, accel_dtype_t type, int64_t n,
       float by)
/* y (+)= x * mask, in forward and backward alike */
KERNEL(void, dropout, void *y, bool add, const void *x, accel_dtype_t type, int64_t n,
       const struct mask *mask)

/* ---- moving ---------------------------------------------------------------------- */

/* dst[r,c] (+)= src[r,c] for [rows, cols], with strides in elements. Any dtype; add:
 * storage types only. */
KERNEL(void, copy_rows, void *dst, int64_t dst_stride, bool add, const void *src,
       int64_t src_stride, accel_dtype_t type, int64_t rows, int64_t cols)
/* src [a][b][c][d][e] = dim[5] -> dst [a][d][c][b][e]; dtypes as copy_rows. */
KERNEL(void, transpose, void *dst, bool add, const void *src, accel_dtype_t type,
       const int64_t dim[5])
/* Copies the values of [batch, rows, count] heads of `width` from from[i] to to[i],
 * both i; add is ignored. The two of a side have equal strides: keys and values enter a
 * KV cache this way. */
KERNEL(void, copy_heads, const struct heads_out to[2], const struct heads from[2],
       accel_dtype_t type, int64_t batch, int64_t rows, int64_t count, int64_t width)

/* ---- products and convolutions --------------------------------------------------- */

/* c[m,n] (+)= act(op(a) op(b) + bias), and two forms of the backward; see struct gemm.
 */
KERNEL(void, gemm, const struct gemm *p)
/* dst[c] += sum over r of src[r,c], src [rows, cols] with rows `ld` apart; dst is
 * always float32. See settle. */
KERNEL(void, column_sum, float *dst, const void *src, accel_dtype_t type, int64_t rows,
       int64_t cols, int64_t ld)
/* y [batch, outputs, out_h, out_w]; see struct conv. `scratch`: conv_scratch bytes. */
KERNEL(void, conv, const struct conv *p, const struct conv_forward *f, void *scratch)
/* dx in type, dweight and dbias in float32; see struct conv_backward. */
KERNEL(void, conv_grad, const struct conv *p, const struct conv_backward *b,
       void *scratch)
/* y [planes, out_h, out_w] of x [planes, height, width]. where[i]: the element of its
 * plane that y[i] was taken from; the backward reads it. */
KERNEL(void, maxpool, const struct pool *p, void *y, int32_t *where, const void *x)
/* dx (+)= dy at the places of the maxima. `scratch`: maxpool_scratch bytes. */
KERNEL(void, maxpool_grad, const struct pool *p, void *dx, bool add, const void *dy,
       const int32_t *where, void *scratch)

/* ---- rows ------------------------------------------------------------------------ */

/* y = softmax of each row of x, both [rows, cols] */
KERNEL(void, softmax, void *y, const void *x, accel_dtype_t type, int64_t rows,
       int64_t cols)
/* dx (+)= (dy - sum over the row of dy y) y */
KERNEL(void, softmax_grad, void *dx, bool add, const void *dy, const void *y,
       accel_dtype_t type, int64_t rows, int64_t cols)
/* y [rows, cols] of x [rows, cols], gain and bias [cols]. stats[2 * rows]: mean (0 when
 * rms) and 1 / deviation of each row, kept for the backward. `bias` may be NULL. */
KERNEL(void, norm, const struct norm *p, void *y, float *stats, const void *x,
       const void *gain, const void *bias, const struct narrow_copy *narrow)
/* sum = a + b, and y and stats as norm makes them of sum; bits as add and norm. sum and
 * y are neither a nor b. */
KERNEL(void, add_norm, const struct norm *p, void *sum, void *y, float *stats,
       const void *a, const void *b, const void *gain, const void *bias,
       const struct narrow_copy *narrow)
/* dx (+)= the gradient by x; dgain[cols] +=, dbias[cols] +=, see settle. Any of the
 * three may be NULL. */
KERNEL(void, norm_grad, const struct norm *p, void *dx, bool add, float *dgain,
       float *dbias, const void *dy, const void *x, const float *stats,
       const void *gain)
/* x [a][b][c] = dim[3]: y[a,c] = scale * sum over b */
KERNEL(void, reduce, void *y, accel_dtype_t y_type, const void *x, accel_dtype_t type,
       const int64_t dim[3], float scale)
/* dx[a,b,c] (+)= scale * dy[a,c] */
KERNEL(void, reduce_grad, void *dx, accel_dtype_t type, bool add, const void *dy,
       accel_dtype_t dy_type, const int64_t dim[3], float scale)

/* ---- attention ------------------------------------------------------------------- */

/* Rotates each pair (i, i + head_width / 2) of every head by its angle; `back` rotates
 * the other way, which is the backward. dst (+)=. */
KERNEL(void, rope, void *dst, const void *src, const struct rope *p, bool back,
       bool add)
/* out [batch, queries, heads * head_width] of q, k and v in struct attention: zero for
 * a query that sees no key. lse[batch, heads, queries]: log-sum-exp of each row of
 * scores, for the backward; infinity for a query that sees no key. */
KERNEL(void, attention, const struct attention *p, void *out, float *lse, void *scratch)
/* dq, dk and dv may be one tensor: they are written in this order. */
KERNEL(void, attention_grad, const struct attention *p,
       const struct attention_grads *grads, void *scratch)

/* ---- ids and losses -------------------------------------------------------------- */

/* out[r,:] = table[ids[r],:] + positions[r % time,:] for [rows, cols]; table
 * [vocab, cols], positions [time, cols] or NULL. Returns the first r whose id is not in
 * [0, vocab), or -1; a device returns -1 and reports it in sync. */
KERNEL(int64_t, embed, void *out, const int32_t *ids, const void *table,
       const void *positions, accel_dtype_t type, int64_t rows, int64_t time,
       int64_t vocab, int64_t cols)
/* Adds dy [rows, cols] into dtable and dpositions; either may be NULL. */
KERNEL(void, embed_grad, float *dtable, float *dpositions, const int32_t *ids,
       const void *dy, accel_dtype_t type, int64_t rows, int64_t time, int64_t cols)
/* One chunk of logits [rows, vocab], rows `ld` apart, of which nothing from vocab on is
 * read: writes lse[r] and loss[r] (0 where the target does not count). Returns the
 * first row whose target is >= vocab, or -1; a device reports it as embed does, counted
 * from the batch's first row. */
KERNEL(int64_t, xent, const struct xent *o, float *lse, float *loss,
       const float *logits, const int32_t *targets, int64_t rows, int64_t vocab,
       int64_t ld)
/* mean[0] = sum of loss / count; count[0] = number of targets that count. If there are
 * none, the mean is 0. */
KERNEL(void, xent_mean, const struct xent *o, float *mean, float *count,
       const float *loss, const int32_t *targets, int64_t rows)
/* In place: logits -> d(mean)/d(logits) * dmean[0], stored as `type`. Each row starts
 * where its row of logits started; float32 rows are zero from vocab to ld. */
KERNEL(void, xent_grad, const struct xent *o, float *logits, accel_dtype_t type,
       const float *lse, const float *count, const float *dmean, const int32_t *targets,
       int64_t rows, int64_t vocab, int64_t ld)
/* mean[0] = mean of the loss of each pair x[i], y[i] (maths_pair), 0 when n is 0 */
KERNEL(void, pair_loss, float *mean, enum pair_loss loss, const void *x,
       accel_dtype_t x_type, const void *y, accel_dtype_t y_type, int64_t n)
/* d[n] (+)= dmean[0] / n times the derivative of the pair's loss by x, or `by_y`, whose
 * type d has */
KERNEL(void, pair_loss_grad, void *d, bool add, bool by_y, enum pair_loss loss,
       const void *x, accel_dtype_t x_type, const void *y, accel_dtype_t y_type,
       const float *dmean, int64_t n)
/* Rows of logits x and targets y, both [rows, cols]: lse[r] = log-sum-exp of x, loss[r]
 * = sum of y (lse - x) */
KERNEL(void, soft_xent, float *lse, float *loss, const void *x, const void *y,
       accel_dtype_t type, int64_t rows, int64_t cols)
/* d (+)= dmean[0] / rows times the derivative of a row's loss: by x (the sum of y times
 * exp(x - lse), less y) or `by_y` (lse - x) */
KERNEL(void, soft_xent_grad, void *d, bool add, bool by_y, const void *x, const void *y,
       accel_dtype_t type, const float *lse, const float *dmean, int64_t rows,
       int64_t cols)

#undef KERNEL
