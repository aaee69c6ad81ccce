/* SPDX-License-Identifier: Apache-2.0
 *
 * The recipe from the keys of Transformer Engine, torchao and MS-AMP.
 */
#include "precision/policy.h"

#include <string.h>

/* torchao's dynamic scaling of whole tensors, which evaluations have as well; with
 * powers of two MS-AMP's: a window of one step, which is the tensor itself. */
static struct fp8_recipe current_recipe(bool powers)
{
    return (struct fp8_recipe){
        .current = true,
        .powers = powers,
        .type = { ACCEL_F8E4M3, ACCEL_F8E4M3, ACCEL_F8E5M2 },
        .interval = 1,
        .most_recent = true,
        .evaluation = true,
    };
}

/* Transformer Engine's, from its keys. */
static struct fp8_recipe te_recipe(const struct config *cfg)
{
    char text[64];
    const enum fp8_blocks blocks = cfg->fp8_recipe == FP8_BLOCK   ? FP8_BLOCKS_128
                                   : cfg->fp8_recipe == FP8_MXFP8 ? FP8_BLOCKS_32
                                                                  : FP8_NO_BLOCKS;
    /* with scales of blocks E5M2 is not the default */
    const bool hybrid =
        (!blocks || config_is_given(cfg, "fp8_format")) &&
        !strcmp(config_get(cfg, "fp8_format", text, sizeof(text)), "HYBRID");
    struct fp8_recipe r = {
        .type = { ACCEL_F8E4M3, ACCEL_F8E4M3, hybrid ? ACCEL_F8E5M2 : ACCEL_F8E4M3 },
        .current = cfg->fp8_recipe != FP8_DELAYED,
        .blocks = blocks,
        .margin = (int)config_get_int(cfg, "fp8_margin"),
        .interval = config_get_int(cfg, "fp8_interval"),
        .history = config_get_int(cfg, "fp8_amax_history_len"),
    };
    const char *word;

    config_get(cfg, "fp8_amax_compute_algo", text, sizeof(text));
    r.most_recent = !strcmp(text, "most_recent");
    r.history = r.current ? 0 : r.history;
    config_get(cfg, "fp8_use_autocast_during_eval", text, sizeof(text));
    r.evaluation = !strcmp(text, "true");
    /* "true,false,false" */
    word = config_get(cfg, "fp8_override_linear_precision", text, sizeof(text));
    for (int i = 0; i < FP8_PRODUCTS && word; i++) {
        r.wide[i] = !strncmp(word, "true", 4);
        word = strchr(word, ',');
        word = word ? word + 1 : NULL;
    }
    return r;
}

struct fp8_recipe fp8_recipe_of(const struct config *cfg)
{
    if (config_fp8_is_ao(cfg))
        return current_recipe(false);
    return cfg->fp8_recipe == FP8_POWERS ? current_recipe(true) : te_recipe(cfg);
}

const char *fp8_recipe_word(const struct fp8_recipe *r)
{
    static const char *const blocks[] = {
        [FP8_BLOCKS_128] = "block", [FP8_BLOCKS_32] = "mxfp8"
    };

    return r->blocks    ? blocks[r->blocks]
           : r->powers  ? "powers"
           : r->current ? "current"
                        : "delayed";
}
