/* SPDX-License-Identifier: Apache-2.0
 *
 * The dtypes of a run from its config.
 */
#include "precision/policy.h"

#include <string.h>

static bool gathers_codes(const struct config *cfg)
{
    char text[16];

    return config_fp8_is_ao(cfg) && cfg->masters == MASTERS_F32 &&
           !strcmp(
               config_get(cfg, "fp8_enable_fsdp_float8_all_gather", text, sizeof(text)),
               "true");
}

/* Compute and the gathered copy have one dtype; only the wire of the gradients can
 * be chosen. */
struct precision precision_of(const struct config *cfg)
{
    const accel_dtype_t types[] = { [PRECISION_NO] = ACCEL_F32,
                                    [PRECISION_BF16] = ACCEL_BF16,
                                    [PRECISION_FP16] = ACCEL_F16,
                                    [PRECISION_FP8] = ACCEL_BF16 };
    const accel_dtype_t t = types[cfg->mixed_precision];
    /* The dtype of the wire for each word of accel.precision.reduce; "auto"
     * follows compute. */
    const accel_dtype_t wire[] = {
        [REDUCE_AUTO] = t,
        [REDUCE_F32] = ACCEL_F32,
        [REDUCE_BF16] = ACCEL_BF16,
        [REDUCE_FP16] = ACCEL_F16,
        [REDUCE_E4M3] = ACCEL_F8E4M3,
        [REDUCE_E5M2] = ACCEL_F8E5M2,
    };
    const accel_dtype_t masters[] = { [MASTERS_F32] = ACCEL_F32,
                                      [MASTERS_BF16] = ACCEL_BF16,
                                      [MASTERS_NONE] = ACCEL_BF16,
                                      [MASTERS_FP16] = ACCEL_F16 };

    return (struct precision){
        .compute = t,
        .parameters = t,
        .masters = masters[cfg->masters],
        .gradients = cfg->gradients == GRADIENTS_FP8 ? ACCEL_F8E4M3 : ACCEL_F32,
        .masters_nearest = cfg->masters == MASTERS_NONE,
        .reduce = wire[cfg->reduce],
        .narrow_copies = cfg->reduce != REDUCE_AUTO && cfg->reduce != REDUCE_F32,
        .scaled = t == ACCEL_F16,
        .fp8 = cfg->mixed_precision == PRECISION_FP8,
        .coded = gathers_codes(cfg) || cfg->weights == WEIGHTS_FP8,
        .held = cfg->weights == WEIGHTS_FP8
    };
}

const char *precision_word(const struct precision *p)
{
    return p->fp8                     ? "fp8"
           : p->compute == ACCEL_BF16 ? "bf16"
           : p->compute == ACCEL_F16  ? "fp16"
                                      : "no";
}
