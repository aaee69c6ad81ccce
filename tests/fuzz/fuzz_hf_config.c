/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: bytes as the config.json of gpt2, llama and bert. What is accepted has
 * sizes that can be computed with and comes back the same when it is written; what is
 * refused says why, in plain characters.
 */
#include <stdlib.h>
#include <string.h>

#include "models/huggingface/hf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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

static void try_gpt2(const char *text, size_t size)
{
    accel_gpt2_t m, again;
    accel_error_t err = { 0 };
    char *out = NULL;

    memset(&m, 0, sizeof(m));
    memset(&again, 0, sizeof(again));
    if (hf_gpt2_parse(text, size, "config.json", &m, &err)) {
        check_error(&err);
        return;
    }
    check_size(m.layers);
    check_size(m.vocab);
    check(m.width % m.heads == 0 && m.resid_dropout >= 0 && m.resid_dropout <= 1);
    check(!hf_gpt2_format(&m, "float32", &out, &err) &&
          !hf_gpt2_parse(out, strlen(out), "again", &again, &err));
    m.hidden = m.hidden ? m.hidden : again.hidden;
    check(!memcmp(&m, &again, sizeof(m)));
    free(out);
}

static void try_llama(const char *text, size_t size)
{
    accel_llama_t m, again;
    accel_error_t err = { 0 };
    char *out = NULL;

    memset(&m, 0, sizeof(m));
    memset(&again, 0, sizeof(again));
    if (hf_llama_parse(text, size, "config.json", &m, &err)) {
        check_error(&err);
        return;
    }
    check_size(m.head_width);
    check_size(m.context);
    check(m.heads % m.kv_heads == 0 && m.head_width % 2 == 0);
    check(m.rope.kind == ACCEL_ROPE_PLAIN || m.rope.factor >= 1);
    check(!hf_llama_format(&m, "bfloat16", &out, &err) &&
          !hf_llama_parse(out, strlen(out), "again", &again, &err));
    check(!memcmp(&m, &again, sizeof(m)));
    free(out);
}

static void try_bert(const char *text, size_t size)
{
    accel_bert_t m, again;
    accel_error_t err = { 0 };
    char *out = NULL;

    memset(&m, 0, sizeof(m));
    memset(&again, 0, sizeof(again));
    if (hf_bert_parse(text, size, "config.json", &m, &err)) {
        check_error(&err);
        return;
    }
    check_size(m.types);
    check(m.head != ACCEL_BERT_CLASSIFY || m.labels >= 2);
    if (m.labels > 1000) /* each is a line of text */
        return;
    check(!hf_bert_format(&m, "float16", &out, &err) &&
          !hf_bert_parse(out, strlen(out), "again", &again, &err));
    check(!memcmp(&m, &again, sizeof(m)));
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *exact = malloc(size ? size : 1); /* a step beyond its end is seen */

    check(exact != NULL);
    memcpy(exact, data, size);
    try_gpt2(exact, size);
    try_llama(exact, size);
    try_bert(exact, size);
    free(exact);
    return 0;
}
