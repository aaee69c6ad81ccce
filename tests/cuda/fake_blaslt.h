/* SPDX-License-Identifier: Apache-2.0
 *
 * Between cublasLt's calls and its arithmetic: one product, complete.
 */
#ifndef FAKE_BLASLT_H
#define FAKE_BLASLT_H

#include "include/cublasLt.h"

struct product {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a_layout, b_layout, c_layout, d_layout;
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
};

/* Whether it could be done at all; pointers are not looked at. */
cublasStatus_t fake_product_check(const struct product *p);
void fake_product(const struct product *p);
/* Bytes of the scales of an operand with `lines` lines of k numbers, gaps included. */
int64_t fake_scale_bytes(int32_t mode, int64_t k, int64_t lines);

#endif
