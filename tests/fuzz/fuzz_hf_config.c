/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: bytes as the config.json of gpt2, llama and bert. What is accepted has
 * sizes that can be computed with and comes back the same when it is written; what is
 * refused says why, in plain characters.
 */
#include <stdlib.h>
#include <string.h>

#include "models/huggingface/hf_config.h"

static void check(bool good)
{
    if (!good)
        abort();
}

static void check_error(const accel_error_t *err)
{
    check(err->text[0] && err->code != ACCEL_OK);
    for (const char *s = err->text; *s; s++)
        check((unsigned char)*s >= 0x20 && (unsigned char)*s <= 0x7e);
}

static void check_size(int n)
{
    check(n >= 1 && n <= INT32_MAX / 4);
}

static void try_config(const char *text, size_t size)
{
    accel_model_config_t m, again;
    accel_error_t err = { 0 };
    char *out = NULL;

    memset(&m, 0, sizeof(m));
    memset(&again, 0, sizeof(again));
    if (hf_config_parse(text, size, "config.json", NULL, &m, &err)) {
        check_error(&err);
        return;
    }
    check_size(m.layers);
    check_size(m.vocab);
    check_size(m.context);
    check(m.head_width || m.width % m.heads == 0);
    check(m.resid_dropout >= 0 && m.resid_dropout <= 1);
    check(!m.kv_heads || m.heads % m.kv_heads == 0);
    check(m.head_width % 2 == 0);
    check(m.rope.kind == ACCEL_ROPE_PLAIN || m.rope.factor >= 1);
    check(m.head != ACCEL_HEAD_CLASSIFY || m.labels >= 2);
    if (m.labels > 1000) /* each is a line of text */
        return;
    check(!hf_config_format(&m, "float32", &out, &err) &&
          !hf_config_parse(out, strlen(out), "again", m.model_type, &again, &err));
    m.hidden = m.hidden ? m.hidden : again.hidden;
    check(!memcmp(&m, &again, sizeof(m)));
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *exact = malloc(size ? size : 1); /* a step beyond its end is seen */

    check(exact != NULL);
    memcpy(exact, data, size);
    try_config(exact, size);
    free(exact);
    return 0;
}
