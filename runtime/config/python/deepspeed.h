/* SPDX-License-Identifier: Apache-2.0
 *
 * DeepSpeed's own JSON file: the part of it that has keys in deepspeed_config.
 */
#ifndef ACCEL_CONFIG_DEEPSPEED_H
#define ACCEL_CONFIG_DEEPSPEED_H

#include "config/config.h"

/* Values as the canonical text of the row of the same name. Empty: absent or "auto",
 * which leaves the value to the config or the program. */
struct deepspeed_file {
    /* "0" when the file has no zero_optimization: DeepSpeed then shards nothing. */
    char zero_stage[8];
    char offload_optimizer_device[8], offload_param_device[8];
    char gradient_accumulation_steps[24], gradient_clipping[32];
    /* "true" or "false". */
    char bf16[8], fp16[8];
    /* Of the map "fp16": a fixed scale (0: none), the power of 2 to begin with, the
     * steps after which it grows. */
    char loss_scale[32], scale_power[8], scale_window[24];
    /* Batch sizes, for a check only: per rank and micro-batch, and of a whole step. */
    char micro_batch[24], train_batch[24];
    /* The first section that changes what is trained and has no key of ours, such as
     * "optimizer"; made printable. Empty: none. */
    char more[64];
};

/* Parses text[len], the content of `path`, which only messages use. ACCEL_OK: *file_out
 * is filled. Otherwise the diagnostics hold all problems, each with its place, and err
 * the first one. The caller frees the diagnostics in both cases. Same caps as for a
 * config file. */
accel_status_t config_deepspeed_parse(const char *path, const char *text, size_t len,
                                      struct deepspeed_file *file_out,
                                      struct config_diags *diags_out,
                                      accel_error_t *err);

#endif
