/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: bytes as a DeepSpeed JSON file. What is accepted gives values that the
 * rows of deepspeed_config take, each in its canonical form; what is refused has
 * messages.
 */
#include <string.h>

#include "config/python/deepspeed.h"
#include "tests/fuzz/fuzz_check.h"

/* A value of the file, given as a flag, is accepted and comes back as it is. */
static void check_value(const char *key, const char *text)
{
    static struct config c;
    struct config_setting flags[] = { { "distributed_type", "DEEPSPEED" },
                                      { key, text } };
    struct config_sources src = { .flags = flags, .flag_count = 2 };
    struct config_diags d;
    accel_error_t err;
    char back[64];

    if (!*text)
        return;
    if (config_resolve(&src, &c, &d, &err) != ACCEL_OK ||
        strcmp(config_get(&c, key, back, sizeof(back)), text))
        abort();
    config_diags_free(&d);
}

static void check_word(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(text, *words) == 0)
            return;
    abort();
}

static void check_file(const struct deepspeed_file *f)
{
    static const char *const truth[] = { "", "true", "false", NULL };
    static const char *const stages[] = { "", "0", "1", "2", "3", NULL };
    static const char *const devices[] = { "", "none", "cpu", "nvme", NULL };

    check_word(f->zero_stage, stages);
    check_word(f->offload_optimizer_device, devices);
    check_word(f->offload_param_device, devices);
    check_word(f->bf16, truth);
    check_word(f->fp16, truth);
    check_value("gradient_accumulation_steps", f->gradient_accumulation_steps);
    check_value("gradient_clipping", f->gradient_clipping);
    if (strspn(f->micro_batch, "0123456789") != strlen(f->micro_batch) ||
        strspn(f->train_batch, "0123456789") != strlen(f->train_batch))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct deepspeed_file f;
    struct config_diags d;
    accel_error_t err;
    char *exact = malloc(size ? size : 1); /* a read beyond its end is seen */

    if (!exact)
        abort();
    memcpy(exact, data, size);
    if (config_deepspeed_parse("ds.json", exact, size, &f, &d, &err) == ACCEL_OK)
        check_file(&f);
    else
        fuzz_check_messages(&d, &err);
    config_diags_free(&d);
    free(exact);
    return 0;
}
