/* SPDX-License-Identifier: Apache-2.0
 *
 * What the machine could do at best: a product in one plain BLAS call with all threads,
 * and the rate of a copy. In: shapes. Out: the best time of a few tries.
 */
#ifndef ACCEL_TESTS_BENCH_FLOOR_H
#define ACCEL_TESTS_BENCH_FLOOR_H

#include "backend/operands.h"

/* The shape of `p` on float32 operands of its own. */
double floor_product_ns(const struct gemm *p, int threads);
/* Bytes read and written per nanosecond, beyond every cache. */
double floor_copy_rate(int threads);

#endif
