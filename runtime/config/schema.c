/* SPDX-License-Identifier: Apache-2.0
 *
 * THE key table: every key of an Accelerate config file and of our own `accel:` map,
 * with type, words, default, help and what accel does with it. Parser, validator,
 * defaults, canonical text, environment and `accel check` all read this table. A new
 * key is a new row in one of the keys_*.def and nothing else.
 */
#include <stdio.h>
#include <string.h>

#include "config/config.h"

/* A NULL-terminated list of words, static because rows are. */
#define WORDS(...)                                                                     \
    (const char *const[])                                                              \
    {                                                                                  \
        __VA_ARGS__, NULL                                                              \
    }
/* The names of accelerate.utils.DynamoBackend. */
#define DYNAMO_BACKENDS                                                                \
    WORDS("NO", "EAGER", "AOT_EAGER", "INDUCTOR", "AOT_TS_NVFUSER", "NVPRIMS_NVFUSER", \
          "CUDAGRAPHS", "OFI", "FX2TRT", "ONNXRT", "TENSORRT",                         \
          "AOT_TORCHXLA_TRACE_ONCE", "TORCHXLA_TRACE_ONCE", "TVM", "HPU_BACKEND",      \
          "NEURON", "IPEX")
#define PARALLEL  "parallelism_config"
#define DEEPSPEED "deepspeed_config"
#define MEGATRON  "megatron_lm_config"

/* Rows with a field in struct config: libaccel acts on them. */
#define FIELD_ROW(s, n, t, f, d, same, h)                                              \
    .section = s, .name = n, .type = t, .use = USE_HONOURED,                           \
    .offset = offsetof(struct config, f), .default_text = d, .ours = same, .help = h
#define HONOUR_BOOL(s, n, f, d, h)                                                     \
    {                                                                                  \
        FIELD_ROW(s, n, TYPE_BOOL, f, d, NULL, h)                                      \
    }
/* Every value is accepted, but libaccel implements `same` only, or need not look at the
 * key: `because`. */
#define HONOUR_BOOL_AS(s, n, f, d, same, because, h)                                   \
    {                                                                                  \
        FIELD_ROW(s, n, TYPE_BOOL, f, d, same, h), .why = because                      \
    }
#define HONOUR_INT(s, n, f, lo, hi, d, h)                                              \
    {                                                                                  \
        FIELD_ROW(s, n, TYPE_INT, f, d, NULL, h), .min = lo, .max = hi                 \
    }
#define HONOUR_NUMBER(s, n, f, lo, hi, d, h)                                           \
    {                                                                                  \
        FIELD_ROW(s, n, TYPE_NUMBER, f, d, NULL, h), .min = lo, .max = hi              \
    }
#define HONOUR_ENUM(s, n, f, d, h, ...)                                                \
    {                                                                                  \
        FIELD_ROW(s, n, TYPE_ENUM, f, d, NULL, h), .values = WORDS(__VA_ARGS__)        \
    }
#define HONOUR_TEXT(s, n, f, h)                                                        \
    {                                                                                  \
        FIELD_ROW(s, n, TYPE_STRING, f, "", NULL, h),                                  \
            .max = sizeof(((struct config *)0)->f) - 1                                 \
    }

/* Rows without a field: their text is kept in `given` and handed to the program. */
#define ROW(u, s, n, t, d, same, h)                                                    \
    .section = s, .name = n, .type = t, .use = u, .offset = SIZE_MAX,                  \
    .default_text = d, .ours = same, .help = h
#define HAND_ON_BOOL(s, n, d, same, h)                                                 \
    {                                                                                  \
        ROW(USE_HANDED_ON, s, n, TYPE_BOOL, d, same, h)                                \
    }
#define HAND_ON_BOOL_AS(s, n, d, same, because, h)                                     \
    {                                                                                  \
        ROW(USE_HANDED_ON, s, n, TYPE_BOOL, d, same, h), .why = because                \
    }
/* Every value is accepted; those of `nothing` leave libaccel nothing to do. */
#define HAND_ON_BOOL_MOOT(s, n, d, same, nothing, because, h)                          \
    {                                                                                  \
        ROW(USE_HANDED_ON, s, n, TYPE_BOOL, d, same, h), .moot = nothing,              \
                                                         .why = because                \
    }
#define HAND_ON_INT(s, n, lo, hi, d, same, h)                                          \
    {                                                                                  \
        ROW(USE_HANDED_ON, s, n, TYPE_INT, d, same, h), .min = lo, .max = hi           \
    }
#define HAND_ON(s, n, len, d, same, h)                                                 \
    {                                                                                  \
        ROW(USE_HANDED_ON, s, n, TYPE_STRING, d, same, h), .max = len                  \
    }
/* `because`: NULL, or why libaccel need not look at the values of `same`. */
#define HAND_ON_ENUM(s, n, d, same, because, h, ...)                                   \
    {                                                                                  \
        ROW(USE_HANDED_ON, s, n, TYPE_ENUM, d, same, h), .why = because,               \
                                                         .values = WORDS(__VA_ARGS__)  \
    }
#define DEVICE_ROW(n, h)                                                               \
    HAND_ON_ENUM(DEEPSPEED, n, NULL, "none", NULL, h, "none", "cpu", "nvme")
#define PROBABILITY(n, h)                                                              \
    {                                                                                  \
        ROW(USE_HANDED_ON, MEGATRON, n, TYPE_NUMBER, NULL, NULL, h), .min = 0,         \
                                                                     .max = 1          \
    }
#define REPLACED_INT(s, n, lo, hi, d, same, h)                                         \
    {                                                                                  \
        ROW(USE_REPLACED, s, n, TYPE_INT, d, same, h), .min = lo, .max = hi            \
    }
#define REPLACED(s, n, len, d, same, h)                                                \
    {                                                                                  \
        ROW(USE_REPLACED, s, n, TYPE_STRING, d, same, h), .max = len                   \
    }
#define REFUSED(s, n, h)                                                               \
    {                                                                                  \
        ROW(USE_REFUSED, s, n, TYPE_STRING, NULL, NULL, h)                             \
    }
#define NO_EFFECT(s, n, h)                                                             \
    {                                                                                  \
        ROW(USE_NO_EFFECT, s, n, TYPE_STRING, NULL, NULL, h), .max = 1023              \
    }
#define NO_EFFECT_BOOL(s, n, h)                                                        \
    {                                                                                  \
        ROW(USE_NO_EFFECT, s, n, TYPE_BOOL, "false", "false", h)                       \
    }

/* Answers for `why`, each used by several rows. */
static const char of_nvme[] = "it applies to the device nvme, which libaccel refuses";
static const char of_cp[] = "it applies to a cp_size above 1, which libaccel refuses";
static const char of_sp[] = "it applies to an sp_size above 1, which libaccel refuses";
static const char slurm_starts[] = "Slurm or accel launch starts the ranks";
static const char of_tpu[] = "only a launch on TPUs reads it";
static const char of_dynamo[] = "libaccel's operations are compiled already";
static const char no_sagemaker[] = "only for SageMaker; accel runs on LOCAL_MACHINE";

static const struct config_key table[] = {
#include "common/env_names.h"
#include "config/keys_top.def"
#include "config/keys_fsdp.def"
#include "config/keys_small.def"
#include "config/keys_engines.def"
#include "config/keys_accel.def"
};

_Static_assert(ACCEL_ARRAY_SIZE(table) <= CONFIG_MAX_KEYS,
               "struct config has a row each");

const struct config_key *config_schema(size_t *count_out)
{
    *count_out = ACCEL_ARRAY_SIZE(table);
    return table;
}

/* Linear search: the table is small, and the first letter settles most rows. Old keys
 * are skipped; validate.c finds those by section and name. */
int config_row(const char *name)
{
    const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(table); i++) {
        const struct config_key *k = &table[i];
        size_t n;

        if (k->moved_to || k->name[0] != last[0] || strcmp(k->name, last))
            continue;
        n = strlen(k->section);
        if (!dot || (n == (size_t)(dot - name) && !strncmp(k->section, name, n)))
            return (int)i;
    }
    return -1;
}

const char *config_key_path(const struct config_key *key, char *buf, size_t len)
{
    snprintf(buf, len, "%s%s%s", key->section, key->section[0] ? "." : "", key->name);
    return buf;
}

bool config_section_given(const struct config *cfg, const char *section)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(table); i++)
        if (cfg->origin[i] != ORIGIN_DEFAULT && !strcmp(table[i].section, section))
            return true;
    return false;
}

/* ACCEL_, the map without "accel.", and the key, all in upper case. Not toupper: the
 * locale must not matter. */
const char *config_env_name(size_t row, char *buf, size_t len)
{
    size_t n;
    const struct config_key *k = config_schema(&n);
    const char *section = k[row].section;
    int used;

    /* Key names of Accelerate are unique. Ours are only unique with their map:
     * "enabled", "dir". */
    section = !strncmp(section, "accel.", 6) ? section + 6 : "";
    buf[0] = '\0';
    if (k[row].moved_to)
        return buf;
    used = snprintf(buf, len, "%s%s%s%s", ENV_PREFIX, section, section[0] ? "_" : "",
                    k[row].name);
    for (int i = 0; i < used && (size_t)i < len; i++)
        buf[i] = buf[i] == '.'                    ? '_'
                 : buf[i] >= 'a' && buf[i] <= 'z' ? (char)(buf[i] - 'a' + 'A')
                                                  : buf[i];
    return buf;
}
