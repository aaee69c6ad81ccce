/* SPDX-License-Identifier: Apache-2.0
 *
 * Which linears of a run multiply in 8 bits, and how. In: the config, names and sizes
 * of weights. Out: the recipe, and an answer per weight. Knows no model.
 */
#ifndef ACCEL_PRECISION_FP8_POLICY_H
#define ACCEL_PRECISION_FP8_POLICY_H

#include "config/config.h"
#include "precision/fp8.h"

/* Sizes of a weight that is narrowed are multiples of this: what tensor cores take. */
#define FP8_MULTIPLE 16

#define MODULE_RULES 16
#define MODULE_GLOB  128

/* accel.precision.modules: the first rule that fits a module counts. */
struct module_rules {
    struct {
        char glob[MODULE_GLOB];
        bool narrow;
        /* modules that it has decided */
        int hits;
    } rule[MODULE_RULES];
    int count;
};

/* Of a config with mixed_precision fp8. */
struct fp8_recipe fp8_recipe_of(const struct config *cfg);
/* The word of accel.precision.fp8_recipe; static. */
const char *fp8_recipe_word(const struct fp8_recipe *r);
/* A0997: the list cannot be read. */
accel_status_t module_rules_read(const struct config *cfg,
                                 struct module_rules *rules_out, accel_error_t *err);
/* Does the weight called `name`, "h.0.mlp.c_fc.weight", multiply in 8 bits? A rule fits
 * by that name or by the module's, "h.0.mlp.c_fc"; without one `otherwise` is the
 * answer, where the sizes [rows, cols] allow it. A0997: a rule asks for what they do
 * not allow. */
accel_status_t module_narrows(struct module_rules *rules, const char *name,
                              int64_t rows, int64_t cols, bool otherwise,
                              bool *narrow_out, accel_error_t *err);
/* After all modules. A0997: a rule has fitted none; `some` is a name, for the hint. */
accel_status_t module_rules_used(const struct module_rules *rules, const char *some,
                                 accel_error_t *err);

#endif
