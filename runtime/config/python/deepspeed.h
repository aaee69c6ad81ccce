/* SPDX-License-Identifier: Apache-2.0
 *
 * DeepSpeed's own JSON file: the part of it that has keys in deepspeed_config.
 */
#ifndef ACCEL_CONFIG_DEEPSPEED_H
#define ACCEL_CONFIG_DEEPSPEED_H

#include "config/config.h"

/* Values as canonical text of the row of the same name; empty: absent or "auto", which
 * means that the config or the program says it. */
struct deepspeed_file {
    char zero_stage[8]; /* "0" when the file has no zero_optimization */
    char offload_optimizer_device[8], offload_param_device[8];
    char gradient_accumulation_steps[24], gradient_clipping[32];
    char bf16[8], fp16[8]; /* "true", "false" */
    char micro_batch[24], train_batch[24];
    char
        more[64]; /* the first section that changes what is trained and has no key, such
                      as "optimizer" */
};

/* Parses text[len], the content of `path`, which only messages use. ACCEL_OK: *out is
 * filled. Else diags (freed by the caller) hold all problems, each with its place, and err
 * the first. Same caps as a config file. */
accel_status_t config_deepspeed_parse(const char *path, const char *text, size_t len,
                                      struct deepspeed_file *out,
                                      struct config_diags *diags, accel_error_t *err);

#endif
