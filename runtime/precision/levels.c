/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of the levels of precision, and what each sets in a config:
 * mixed_precision with fp8's recipe and, after a plus each, accel.precision.moments,
 * masters and gradients; those of MS-AMP and torchao by their names.
 */
#include "precision/levels.h"

#include "config/read/document.h"

#define LEVEL(name, mixed, recipe, moments, masters, gradients)                        \
    {                                                                                  \
        name, PRECISION_##mixed, recipe, MOMENTS_##moments, MASTERS_##masters,         \
            GRADIENTS_##gradients, WEIGHTS_AUTO, REDUCE_AUTO, NULL                     \
    }

/* What fp8_backend MSAMP implies with an opt_level. */
#define MSAMP(name, moments, weights)                                                  \
    {                                                                                  \
        name, PRECISION_FP8, FP8_POWERS, MOMENTS_##moments, MASTERS_FP16,              \
            GRADIENTS_FP8, WEIGHTS_##weights, REDUCE_E4M3, NULL                        \
    }

/* What fp8_backend AO does; it has no recipe of ours. */
#define AO(name, moments)                                                              \
    {                                                                                  \
        name, PRECISION_FP8, 0, MOMENTS_##moments, MASTERS_F32, GRADIENTS_F32,         \
            WEIGHTS_AUTO, REDUCE_AUTO, "AO"                                            \
    }

static const struct precision_level levels[] = {
    LEVEL("no", NO, 0, F32, F32, F32),
    LEVEL("bf16", BF16, 0, F32, F32, F32),
    LEVEL("fp16", FP16, 0, F32, F32, F32),
    LEVEL("fp8", FP8, FP8_DELAYED, F32, F32, F32),
    LEVEL("fp8 current", FP8, FP8_CURRENT, F32, F32, F32),
    LEVEL("fp8 block", FP8, FP8_BLOCK, F32, F32, F32),
    LEVEL("mxfp8", FP8, FP8_MXFP8, F32, F32, F32),
    LEVEL("no+8bit", NO, 0, 8BIT, F32, F32),
    LEVEL("bf16+8bit", BF16, 0, 8BIT, F32, F32),
    LEVEL("fp16+8bit", FP16, 0, 8BIT, F32, F32),
    LEVEL("fp8+8bit", FP8, FP8_DELAYED, 8BIT, F32, F32),
    LEVEL("fp8 current+8bit", FP8, FP8_CURRENT, 8BIT, F32, F32),
    LEVEL("fp8 block+8bit", FP8, FP8_BLOCK, 8BIT, F32, F32),
    LEVEL("mxfp8+8bit", FP8, FP8_MXFP8, 8BIT, F32, F32),
    LEVEL("bf16+masters-bf16", BF16, 0, F32, BF16, F32),
    LEVEL("bf16+masters-none", BF16, 0, F32, NONE, F32),
    LEVEL("bf16+masters-fp16", BF16, 0, F32, FP16, F32),
    LEVEL("bf16+8bit+masters-bf16", BF16, 0, 8BIT, BF16, F32),
    LEVEL("bf16+8bit+masters-none", BF16, 0, 8BIT, NONE, F32),
    LEVEL("bf16+8bit+masters-fp16", BF16, 0, 8BIT, FP16, F32),
    LEVEL("fp8+masters-bf16", FP8, FP8_DELAYED, F32, BF16, F32),
    LEVEL("fp8+masters-none", FP8, FP8_DELAYED, F32, NONE, F32),
    LEVEL("fp8+masters-fp16", FP8, FP8_DELAYED, F32, FP16, F32),
    LEVEL("fp8+8bit+masters-bf16", FP8, FP8_DELAYED, 8BIT, BF16, F32),
    LEVEL("fp8+8bit+masters-none", FP8, FP8_DELAYED, 8BIT, NONE, F32),
    LEVEL("fp8+8bit+masters-fp16", FP8, FP8_DELAYED, 8BIT, FP16, F32),
    LEVEL("bf16+gradients-fp8", BF16, 0, F32, F32, FP8),
    LEVEL("bf16+masters-fp16+gradients-fp8", BF16, 0, F32, FP16, FP8),
    LEVEL("bf16+8bit+masters-fp16+gradients-fp8", BF16, 0, 8BIT, FP16, FP8),
    LEVEL("fp8+gradients-fp8", FP8, FP8_DELAYED, F32, F32, FP8),
    LEVEL("fp8+masters-fp16+gradients-fp8", FP8, FP8_DELAYED, F32, FP16, FP8),
    LEVEL("fp8+8bit+masters-fp16+gradients-fp8", FP8, FP8_DELAYED, 8BIT, FP16, FP8),
    MSAMP("MSAMP O1", F32, AUTO),
    MSAMP("MSAMP O2", FP8, AUTO),
    MSAMP("MSAMP O3", FP8, FP8),
    AO("fp8 AO", F32),
    AO("fp8 AO+8bit", 8BIT),
};

const struct precision_level *precision_level_at(int i)
{
    return i < (int)ACCEL_ARRAY_SIZE(levels) ? &levels[i] : NULL;
}

bool precision_level_is(const struct precision_level *level, const struct config *cfg)
{
    return cfg->mixed_precision == level->mixed && cfg->moments == level->moments &&
           cfg->masters == level->masters && cfg->gradients == level->gradients &&
           cfg->weights == level->weights &&
           (level->reduce == REDUCE_AUTO || cfg->reduce == level->reduce) &&
           (level->backend != NULL) == config_fp8_is_ao(cfg) &&
           (level->mixed != PRECISION_FP8 || level->backend ||
            cfg->fp8_recipe == level->recipe);
}

/* The backend has no field in the config. */
static bool set_backend(struct config *cfg, const char *name)
{
    const int row = config_row("fp8_backend");
    size_t n;

    if (name)
        return value_set(cfg, &config_schema(&n)[row], name) == VALUE_OK;
    cfg->given_at[row] = 0;
    return true;
}

/* The wire of MS-AMP's levels is no choice of the user. */
bool precision_level_set(const struct precision_level *level, struct config *cfg)
{
    if (config_fp8_is_msamp(cfg) && cfg->reduce == REDUCE_E4M3)
        cfg->reduce = REDUCE_AUTO;
    cfg->mixed_precision = level->mixed;
    cfg->fp8_recipe = level->mixed == PRECISION_FP8 ? level->recipe : cfg->fp8_recipe;
    cfg->moments = level->moments;
    cfg->masters = level->masters;
    cfg->gradients = level->gradients;
    cfg->weights = level->weights;
    cfg->reduce = level->reduce != REDUCE_AUTO ? level->reduce : cfg->reduce;
    return set_backend(cfg, level->backend);
}
