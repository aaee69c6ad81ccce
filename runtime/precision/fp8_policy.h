/* SPDX-License-Identifier: Apache-2.0
 *
 * How linears of a run multiply in fp8. In: the config. Out: the recipe. Which ones
 * do says module_policy.h.
 */
#ifndef ACCEL_PRECISION_FP8_POLICY_H
#define ACCEL_PRECISION_FP8_POLICY_H

#include "config/config.h"
#include "precision/fp8.h"

/* Sizes of a weight that is narrowed are multiples of this: what tensor cores take. */
#define FP8_MULTIPLE 16

/* Of a config with mixed_precision fp8. */
struct fp8_recipe fp8_recipe_of(const struct config *cfg);
/* The word of accel.precision.fp8_recipe; static. */
const char *fp8_recipe_word(const struct fp8_recipe *r);

#endif
