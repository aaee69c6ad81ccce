/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of 8-bit floats with scales, as Transformer Engine has them: which format
 * each tensor of a linear has, and its scale, which follows the largest magnitudes of
 * the last steps (delayed scaling) or is made from the tensor itself (current scaling).
 * In: largest magnitudes. Out: scales. Numbers only: who narrows tensors is ops/, and
 * who brings the ranks together is run/.
 */
#ifndef ACCEL_PRECISION_FP8_H
#define ACCEL_PRECISION_FP8_H

#include "common/common.h"
#include "numbers/fp8_blocks.h"

struct fp8_recipe {
    /* Scales are made from the tensors themselves: what is said of steps below has no
     * meaning, and nothing of the state is used. */
    bool current;
    /* other than FP8_NO_BLOCKS: `current` holds, with a scale per block */
    enum fp8_blocks blocks;
    accel_dtype_t type[FP8_TENSORS]; /* ACCEL_F8E4M3 or ACCEL_F8E5M2 */
    /* `current` holds, and scales are rounded down to powers of two */
    bool powers;
    /* powers of two that are left above the largest magnitude */
    int margin;
    /* steps between two changes of a scale, and those that are looked back on */
    int64_t interval, history;
    /* the last step alone sets the scale; else the largest of the history */
    bool most_recent;
    /* products that stay in the compute dtype */
    bool wide[FP8_PRODUCTS];
    /* forwards of evaluations narrow, too */
    bool evaluation;
};

/* A tensor's scale as kernels have it, and the largest magnitude that the step in
 * progress has seen. */
struct fp8_live {
    float scale, inverse, amax;
};

/* The scales of one linear, by its weight. */
struct fp8_linear {
    const struct fp8_recipe *recipe;
    /* [FP8_TENSORS][1 + history]: a scale, by which the tensor is multiplied before it
     * is narrowed, and its history. Place 0 of that is for what the step that ends has
     * seen; the others are earlier steps, the last one at the end. 0: none. */
    float *state;
    /* [FP8_TENSORS], in the memory of the backend; only kernels look there */
    struct fp8_live *live;
    /* 1 / scale */
    float inverse[FP8_TENSORS];
    /* The inputs that the step in progress has noted, by the number of the last one:
     * linears with the same number have noted the same, and have one amax. 0: none */
    uint64_t seen;
    /* The weight in fp8, which all products take until weights or scales change: as
     * it is, and for sums over its rows where these take another copy. kept_bytes 0:
     * each product makes its own. */
    int64_t kept_bytes[2];
    void *kept[2];
    /* the weights that they were made of (residency.changed) and 1; 0: none */
    uint64_t kept_of;
};

static inline float *fp8_scale(const struct fp8_linear *l, enum fp8_tensor t)
{
    return l->state + t * (1 + l->recipe->history);
}

static inline float *fp8_history(const struct fp8_linear *l, enum fp8_tensor t)
{
    return fp8_scale(l, t) + 1;
}

/* A scale of 1 for each tensor, and empty histories. */
void fp8_begin(struct fp8_linear *l);
/* At the end of a step: the histories of tensors that the step has seen move on by a
 * place. `due`: scales follow. */
void fp8_update(struct fp8_linear *l, bool due);
/* Writes what kernels are to find: [FP8_TENSORS]. Nothing has been seen yet. */
void fp8_show(const struct fp8_linear *l, struct fp8_live *out);
/* Is the state one that fp8_update can have left? Fills in `inverse` then. */
bool fp8_take(struct fp8_linear *l);

#endif
