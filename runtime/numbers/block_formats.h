/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules by which numbers that share a scale (numbers/scaled.h) are rounded: rows of
 * the table in block_formats.c, which also has the blocks of the wire.
 */
#ifndef ACCEL_NUMBERS_BLOCK_FORMATS_H
#define ACCEL_NUMBERS_BLOCK_FORMATS_H

#include "numbers/moments.h"
#include "numbers/scaled.h"

enum scaled_rule {
    SCALED_NEAREST,   /* float16, e4m3, and on the wire e5m2 */
    SCALED_SQUARES,   /* float16, nearest; a square above 0 keeps a code above 0 */
    SCALED_MASTERS,   /* float16, stochastic, by a key of master_key_of */
    SCALED_STATE,     /* stochastic: averages in e4m3, those of squares in float16 */
    SCALED_GRADIENTS, /* e4m3, stochastic; key.low: how many micro-batches the sum has */
};

/* n numbers from the start of a block; src[0] is element `first`, a multiple of 32, of
 * what the draws count. One thread, no overlap. */
void scaled_narrow_by(struct scaled dst, const float *src, int64_t n,
                      enum scaled_rule rule, struct moment_key key, int64_t first);

#endif
