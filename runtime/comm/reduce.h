/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions over the ranks' arrays, always in rank order, so that every backend
 * gives the same bits. Element i of the result depends only on element i of the
 * sources, so an array may be cut into chunks anywhere (for scaled types: between
 * blocks of the wire).
 */
#ifndef ACCEL_COMM_REDUCE_H
#define ACCEL_COMM_REDUCE_H

#include "comm/comm.h"

/* out = (accumulate ? out : 0) + scale * (src[0] + src[1] + ...), summed in float32.
 * src[n]: elems numbers each, laid out as t is on the wire (numbers/wire.h), starting
 * at a block; out[elems] must not overlap them. */
void reduce_scaled_sum(float *out, const void *const *src, int n, size_t elems,
                       accel_dtype_t t, float scale, bool accumulate);

/* out = (first +) src[0] + src[1] + ..., in float32; out may be first. first may be
 * NULL; otherwise as above. */
void reduce_go_on(float *out, const float *first, const void *const *src, int n,
                  size_t elems, accel_dtype_t t);

/* out[elems] = op over src[n][elems], all of type t (float32, bfloat16 through float32,
 * float64, int64; sums of int64 wrap). A NaN in any source of MAX or MIN gives NaN. out
 * may be one of the sources. */
void reduce_op(void *out, const void *const *src, int n, size_t elems, accel_dtype_t t,
               enum comm_op op);

/* First element of rank r's slice when `elems` elements are cut among n ranks; the
 * slice ends where that of r + 1 begins. Cuts fall on multiples of 64 elements, so that
 * no two ranks write one cache line. */
size_t reduce_slice_begin(size_t elems, int n, int r);

#endif
