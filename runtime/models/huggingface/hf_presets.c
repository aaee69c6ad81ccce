/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes of published models by name. In: a name. Out: a struct of accel.h without
 * dropout; never a file.
 */
#include <stdio.h>
#include <string.h>

#include "models/any.h"

static const struct {
    /* two names for one model */
    const char *name, *other;
    int layers, heads, width;
} gpt2[] = {
    { "gpt2", "gpt2-124M", 12, 12, 768 },
    { "gpt2-medium", "gpt2-355M", 24, 16, 1024 },
    { "gpt2-large", "gpt2-774M", 36, 20, 1280 },
    { "gpt2-xl", "gpt2-1558M", 48, 25, 1600 },
};

/* generations differ in vocabulary, rotary base and scaling, and tied heads */
enum llama_kind { LLAMA_2, LLAMA_3, LLAMA_31, LLAMA_32 };

static const struct {
    const char *name;
    enum llama_kind kind;
    int layers, heads, kv_heads, width, hidden, context;
} llama[] = {
    { "tinyllama-1.1b", LLAMA_2, 22, 32, 4, 2048, 5632, 2048 },
    { "llama-2-7b", LLAMA_2, 32, 32, 32, 4096, 11008, 4096 },
    { "llama-2-13b", LLAMA_2, 40, 40, 40, 5120, 13824, 4096 },
    { "llama-2-70b", LLAMA_2, 80, 64, 8, 8192, 28672, 4096 },
    { "llama-3-8b", LLAMA_3, 32, 32, 8, 4096, 14336, 8192 },
    { "llama-3-70b", LLAMA_3, 80, 64, 8, 8192, 28672, 8192 },
    { "llama-3.1-8b", LLAMA_31, 32, 32, 8, 4096, 14336, 131072 },
    { "llama-3.1-70b", LLAMA_31, 80, 64, 8, 8192, 28672, 131072 },
    { "llama-3.1-405b", LLAMA_31, 126, 128, 8, 16384, 53248, 131072 },
    { "llama-3.2-1b", LLAMA_32, 16, 32, 8, 2048, 8192, 131072 },
    { "llama-3.2-3b", LLAMA_32, 28, 24, 8, 3072, 8192, 131072 },
};

static const struct {
    const char *name;
    int layers, heads, width, vocab;
} bert[] = {
    { "bert-base-uncased", 12, 12, 768, 30522 },
    { "bert-base-cased", 12, 12, 768, 28996 },
    { "bert-large-uncased", 24, 16, 1024, 30522 },
    { "bert-large-cased", 24, 16, 1024, 28996 },
};

/* Counts through the three tables: both names of each GPT-2, then llama, then bert.
 * NULL behind the last. */
const char *model_preset_name(size_t i)
{
    if (i < 2 * ACCEL_ARRAY_SIZE(gpt2))
        return i % 2 ? gpt2[i / 2].other : gpt2[i / 2].name;
    i -= 2 * ACCEL_ARRAY_SIZE(gpt2);
    if (i < ACCEL_ARRAY_SIZE(llama))
        return llama[i].name;
    i -= ACCEL_ARRAY_SIZE(llama);
    return i < ACCEL_ARRAY_SIZE(bert) ? bert[i].name : NULL;
}

/* The error for an unknown name; the hint has the nearest name, else all of them. */
static accel_status_t unknown(const char *model, const char *name,
                              const char *const *names, size_t n, accel_error_t *err)
{
    const char *near = name ? suggest_nearest(name, names, n) : NULL;
    char hint[256];
    size_t used;

    used = near ? (size_t)snprintf(hint, sizeof(hint), "did you mean %s?", near)
                : (size_t)snprintf(hint, sizeof(hint), "there are");
    for (size_t i = 0; !near && i < n && used < sizeof(hint); i++)
        used += (size_t)snprintf(hint + used, sizeof(hint) - used, " %s", names[i]);
    return accel_fail(err, A0644, hint, "there is no %s model '%.64s'", model,
                      name ? name : "");
}

static accel_status_t nowhere(const char *name, accel_error_t *err)
{
    return accel_fail(err, A0644, "pass the address of the model's struct",
                      "the sizes of model '%.64s' have no place: out is NULL",
                      name ? name : "");
}

accel_status_t accel_gpt2_preset(const char *name, accel_gpt2_t *out,
                                 accel_error_t *err)
{
    const char *names[2 * ACCEL_ARRAY_SIZE(gpt2)];

    if (!out)
        return nowhere(name, err);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(gpt2); i++) {
        /* all names are collected on the way, for the hint of a failure */
        names[2 * i] = gpt2[i].name;
        names[2 * i + 1] = gpt2[i].other;
        if (!name || (strcmp(name, gpt2[i].name) && strcmp(name, gpt2[i].other)))
            continue;
        *out = (accel_gpt2_t){ .layers = gpt2[i].layers,
                               .heads = gpt2[i].heads,
                               .width = gpt2[i].width,
                               .context = 1024,
                               .vocab = 50257 };
        return ACCEL_OK;
    }
    return unknown("gpt2", name, names, ACCEL_ARRAY_SIZE(names), err);
}

/* Rotary positions of a generation, as in its published config.json. */
static accel_rope_t rope_of(enum llama_kind kind)
{
    if (kind == LLAMA_2)
        return (accel_rope_t){ .theta = 10000 };
    if (kind == LLAMA_3)
        return (accel_rope_t){ .theta = 500000 };
    /* 3.1 and 3.2 stretch the 8192 positions of their first training */
    return (accel_rope_t){ .theta = 500000,
                           .kind = ACCEL_ROPE_LLAMA3,
                           .factor = kind == LLAMA_31 ? 8 : 32,
                           .low_freq_factor = 1,
                           .high_freq_factor = 4,
                           .original_context = 8192 };
}

accel_status_t accel_llama_preset(const char *name, accel_llama_t *out,
                                  accel_error_t *err)
{
    const char *names[ACCEL_ARRAY_SIZE(llama)];

    if (!out)
        return nowhere(name, err);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(llama); i++) {
        names[i] = llama[i].name;
        if (!name || strcmp(name, llama[i].name))
            continue;
        *out = (accel_llama_t){ .layers = llama[i].layers,
                                .heads = llama[i].heads,
                                .kv_heads = llama[i].kv_heads,
                                .width = llama[i].width,
                                .head_width = llama[i].width / llama[i].heads,
                                .hidden = llama[i].hidden,
                                .vocab = llama[i].kind == LLAMA_2 ? 32000 : 128256,
                                .context = llama[i].context,
                                .norm_eps = 1e-5f,
                                .rope = rope_of(llama[i].kind),
                                .tied = llama[i].kind == LLAMA_32 };
        return ACCEL_OK;
    }
    return unknown("llama", name, names, ACCEL_ARRAY_SIZE(names), err);
}

accel_status_t accel_bert_preset(const char *name, accel_bert_t *out,
                                 accel_error_t *err)
{
    const char *names[ACCEL_ARRAY_SIZE(bert)];

    if (!out)
        return nowhere(name, err);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(bert); i++) {
        names[i] = bert[i].name;
        if (!name || strcmp(name, bert[i].name))
            continue;
        *out = (accel_bert_t){ .layers = bert[i].layers,
                               .heads = bert[i].heads,
                               .width = bert[i].width,
                               .hidden = 4 * bert[i].width,
                               .vocab = bert[i].vocab,
                               .context = 512,
                               .types = 2,
                               .norm_eps = 1e-12f,
                               .head = ACCEL_BERT_MASKED_LM };
        return ACCEL_OK;
    }
    return unknown("bert", name, names, ACCEL_ARRAY_SIZE(names), err);
}
