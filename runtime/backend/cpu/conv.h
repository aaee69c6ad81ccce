/* SPDX-License-Identifier: Apache-2.0
 *
 * How a convolution is cut into products, and the scratch that this needs. Both follow
 * from the shape alone, so results do not depend on the number of threads.
 */
#ifndef ACCEL_BACKEND_CPU_CONV_H
#define ACCEL_BACKEND_CPU_CONV_H

#include "backend/cpu/cpu.h"
#include "backend/operands.h"

/* Elements of one matrix of columns; 512 KiB, which leaves room in L2. */
#define CONV_FLOATS ((int64_t)128 << 10)
/* Elements of all partial weight gradients together; exceeded if two of them need
 * more. */
#define CONV_PARTIAL ((int64_t)4 << 20)

/* A place is a position (row, column) of y; a tap is a position in the kernel. */
struct conv_plan {
    int64_t taps;               /* per channel: kernel_h * kernel_w */
    int64_t depth;              /* inner length of the product: channels * taps */
    int64_t places;             /* out_h * out_w */
    int64_t chunk;              /* places per chunk */
    int64_t chunks;             /* chunks per image */
    int64_t channels;           /* channels per task in the gradient of x */
    int64_t step;               /* places per pass in the gradient of x */
    int64_t groups;             /* number of partial sums of the weight gradient */
    int64_t weights;            /* outputs * depth */
    int64_t per_thread, shared; /* scratch in floats: of one thread, of all */
};

/* v within [low, high]; `low` wins if the two cross. */
static inline int64_t conv_clamp(int64_t v, int64_t low, int64_t high)
{
    v = v > high ? high : v;
    return v < low ? low : v;
}

/* At least two groups of partial sums and at most 16: the cut must not depend on the
 * number of threads, so it is chosen for the shapes alone. */
static inline struct conv_plan conv_plan_of(const struct conv *p, bool backward)
{
    struct conv_plan c = { .taps = p->kernel_h * p->kernel_w,
                           .places = p->out_h * p->out_w };
    bool widen = p->type != ACCEL_F32;
    int64_t gradient, input;

    c.depth = p->channels * c.taps;
    c.weights = p->outputs * c.depth;
    /* whole panels of the product */
    c.chunk = conv_clamp(CONV_FLOATS / c.depth / 32 * 32, 32, 2048);
    c.chunk = conv_clamp(c.chunk, 1, c.places > 0 ? c.places : 1);
    c.chunks = (c.places + c.chunk - 1) / c.chunk;
    c.step = conv_clamp(c.places, 1, 512);
    c.channels = conv_clamp(CONV_FLOATS / (c.taps * c.step), 1, CPU_KEPT_ROWS / c.taps);
    c.channels = conv_clamp(c.channels, 1, p->channels);
    c.groups = conv_clamp(CONV_PARTIAL / c.weights, 2, 16);
    c.groups = conv_clamp(c.groups, 1, p->batch * c.chunks);
    c.shared = (widen ? c.weights : 0) + (backward ? c.groups * c.weights : 0);
    /* columns and, unless the result or gradient is read in place, its panel */
    gradient = (c.depth + (widen ? p->outputs : 0)) * c.chunk;
    input = (c.channels * c.taps + (widen ? p->outputs : 0)) * c.step +
            c.channels * p->height * p->width;
    c.per_thread = backward && input > gradient ? input : gradient;
    return c;
}

#endif
