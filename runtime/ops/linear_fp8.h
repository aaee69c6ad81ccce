/* SPDX-License-Identifier: Apache-2.0
 *
 * The fp8 operands of a linear. In: tensors in the compute dtype, and the scales
 * of the weight (precision/fp8.h). Out: e4m3 or e5m2, and the largest magnitudes, where
 * the scales of later steps look for them. An evaluation leaves those as they are.
 * Where the backend multiplies only rows by rows, what a product sums over the columns
 * of is transposed.
 */
#ifndef ACCEL_OPS_LINEAR_FP8_H
#define ACCEL_OPS_LINEAR_FP8_H

#include "backend/device.h"
#include "ops/ops.h"
#include "precision/fp8.h"

/* One operand of a product: numbers of `type`, which stand for themselves times
 * inverse[0], or times the inverse scales of their blocks. */
struct factor {
    const void *data;
    accel_dtype_t type;
    const float *inverse; /* NULL: 1 */
    struct block_scales blocks;
    /* [columns, narrow_ld(rows)] */
    bool transposed;
    void *scratch; /* the caller frees it; NULL: none */
};

static inline bool factor_is_narrow(const struct factor *f)
{
    return f->inverse || f->blocks.inverse;
}

/* The fp8 copies of an input, uint8 as long as they take: for this product, and
 * kept for the gradient of the weight. NULL: it takes the input itself. */
struct narrow_input {
    accel_tensor_t *now, *kept;
};

/* Does that product of the weight take 8 bits? */
bool fp8_narrows(const struct graph *g, const accel_tensor_t *w,
                 enum fp8_product product);
/* Linears of the same input and scale share the copies. Where the kernel that makes x
 * waits, it makes them, too; it waits no longer then. A sticky error may leave some
 * out. */
void fp8_input(struct graph *g, accel_tensor_t *x, const accel_tensor_t *w,
               struct narrow_input *out);
/* The input [rows, in] for a product, where x is it or a copy of fp8_input. */
struct factor fp8_taken(const struct graph *g, const accel_tensor_t *w,
                        const accel_tensor_t *x, enum fp8_product product,
                        int64_t rows);
/* Bytes of copy 0 or 1 of a weight (fp8_linear.kept); 0: no product takes it. */
int64_t fp8_weight_bytes(const struct backend *be, const accel_tensor_t *w, int place);
/* The weight, whose gathered values are given, for a product. False: sticky error. */
bool fp8_weight(struct graph *g, const accel_tensor_t *w, enum fp8_product product,
                const void *values, struct factor *out);
/* The gradient of the result of linear `e`, for its two products; zeros where they do
 * not take it in fp8. False: sticky error. */
bool fp8_gradient(struct graph *g, const struct tape_entry *e, const void *values,
                  accel_dtype_t type, struct factor *for_input,
                  struct factor *for_weight);
/* Makes them the operands of p. */
void factors_take(struct gemm *p, const struct factor *a, const struct factor *b);

#endif
