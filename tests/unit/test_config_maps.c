/* SPDX-License-Identifier: Apache-2.0
 *
 * config/: the whole of an Accelerate file. Each word and range of each map, both names
 * of a key, the rules between keys, the mesh against its own arithmetic, DeepSpeed's
 * JSON, and what libaccel's runtime says it does. Samples measured with accelerate
 * 1.15.0 are marked.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "config/python/deepspeed.h"
#include "tests/tap.h"
#include "tests/world/config_files.h"

static char json[64];
static struct config_said reply;

/* Files of one map; the key of DeepSpeed's own file. */
#define FSDP_MAP(keys)      TYPE("FSDP") "fsdp_config: {" keys "}\n"
#define FP8_MAP(keys)       TYPE("FSDP") "mixed_precision: fp8\nfp8_config: {" keys "}\n"
#define DEEPSPEED_MAP(keys) TYPE("DEEPSPEED") "deepspeed_config: {" keys "}\n"
#define FILE_KEY            "deepspeed_config: {deepspeed_config_file: ds.json}\n"

static const char *verdict(const char *text, struct config *cfg)
{
    return config_verdict(text, cfg, &reply);
}

/* A text in one line, for the name of a test. */
static const char *flat(const char *text)
{
    static char line[600];

    snprintf(line, sizeof(line), "%s", text);
    for (char *p = line; *p; p++)
        if (*p == '\n' || *p == '\t' || *p == '#')
            *p = ' ';
    return line;
}

/* ---- every row ------------------------------------------------------------------- */

/* A head with which keys of the map count. */
static const char *head_of(const char *section)
{
    static const char *const heads[][2] = {
        { "fsdp_config", TYPE("FSDP") },
        { "parallelism_config", TYPE("MULTI_GPU") },
        { "deepspeed_config", TYPE("DEEPSPEED") },
        { "megatron_lm_config", TYPE("MEGATRON_LM") },
        { "fp8_config", TYPE("MULTI_GPU") "mixed_precision: fp8\n" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(heads); i++)
        if (!strcmp(heads[i][0], section))
            return heads[i][1];
    return TYPE("MULTI_GPU");
}

static bool taken(const struct config_key *k, const char *name, const char *value)
{
    char text[600], got[64];
    struct config cfg;

    snprintf(text, sizeof(text), "%s%s%s%s: %s\n", head_of(k->section), k->section,
             k->section[0] ? ":\n  " : "", name, value);
    if (!strcmp(name, "distributed_type"))
        snprintf(text, sizeof(text), "distributed_type: '%s'\n", value);
    if (*verdict(text, &cfg)) {
        tap_diag("%s", reply.text);
        return false;
    }
    config_get(&cfg, k->name, got, sizeof(got));
    return !strcmp(got, value);
}

/* Needs another key, which the rules' own tests give it. */
static bool stands_alone(const struct config_key *k, const char *word)
{
    return k->use != USE_REFUSED && strncmp(k->section, "accel", 5) != 0 &&
           !k->moved_to && (strcmp(word, "no") && strcmp(word, "NO"));
}

static void test_words(void)
{
    size_t n;
    const struct config_key *k = config_schema(&n);
    int words = 0, wrong = 0;

    for (size_t i = 0; i < n; i++)
        for (int w = 0; k[i].values && k[i].values[w]; w++) {
            if (!stands_alone(&k[i], k[i].values[w]))
                continue;
            words++;
            wrong += !taken(&k[i], k[i].name, k[i].values[w]);
        }
    tap_ok(words > 70, "%d words", words);
    tap_is_int(wrong, 0, "all of them are taken, and kept as written");
}

static void test_names(void)
{
    static const char *const prefixes[][2] = {
        { "fsdp_config", "fsdp_" },
        { "dynamo_config", "dynamo_" },
        { "fp8_config", "fp8_" },
        { "parallelism_config", "parallelism_config_" },
        { "megatron_lm_config", "megatron_lm_" },
    };
    size_t n;
    const struct config_key *k = config_schema(&n);
    int names = 0, wrong = 0;

    for (size_t p = 0; p < ACCEL_ARRAY_SIZE(prefixes); p++)
        for (size_t i = 0; i < n; i++) {
            size_t skip = strlen(prefixes[p][1]);
            const char *value = k[i].type == TYPE_BOOL     ? "false"
                                : k[i].type == TYPE_INT    ? "1"
                                : k[i].type == TYPE_NUMBER ? "0.5"
                                : k[i].type == TYPE_STRING ? "text"
                                                           : NULL;

            if (strcmp(k[i].section, prefixes[p][0]) != 0 || !value)
                continue;
            if (!strcmp(k[i].name, "fsdp_sync_module_states"))
                value = "true"; /* false needs another key */
            names++;
            wrong += !taken(&k[i], k[i].name, value);
            wrong += !taken(&k[i], k[i].name + skip, value);
            if (k[i].other_name) {
                wrong += !taken(&k[i], k[i].other_name, value);
                wrong += !taken(&k[i], k[i].other_name + skip, value);
            }
        }
    tap_ok(names > 50, "%d keys", names);
    tap_is_int(wrong, 0,
               "each is taken with and without its prefix and by other names");
}

/* ---- samples of accelerate: files accepted and refused --------------------------- */

static const struct {
    const char *text, *code, *key, *value;
} files[] = {
    { TYPE("'NO'"), "", "rdzv_backend", "static" },
    { TYPE("'NO'"), "", "same_network", "false" },
    { TYPE("'NO'"), "", "main_training_function", "main" },
    { TYPE("'NO'"), "", "machine_rank", "0" },
    { TYPE("'NO'"), "", "compute_environment", "LOCAL_MACHINE" },
    { TYPE("'NO'"), "", "enable_cpu_affinity", "false" },
    { TYPE("FSDP") "bogus: 1\n", "A0101", NULL, NULL },
    { TYPE("'NO'") "dynamo_backend: INDUCTOR\n", "", "dynamo_backend", "INDUCTOR" },
    /* accelerate takes this and ignores it: the first of two deliberate differences. */
    { TYPE("FSDP") "fsdp_config:\n  fsdp_bogus: 1\n", "A0101", NULL, NULL },
    /* The second: -1 means as many processes as are started. */
    { FSDP_MAP("fsdp_version: 2"), "", "num_processes", "" },
    { FSDP_MAP("fsdp_version: 2"), "", "fsdp_version", "2" },
    /* Rules that the samples leave out. */
    { TYPE("MULTI_GPU") "fp16: true\n", "", "mixed_precision", "fp16" },
    { TYPE("MULTI_GPU") "fp16: true\nmixed_precision: bf16\n", "", "mixed_precision",
      "bf16" },
    { TYPE("MULTI_GPU") "dynamo_config: {backend: inductor}\n", "", "dynamo_backend",
      "INDUCTOR" },
    { TYPE("MULTI_GPU") "dynamo_config: {backend: no}\n", "", "dynamo_backend", "NO" },
    { TYPE("TPU"), "A0105", NULL, NULL },
    { "distributed_type: MULTI_GPU\nmixed_precision: fp8\nfp8_config:\n"
      "  override_linear_precision: [true, false, yes]\n",
      "", "fp8_override_linear_precision", "true,false,true" },
    { "distributed_type: MULTI_GPU\nmixed_precision: fp8\nfp8_config:\n"
      "  override_linear_precision: (True, False, False)\n",
      "", "fp8_override_linear_precision", "true,false,false" },
    { "distributed_type: MULTI_GPU\nmixed_precision: fp8\nfp8_config:\n"
      "  override_linear_precision: (True, False)\n",
      "A0102", NULL, NULL },
};

static void test_files(void)
{
    struct config cfg;
    char got[64];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(files); i++) {
        tap_is_str(verdict(files[i].text, &cfg), files[i].code, "file %zu", i);
        if (files[i].key)
            tap_is_str(config_get(&cfg, files[i].key, got, sizeof(got)), files[i].value,
                       "file %zu: %s", i, files[i].key);
    }
}

/* ---- checkpoints and preemption -------------------------------------------------- */

static void test_preemption(void)
{
    static const struct {
        const char *keys, *code;
        bool preempts;
    } row[] = {
        { "", "", true },
        { "checkpoint: {save: true}", "", true },
        { "checkpoint: {save: false}", "", false },
        { "checkpoint: {save: false}, preemption: {enabled: false}", "", false },
        { "checkpoint: {save: false}, preemption: {enabled: true}", "A0134", false },
        { "preemption: {enabled: true}", "", true },
        { "preemption: {enabled: false}", "", false },
    };
    struct config cfg;
    char text[200];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(row); i++) {
        snprintf(text, sizeof(text), TYPE("MULTI_CPU") "accel: {%s}\n", row[i].keys);
        tap_is_str(verdict(text, &cfg), row[i].code, "accel {%s}", row[i].keys);
        if (!row[i].code[0])
            tap_is_int(cfg.preempt_enabled, row[i].preempts,
                       "comes back only to what is saved");
    }
}

/* ---- fsdp_config ----------------------------------------------------------------- */

static const struct {
    const char *keys, *code;
    bool noted;
    int strategy;
} fsdp[] = {
    { "", "", false, SHARD_FULL },
    { "fsdp_sharding_strategy: SHARD_GRAD_OP", "", false, SHARD_GRAD_OP },
    { "fsdp_sharding_strategy: 4", "", false, SHARD_HYBRID },
    { "fsdp_sharding_strategy: '5'", "", false, SHARD_HYBRID_ZERO2 },
    { "fsdp_sharding_strategy: _HYBRID_SHARD_ZERO2", "", false, SHARD_HYBRID_ZERO2 },
    { "fsdp_state_dict_type: LOCAL_STATE_DICT", "", false, SHARD_FULL },
    { "fsdp_state_dict_type: LOCAL_STATE_DICT, fsdp_version: 2", "A0123", false, 0 },
    { "fsdp_state_dict_type: FULL_STATE_DICT", "", false, SHARD_FULL },
    { "fsdp_state_dict_type: FULL_STATE_DICT}\naccel: {checkpoint: {local_dir: "
      "/scratch}",
      "A0135", false, 0 },
    { "}\naccel: {checkpoint: {local_dir: /scratch}", "", false, SHARD_FULL },
    { "}\naccel: {checkpoint: {local_dir: scratch}", "A0862", false, 0 },
    { "fsdp_version: 2, fsdp_reshard_after_forward: false", "", false, SHARD_GRAD_OP },
    { "fsdp_version: 2, fsdp_reshard_after_forward: true", "", false, SHARD_FULL },
    { "fsdp_version: 2, fsdp_reshard_after_forward: NO_SHARD", "A0121", false, 0 },
    { "fsdp_reshard_after_forward: false", "", true, SHARD_FULL },
    { "fsdp_version: 2, fsdp_forward_prefetch: true", "A0122", false, 0 },
    { "fsdp_version: 2, fsdp_backward_prefetch: BACKWARD_PRE", "", true, SHARD_FULL },
    { "fsdp_version: 2, fsdp_sharding_strategy: NO_SHARD", "", true, SHARD_FULL },
    { "fsdp_version: 2, fsdp_sync_module_states: false", "", true, SHARD_FULL },
    { "fsdp_version: 2, fsdp_use_orig_params: false", "", true, SHARD_FULL },
    { "fsdp_sync_module_states: false", "A0120", false, 0 },
    { "fsdp_sync_module_states: false, fsdp_cpu_ram_efficient_loading: false", "",
      false, SHARD_FULL },
    { "fsdp_activation_checkpointing_offload: true", "A0124", false, 0 },
    { "fsdp_version: 2, fsdp_activation_checkpointing_offload: true", "A0124", false,
      0 },
    { "fsdp_version: 2, fsdp_activation_checkpointing_offload: true, "
      "fsdp_activation_checkpointing: true",
      "", false, SHARD_FULL },
};

static void test_fsdp(void)
{
    struct config cfg;
    char text[400];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(fsdp); i++) {
        snprintf(text, sizeof(text), FSDP_MAP("%s"), fsdp[i].keys);
        tap_is_str(verdict(text, &cfg), fsdp[i].code, "fsdp {%s}", fsdp[i].keys);
        if (fsdp[i].code[0])
            continue;
        tap_is_int(config_strategy(&cfg), fsdp[i].strategy, "its strategy");
        tap_is_int(config_prefetch(&cfg),
                   strstr(fsdp[i].keys, "version: 2") ? PREFETCH_PRE : PREFETCH_NONE,
                   "when it gathers");
        tap_is_int(strstr(reply.text, "note:") != NULL, fsdp[i].noted,
                   "a note or none");
    }
}

/* ---- parallelism_config ---------------------------------------------------------- */

static const char *const axes[] = { "dp_replicate", "dp_shard", "cp", "sp", "tp" };

static const char *mesh_file(const int size[5], int world)
{
    static char text[600];
    int used =
        snprintf(text, sizeof(text), FSDP_MAP("version: 2") "parallelism_config:\n");

    for (int i = 0; i < 5; i++)
        used += snprintf(text + used, sizeof(text) - (size_t)used, "  %s_size: %d\n",
                         axes[i], size[i]);
    if (world)
        snprintf(text + used, sizeof(text) - (size_t)used, "num_processes: %d\n",
                 world);
    return text;
}

/* Measured: sizes, total, data parallel size, others, or an error. */
static void test_mesh_samples(void)
{
    static const struct {
        int size[5];
        int64_t total, data, others;
    } samples[] = { { { 1, 1, 1, 1, 1 }, 1, 1, 1 },
                    { { 2, 4, 1, 1, 1 }, 8, 8, 1 },
                    { { 1, 2, 2, 1, 1 }, 4, 2, 2 },
                    { { 2, 1, 1, 1, 2 }, 0, 0, 0 },
                    { { 1, 1, 8, 1, 1 }, 8, 1, 8 } };
    struct config cfg;
    struct config_mesh mesh;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(samples); i++) {
        const char *code = verdict(mesh_file(samples[i].size, 0), &cfg);

        if (!samples[i].total) {
            tap_is_str(code, "A0132", "sample %zu is refused", i);
            continue;
        }
        config_mesh(&cfg, 0, &mesh);
        tap_ok(!*code && mesh.total == samples[i].total &&
                   mesh.data_parallel == samples[i].data &&
                   mesh.others == samples[i].others,
               "sample %zu: %lld = %lld x %lld", i, (long long)mesh.total,
               (long long)mesh.data_parallel, (long long)mesh.others);
    }
    for (int i = 0; i < MESH_DIMS; i++)
        tap_is_str(mesh_dim_name((enum mesh_dim)i), axes[i], "axis %d", i);
}

/* All sizes of 1 to 3 against worlds of 1 to 8, by the rule. */
static void test_mesh_rule(void)
{
    struct config cfg;
    int wrong = 0, tried = 0;

    for (int n = 0; n < 243; n++)
        for (int world = 0; world <= 8; world += 2) {
            int s[5], total = 1;
            const char *want = "", *got;

            for (int i = 0, rest = n; i < 5; i++, rest /= 3) {
                s[i] = rest % 3 + 1;
                total *= s[i];
            }
            if (s[2] > 1 && s[3] > 1)
                want = "A0131";
            else if (s[0] > 1 && s[1] == 1 && (s[2] > 1 || s[4] > 1))
                want = "A0132";
            else if (world && total > 1 && total != world)
                want = "A0130";
            got = verdict(mesh_file(s, world), &cfg);
            tried++;
            /* Of several errors the first in the file is told. */
            if (strcmp(got, want) && !(*want && strstr(reply.text, want)))
                wrong++;
        }
    tap_is_int(wrong, 0, "%d meshes are judged by the rule", tried);
}

static void test_world(void)
{
    static const int two_by_two[5] = { 1, 2, 1, 1, 2 }, ones[5] = { 1, 1, 1, 1, 1 };
    struct config cfg;
    struct config_mesh mesh;
    accel_error_t err = { 0 };

    verdict(mesh_file(two_by_two, 0), &cfg);
    tap_is_int(config_check_world(&cfg, 4, &err), ACCEL_OK, "4 processes fill 2 x 2");
    tap_is_int(config_check_world(&cfg, 6, &err), ACCEL_EMISMATCH, "6 do not");
    tap_is_str(err.where + strcspn(err.where, ":"), ":8",
               "the message names the place: %s", err.where);
    tap_ok(strstr(err.text, "dp_shard 2 x tp 2 = 4") != NULL, "and the sizes: %s",
           err.text);
    verdict(mesh_file(ones, 0), &cfg);
    config_mesh(&cfg, 6, &mesh);
    tap_ok(mesh.size[DIM_DP_REPLICATE] == 6 && mesh.total == 6 &&
               config_check_world(&cfg, 6, &err) == ACCEL_OK,
           "with all sizes 1 dp_replicate is the world");
    tap_is_str(verdict("distributed_type: MEGATRON_LM\nmegatron_lm_config:\n"
                       "  tp_degree: 2\n  pp_degree: 2\n  context_parallel_size: 2\n",
                       &cfg),
               "", "Megatron, 2 x 2 x 2");
    tap_is_int(config_check_world(&cfg, 16, &err), ACCEL_OK, "divides 16");
    tap_is_int(config_check_world(&cfg, 12, &err), ACCEL_EMISMATCH, "but not 12");
    tap_is_str(verdict("distributed_type: MEGATRON_LM\nmegatron_lm_config:\n"
                       "  tp_degree: 1\n  expert_model_parallel_size: 3\n",
                       &cfg),
               "", "Megatron, experts over 3");
    tap_is_int(config_check_world(&cfg, 6, &err), ACCEL_OK, "divide 6");
    for (int world = 7; world <= 8; world++)
        tap_is_int(config_check_world(&cfg, world, &err), ACCEL_EMISMATCH, "but not %d",
                   world);
    tap_is_str(
        verdict(FSDP_MAP("version: 1") "parallelism_config: {tp_size: 2}\n", &cfg),
        "A0133", "FSDP version 1 has no mesh");
    tap_is_str(
        verdict(FSDP_MAP("version: 2") "parallelism_config: {tp_size: 2}\n", &cfg), "",
        "version 2 has one");
    /* 2^64 would be 0: the product stays at its cap */
    verdict(FSDP_MAP(
                "version: 2") "parallelism_config:\n  {dp_replicate_size: 65536, "
                              "dp_shard_size: 65536, cp_size: 65536, tp_size: 65536}\n",
            &cfg);
    config_mesh(&cfg, 4, &mesh);
    tap_ok(mesh.total == (int64_t)1 << 40 &&
               config_check_world(&cfg, 1, &err) == ACCEL_EMISMATCH,
           "2^64 processes are too many, not 0: %lld", (long long)mesh.total);
    tap_is_str(verdict(TYPE("DEEPSPEED") "parallelism_config: {sp_size: 2}\n", &cfg),
               "", "DeepSpeed splits sequences by itself");
    tap_is_str(verdict(TYPE("DEEPSPEED") "parallelism_config: {tp_size: 2}\n", &cfg),
               "A0133", "but not matrices");
}

/* ---- deepspeed_config ------------------------------------------------------------ */

static const struct {
    const char *text, *want; /* NULL: refused */
} documents[] = {
    { "{}", "0||||||" },
    { "{\"zero_optimization\": {}}", "0||||||" },
    { "{\"zero_optimization\": {\"stage\": 3}}", "3||||||" },
    { "{\"zero_optimization\": {\"stage\": \"auto\"}}", "||||||" },
    { "{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": "
      "{\"device\": \"cpu\"}, \"offload_param\": {\"device\": \"nvme\"}}}",
      "3|cpu|nvme||||" },
    { "{\"gradient_accumulation_steps\": 4, \"gradient_clipping\": 1.0,\n"
      "\t\"bf16\": {\"enabled\": \"auto\"}, \"fp16\":{\"enabled\":true}}",
      "0|||4|1.0||true" },
    { "{\"bf16\":{\"enabled\":true},\"x\":[1,{\"y\":null}],\"z\":\"\\u00e9\\n\"}",
      "0|||||true|" },
    /* as Python writes what is beyond U+FFFF; and what only looks like it */
    { "{\"x\":\"\\ud83d\\ude00 \\\\ud83d\\\\ude00\",\"bf16\":{\"enabled\":true}}",
      "0|||||true|" },
    { "{\"x\": \"\\\\ud83d\\ude00\"}", NULL },
    { "{\"x\": \"\\ud83d\"}", NULL },
    { "{\"x\": \"\\ud83d\\u0041\"}", NULL },
    { "{\"zero_optimization\": {\"stage\": 4}}", NULL },
    { "{\"zero_optimization\": {\"stage\": \"3\"}}", NULL },
    { "{\"zero_optimization\": [3]}", NULL },
    { "{\"gradient_clipping\": true}", NULL },
    { "{\"gradient_accumulation_steps\": 0}", NULL },
    { "{\"bf16\": {\"enabled\": 1}}", NULL },
    { "{\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}}", NULL },
    { "[]", NULL },
    { "", NULL },
    { "{\"a\": 1", NULL },
    { "{\"a\": 1}}", NULL },
    { "{\"a\": &x 1, \"b\": *x}", NULL },
    { "{'a': 1}", NULL },
    { "{a: 1}", NULL },
    { "{\"a\": 1,}", NULL },
    { "{\"a\": yes}", NULL },
    { "{\"a\": 1} # x", NULL },
    { "zero_optimization:\n  stage: 3\n", NULL },
    { "{\"a\": 1, \"a\": 2}", NULL },
    { "{\"a\": 01}", NULL },
    { "{\"a\": \"\\x41\"}", NULL },
    { "{\"a\": \"b\nc\"}", NULL },
};

static void test_documents(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(documents); i++) {
        const char *text = documents[i].text, *want = documents[i].want;
        struct deepspeed_file f;
        struct config_diags d;
        accel_error_t err = { 0 };
        char got[200];
        accel_status_t status =
            config_deepspeed_parse("ds.json", text, strlen(text), &f, &d, &err);

        snprintf(got, sizeof(got), "%s|%s|%s|%s|%s|%s|%s", f.zero_stage,
                 f.offload_optimizer_device, f.offload_param_device,
                 f.gradient_accumulation_steps, f.gradient_clipping, f.bf16, f.fp16);
        if (want)
            tap_is_str(status ? err.text : got, want, "JSON %s", flat(text));
        else
            tap_ok(status == ACCEL_ECONFIG && err.hint[0] &&
                       !strncmp(err.where, "ds.json", 7),
                   "refused: %s: %s: %s", flat(text), err.where, err.text);
        config_diags_free(&d);
    }
}

/* The grammar is checked first, and what is wrong inside a string after it. */
static void test_order(void)
{
    static const struct {
        const char *text;
        int message;
    } rows[] = {
        { "{\"a\": \"\xc3(\"}", 112 },   { "{\"a\": \"\xc3(\", \"b\": tru}", 151 },
        { "{\"a\": \"\\u00\"}", 109 },   { "{\"a\": \"\\u00\", \"b\": tru}", 151 },
        { "{\"a\": \"\\u0000\"}", 112 }, { "{\"a\": \"\\u0000\", \"b\": tru}", 151 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        struct deepspeed_file f;
        struct config_diags d;
        accel_error_t err = { 0 };

        config_deepspeed_parse("ds.json", rows[i].text, strlen(rows[i].text), &f, &d,
                               &err);
        tap_is_int(err.message, rows[i].message, "%s: %s", err.where, err.text);
        config_diags_free(&d);
    }
}

static void test_deepspeed(void)
{
    static const char file[] = TYPE("DEEPSPEED") FILE_KEY;
    static const char two[] = TYPE("DEEPSPEED") "mixed_precision: bf16\n" FILE_KEY;
    struct config cfg, back;
    char path[1100], text[16 << 10];

    config_put(json,
               "{\"zero_optimization\": {\"stage\": 3}, \"bf16\": {\"enabled\": true},"
               "\"gradient_accumulation_steps\": 4, \"gradient_clipping\": 0.5}");
    tap_is_str(verdict(file, &cfg), "", "a DeepSpeed file beside the config file");
    tap_is_int(config_strategy(&cfg), SHARD_FULL, "stage 3 is FULL_SHARD");
    tap_is_int(config_accumulation(&cfg), 4, "its accumulation");
    tap_ok(config_clipping(&cfg) == 0.5, "its clipping");
    tap_is_int(cfg.mixed_precision, PRECISION_BF16, "its precision");
    tap_ok(!config_is_given(&cfg, "zero_stage"), "but no key of the config is given");
    tap_is_str(config_get(&cfg, "deepspeed_config_file", path, sizeof(path)), json,
               "the path is absolute for the tasks");
    tap_is_int(config_encode(&cfg, text, sizeof(text), NULL), ACCEL_OK, "encoded");
    tap_ok(config_decode(text, &back, NULL) == ACCEL_OK &&
               config_strategy(&back) == SHARD_FULL && config_accumulation(&back) == 4,
           "a task knows the same without the file");
    tap_is_str(verdict(two, &cfg), "", "the same precision in both is fine");
    config_put(json, "{\"fp16\": {\"enabled\": true}}");
    tap_is_str(verdict(two, &cfg), "A0153", "two precisions are not");
    config_put(json, "{\"fp16\": {\"enabled\": true, \"initial_scale_power\": 12, "
                     "\"hysteresis\": 2, \"min_loss_scale\": 1}}");
    tap_is_str(verdict(TYPE("DEEPSPEED") FILE_KEY, &cfg), "",
               "a loss scale in the file");
    tap_ok(cfg.mixed_precision == PRECISION_FP16 && cfg.loss_scale_init == 4096 &&
               cfg.loss_scale_interval == 1000 && cfg.loss_scale_enabled,
           "is the config's, with DeepSpeed's interval");
    config_put(
        json, "{\"fp16\": {\"enabled\": \"auto\"}, \"bf16\": {\"enabled\": \"auto\"}}");
    tap_is_str(verdict(two, &cfg), "", "auto is the config's");
    tap_is_int(cfg.mixed_precision, PRECISION_BF16, "which is bf16");
    tap_is_int(config_strategy(&cfg), SHARD_NONE, "no zero_optimization is stage 0");
    config_put(json,
               "{\"train_batch_size\": 16, \"train_micro_batch_size_per_gpu\": 2, "
               "\"gradient_accumulation_steps\": 4}");
    tap_is_str(verdict(TYPE("DEEPSPEED") "num_processes: 2\n" FILE_KEY, &cfg), "",
               "2 x 4 x 2 processes are 16");
    config_put(json,
               "{\"train_batch_size\": 16, \"train_micro_batch_size_per_gpu\": 2, "
               "\"gradient_accumulation_steps\": 2}");
    tap_is_str(verdict(TYPE("DEEPSPEED") "num_processes: 2\n" FILE_KEY, &cfg), "A0154",
               "2 x 2 x 2 processes are not");
    unlink(json);
    tap_is_str(verdict(file, &cfg), "A0113", "no such file");
    tap_is_str(verdict(TYPE("DEEPSPEED"), &cfg), "", "no map");
    tap_is_int(config_strategy(&cfg), SHARD_GRAD_OP, "is stage 2");
    tap_ok(config_wraps(&cfg), "block by block");
    tap_is_int(config_prefetch(&cfg), PREFETCH_NONE, "without a key for prefetch");
    tap_is_str(verdict("distributed_type: DEEPSPEED\ndeepspeed_config:\n"
                       "  zero_stage: 1\n  offload_param_device: cpu\n",
                       &cfg),
               "", "a device that the stage has no use for");
    tap_ok(strstr(reply.text,
                  "'offload_param_device' has no effect below zero_stage 3") != NULL,
           "is noted");
}

/* ---- what libaccel does ---------------------------------------------------------- */

static const struct {
    const char *text, *refused; /* key, or NULL */
} supported[] = {
    { TYPE("'NO'"), NULL },
    { TYPE("MULTI_CPU") "mixed_precision: bf16\n", NULL },
    { TYPE("FSDP"), NULL },
    { FSDP_MAP("fsdp_version: 2"), NULL },
    { FSDP_MAP("sharding_strategy: NO_SHARD"), NULL },
    { DEEPSPEED_MAP(
          "zero_stage: 3, gradient_clipping: 1.0, gradient_accumulation_steps: 2"),
      NULL },
    { DEEPSPEED_MAP("zero_stage: 0"), NULL },
    { TYPE("MULTI_CPU") "fsdp_config: {fsdp_offload_params: true}\n", NULL },
    { TYPE("MULTI_CPU") "main_process_port: 1\ngpu_ids: 0,1\n", NULL },
    { TYPE("MULTI_GPU"), NULL },
    { TYPE("MULTI_XPU"), "distributed_type: MULTI_XPU" },
    { TYPE("MEGATRON_LM"), "distributed_type: MEGATRON_LM" },
    { TYPE("FSDP") "mixed_precision: fp16\n", NULL },
    { TYPE("FSDP") "mixed_precision: fp8\n", NULL },
    { FP8_MAP("backend: MSAMP"), NULL },
    { FP8_MAP("backend: msamp, opt_level: O1"), NULL },
    { FP8_MAP("backend: AO, pad_inner_dim: false"), NULL },
    { FP8_MAP("pad_inner_dim: false"), "fp8_pad_inner_dim: false" },
    { FP8_MAP("opt_level: O1"), "fp8_opt_level: O1" },
    { FP8_MAP("fp8_format: E5M2"), "fp8_format: E5M2" },
    { FP8_MAP("use_mxfp8_block_scaling: true"), NULL },
    { FP8_MAP("backend: TE, fp8_format: E4M3, margin: 1, amax_history_len: 8"), NULL },
    { FSDP_MAP("sharding_strategy: HYBRID_SHARD"), NULL },
    { FSDP_MAP("version: 2, reshard_after_forward: false"), NULL },
    { FSDP_MAP("auto_wrap_policy: SIZE_BASED_WRAP"), NULL },
    { FSDP_MAP("forward_prefetch: true, limit_all_gathers: false, "
               "backward_prefetch_policy: BACKWARD_PRE"),
      NULL },
    { FSDP_MAP("offload_params: true"), NULL },
    { FSDP_MAP("offload_params: true, sharding_strategy: NO_SHARD"),
      "fsdp_offload_params: true" },
    { TYPE("FSDP") "use_cpu: y\n"
                   "fsdp_config: {offload_params: true, sharding_strategy: NO_SHARD}\n",
      NULL },
    { FSDP_MAP("ignored_modules: lm_head"), "fsdp_ignored_modules: lm_head" },
    { FSDP_MAP("state_dict_type: FULL_STATE_DICT"), NULL },
    { FSDP_MAP("state_dict_type: LOCAL_STATE_DICT"), NULL },
    { FSDP_MAP("version: 2") "parallelism_config: {tp_size: 2}\n",
      "parallelism_config_tp_size: 2" },
    { TYPE("MULTI_CPU") "dynamo_config: {backend: INDUCTOR}\n", NULL },
    { TYPE("DEEPSPEED"), NULL },
    { DEEPSPEED_MAP("zero_stage: 1, deepspeed_moe_layer_cls_names: Moe"), NULL },
    { TYPE("DEEPSPEED") "use_cpu: 1\n"
                        "deepspeed_config: {zero_stage: 3, offload_optimizer_device: "
                        "cpu, offload_param_device: cpu}\n",
      NULL },
    { TYPE("DEEPSPEED") "use_cpu: 1\n"
                        "deepspeed_config: {zero_stage: 3, offload_param_device: "
                        "nvme}\n",
      "offload_param_device: nvme" },
    { FSDP_MAP("version: 2, activation_checkpointing: true, "
               "activation_checkpointing_offload: true"),
      "fsdp_activation_checkpointing_offload: true" },
    { TYPE("FSDP") "use_cpu: true\n"
                   "fsdp_config: {version: 2, activation_checkpointing: true, "
                   "activation_checkpointing_offload: true}\n",
      NULL },
    { FSDP_MAP("version: 2") "parallelism_config: {sp_seq_length: 512}\n", NULL },
    { DEEPSPEED_MAP("zero_stage: 3, offload_optimizer_device: cpu"),
      "offload_optimizer_device: cpu" },
    { FSDP_MAP("use_orig_params: false"), NULL },
    { FSDP_MAP("version: 2, use_orig_params: false"), NULL },
    { TYPE("MULTI_CPU") "fsdp_config: {use_orig_params: false}\n", NULL },
    { TYPE("FSDP") "debug: true\n", NULL },
};

/* Sections of DeepSpeed's own file that libaccel has nothing for. */
static const struct {
    const char *text, *more;
} sections[] = {
    { "{\"optimizer\": {\"type\": \"AdamW\"}}", "optimizer" },
    { "{\"scheduler\": {\"type\": \"WarmupLR\"}, \"bf16\": {}}", "scheduler" },
    { "{\"bf16\": {\"enabled\": \"auto\"}, \"optimizer\": \"auto\"}", "optimizer" },
    { "{\"optimizer\": {}, \"scheduler\": null}", "" },
    { "{\"amp\": {\"enabled\": false, \"opt_level\": \"O1\"}}", "" },
    { "{\"amp\": {\"enabled\": true}}", "amp" },
    { "{\"fp16\": {\"enabled\": true, \"loss_scale\": 0}}", "" },
    { "{\"fp16\": {\"enabled\": true, \"loss_scale\": 128.0}}", "fp16: loss_scale" },
    { "{\"fp16\": {\"enabled\": false, \"loss_scale\": 128.0}}", "" },
    { "{\"gradient_predivide_factor\": 2.0}", "gradient_predivide_factor" },
    { "{\"prescale_gradients\": false, \"steps_per_print\": 10}", "" },
    { "{\"wall_clock_breakdown\": true, \"train_batch_size\": 8}", "" },
    { "{\"activation_checkpointing\": {\"partition_activations\": true}}", "" },
};

static void test_sections(void)
{
    static const char file[] = TYPE("DEEPSPEED") FILE_KEY;
    static char text[16 << 10];
    struct config cfg, back;
    char want[100];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(sections); i++) {
        const char *more = sections[i].more;
        accel_error_t err = { 0 };

        config_put(json, sections[i].text);
        tap_is_str(verdict(file, &cfg), "", "taken for Python: %s", sections[i].text);
        tap_ok(config_encode(&cfg, text, sizeof(text), NULL) == ACCEL_OK &&
                   config_decode(text, &back, NULL) == ACCEL_OK,
               "travels to the tasks");
        tap_is_int(config_supported(&back, &err), more[0] ? ACCEL_EUNSUPPORTED : 0,
                   "what libaccel makes of it");
        snprintf(want, sizeof(want),
                 "section \"%s\" of the DeepSpeed file is not supported yet", more);
        if (more[0])
            tap_ok(!strcmp(err.text, want) && strstr(err.where, "job.yaml:2"), "%s: %s",
                   err.where, err.text);
    }
    unlink(json);
}

static void test_supported(void)
{
    struct config cfg;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(supported); i++) {
        const char *key = supported[i].refused;
        accel_error_t err = { 0 };
        accel_status_t status;
        char want[100];

        tap_is_str(verdict(supported[i].text, &cfg), "", "accepted: %s",
                   flat(supported[i].text));
        status = config_supported(&cfg, &err);
        snprintf(want, sizeof(want), "'%s' is not supported yet", key ? key : "");
        if (key)
            tap_ok(status == ACCEL_EUNSUPPORTED && err.message == 170 &&
                       !strcmp(err.text, want) && err.where[0] && err.hint[0],
                   "%s: %s (%s)", err.where, err.text, err.hint);
        else
            tap_is_str(status ? err.text : "", "", "libaccel runs it");
    }
}

int main(void)
{
    config_files_make();
    snprintf(json, sizeof(json), "%s/ds.json", config_dir);
    test_words();
    test_names();
    test_files();
    test_preemption();
    test_fsdp();
    test_mesh_samples();
    test_mesh_rule();
    test_world();
    test_documents();
    test_order();
    test_deepspeed();
    test_supported();
    test_sections();
    unlink(json);
    config_files_remove();
    return tap_done();
}
