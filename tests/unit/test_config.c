/* SPDX-License-Identifier: Apache-2.0
 *
 * config/: defaults, values of good files with origin and line, words and numbers as
 * YAML 1.1 has them, the order and cap of messages, and the schema table's own rules.
 */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "tests/tap.h"
#include "tests/world/config_files.h"

static accel_status_t load_path(const char *file, struct config *cfg,
                                struct config_diags *diags, accel_error_t *err)
{
    return config_resolve(&(struct config_sources){ .job_path = file }, cfg, diags,
                          err);
}

static accel_status_t load(const char *text, struct config *cfg,
                           struct config_diags *diags, accel_error_t *err)
{
    return load_path(config_put(config_job, text), cfg, diags, err);
}

static void test_defaults(void)
{
    struct config c;

    config_defaults(&c);
    tap_is_int(c.distributed_type, DIST_MULTI_CPU, "no file: any number of replicas");
    tap_is_int(c.mixed_precision, PRECISION_NO, "float32");
    tap_is_int(c.num_processes, 0, "num_processes is not given");
    tap_is_int(c.sharding_strategy, SHARD_FULL, "FULL_SHARD");
    tap_is_int(c.auto_wrap_policy, WRAP_NONE, "NO_WRAP");
    tap_is_int(c.backward_prefetch, PREFETCH_NONE, "NO_PREFETCH");
    tap_ok(c.sync_module_states && c.use_orig_params && c.cpu_ram_efficient_loading,
           "the three FSDP switches of accelerate launch are on");
    tap_ok(c.ckpt_every_steps == 0 && c.ckpt_every_minutes == 10 && c.ckpt_keep == 2 &&
               !c.ckpt_dir[0],
           "a checkpoint every 10 minutes, two kept");
    tap_ok(c.ckpt_async == ASYNC_AUTO && c.ckpt_when_busy == BUSY_AUTO,
           "in the background, if there is memory");
    tap_ok(c.preempt_enabled && c.preempt_requeue && c.preempt_resubmit,
           "preemption-safe without being asked");
    tap_is_int(c.preempt_signal, PREEMPT_USR1, "USR1");
    tap_is_int(c.preempt_lead_seconds, 120, "120 s lead");
    tap_is_int(c.device, DEVICE_AUTO, "device auto");
}

/* One key in a file with the FSDP type set: its canonical text, NULL: refused. */
static const struct {
    const char *section, *key, *value, *want;
} cases[] = {
    { "", "num_processes", "2", "2" },
    { "", "num_processes", "+16", "16" },
    { "", "num_processes", "1048576", "1048576" },
    { "", "num_processes", "1048577", NULL },
    { "", "num_processes", "-1", "" },
    { "", "num_processes", "", "" },
    { "", "num_processes", "null", "" },
    { "", "num_processes", "~", "" },
    { "", "num_processes", "{}", "" },
    { "", "num_processes", "2.0", NULL },
    { "", "num_processes", "1_000", "1000" },
    { "", "num_processes", "1__000", NULL },
    { "", "num_processes", "_1", NULL },
    { "", "num_processes", "1_", NULL },
    { "", "num_processes", "'4'", "4" },
    { "", "num_processes", "'four'", NULL },
    { "", "num_processes", "1:30", NULL },
    { "", "num_processes", "0x10", NULL },
    { "", "num_processes", "010", NULL },
    { "", "num_processes", "+", NULL },
    { "", "num_processes", "9223372036854775808", NULL },
    { "", "debug", "yes", "true" },
    { "", "debug", "Yes", "true" },
    { "", "debug", "ON", "true" },
    { "", "debug", "True", "true" },
    { "", "debug", "off", "false" },
    { "", "debug", "NO", "false" },
    { "", "debug", "y", "true" },
    { "", "debug", "T", "true" },
    { "", "debug", "1", "true" },
    { "", "debug", "n", "false" },
    { "", "debug", "F", "false" },
    { "", "debug", "0", "false" },
    { "", "debug", "2", NULL },
    { "", "debug", "1.0", NULL },
    { "", "debug", "ye", NULL },
    { "", "debug", "tRUE", "true" },
    { "", "debug", "'yes'", "true" },
    { "", "debug", "'0'", "false" },
    { "", "mixed_precision", "bf16", "bf16" },
    { "", "mixed_precision", "BF16", "bf16" },
    { "", "mixed_precision", "'no'", "no" },
    { "", "mixed_precision", "no", "no" },
    { "", "mixed_precision", "False", "no" },
    { "", "mixed_precision", "yes", NULL },
    { "", "mixed_precision", "'false'", NULL },
    { "", "same_network", "false", "false" },
    { "", "machine_rank", "0", "0" },
    { "", "machine_rank", "1", "1" },
    { "", "machine_rank", "99999999999999999999", NULL },
    { "", "downcast_bf16", "'no'", "no" },
    { "", "downcast_bf16", "false", "no" },
    { "", "downcast_bf16", "'yes'", "yes" },
    { "", "downcast_bf16", "true", "yes" },
    { "", "downcast_bf16", "1", "yes" },
    { "", "downcast_bf16", "maybe", NULL },
    { "", "tpu_name", "pod", "pod" },
    { "", "commands", "[ls]", "" },
    { "", "ipex_config", "{ipex: true}", "" },
    { "", "compute_environment", "AMAZON_SAGEMAKER", NULL },
    { "", "fp16", "false", "false" },
    { "", "fp16", "true", "true" },
    { "", "gpu_ids", "all", "all" },
    { "", "gpu_ids", "0,1", "0,1" },
    { "", "main_process_ip", "null", "" },
    { "", "main_process_ip", "127.0.0.1", "127.0.0.1" },
    { "", "main_process_port", "29500", "29500" },
    { "", "main_process_port", "65536", NULL },
    { "", "tpu_env", "[]", "" },
    { "", "tpu_env", "[A=1]", "" },
    { "fsdp_config", "fsdp_sharding_strategy", "1", "FULL_SHARD" },
    { "fsdp_config", "fsdp_sharding_strategy", "'3'", "NO_SHARD" },
    { "fsdp_config", "fsdp_sharding_strategy", "2", "SHARD_GRAD_OP" },
    { "fsdp_config", "fsdp_sharding_strategy", "_HYBRID_SHARD_ZERO2",
      "HYBRID_SHARD_ZERO2" },
    { "fsdp_config", "fsdp_sharding_strategy", "_hybrid_shard_zero2",
      "HYBRID_SHARD_ZERO2" },
    { "fsdp_config", "fsdp_sharding_strategy", "full_shard", "FULL_SHARD" },
    { "fsdp_config", "fsdp_sharding_strategy", "0", NULL },
    { "fsdp_config", "fsdp_sharding_strategy", "6", NULL },
    { "fsdp_config", "fsdp_backward_prefetch", "1", "BACKWARD_PRE" },
    { "fsdp_config", "fsdp_backward_prefetch", "'2'", "BACKWARD_POST" },
    { "fsdp_config", "fsdp_backward_prefetch", "3", NULL },
    { "fsdp_config", "fsdp_backward_prefetch", "no_prefetch", "NO_PREFETCH" },
    { "fsdp_config", "fsdp_state_dict_type", "1", "FULL_STATE_DICT" },
    { "fsdp_config", "fsdp_state_dict_type", "'3'", "SHARDED_STATE_DICT" },
    { "fsdp_config", "fsdp_state_dict_type", "4", NULL },
    { "fsdp_config", "fsdp_use_orig_params", "n", "false" },
    { "fsdp_config", "fsdp_min_num_params", "100_000_000", "100000000" },
    { "fsdp_config", "fsdp_transformer_layer_cls_to_wrap", "''", "" },
    { "fsdp_config", "fsdp_transformer_layer_cls_to_wrap", "A,B", "A,B" },
    { "fsdp_config", "fsdp_min_num_params", "100000000", "100000000" },
    { "fsdp_config", "fsdp_min_num_params", "5", "5" },
    { "fsdp_config", "fsdp_min_num_params", "-1", NULL },
    { "fsdp_config", "fsdp_version", "1", "1" },
    { "fsdp_config", "fsdp_version", "2", "2" },
    { "fsdp_config", "fsdp_version", "3", NULL },
    { "accel.checkpoint", "every_minutes", "0.25", "0.25" },
    { "accel.checkpoint", "every_minutes", ".5", "0.5" },
    { "accel.checkpoint", "every_minutes", "1e2", "100" },
    { "accel.checkpoint", "every_minutes", "0.1", "0.1" },
    { "accel.checkpoint", "every_minutes", "'2.5'", "2.5" },
    { "accel.checkpoint", "every_minutes", "1_0.5", "10.5" },
    { "accel.checkpoint", "every_minutes", "1e400", NULL },
    { "accel.checkpoint", "every_minutes", ".inf", NULL },
    { "accel.checkpoint", "every_minutes", "nan", NULL },
    { "accel.checkpoint", "every_minutes", "0x1p3", NULL },
    { "accel.checkpoint", "every_minutes", "1,5", NULL },
    { "accel.checkpoint", "every_minutes", "-0.5", NULL },
    { "accel.checkpoint", "dir", "/a b/c", "/a b/c" },
    { "accel.checkpoint", "dir", "\"\\u00fc;%=@\"", "\xc3\xbc;%=@" },
    { "accel.checkpoint", "dir", "$HOME/x", NULL },
    { "accel.checkpoint", "dir", "~/x", NULL },
    { "accel.checkpoint", "dir", "\"a\\nb\"", NULL },
    { "accel.checkpoint", "dir", "\"a\\0b\"", NULL },
    { "accel.checkpoint", "async", "auto", "auto" },
    { "accel.checkpoint", "async", "'auto'", "auto" },
    { "accel.checkpoint", "async", "true", "true" },
    { "accel.checkpoint", "async", "Yes", "true" },
    { "accel.checkpoint", "async", "on", "true" },
    { "accel.checkpoint", "async", "False", "false" },
    { "accel.checkpoint", "async", "NO", "false" },
    { "accel.checkpoint", "async", "'off'", "false" },
    { "accel.checkpoint", "async", "maybe", NULL },
    { "accel.checkpoint", "async", "1", "true" },
    { "accel.checkpoint", "async", "2", NULL },
    { "accel.preemption", "signal", "USR2", "USR2" },
    { "accel.preemption", "signal", "usr2", "USR2" },
    { "accel.preemption", "signal", "USR3", NULL },
};

static const struct config_key *find(const char *section, const char *name, size_t *row)
{
    size_t n;
    const struct config_key *k = config_schema(&n);

    for (*row = 0; *row < n; ++*row)
        if (!strcmp(k[*row].section, section) && !strcmp(k[*row].name, name))
            return &k[*row];
    tap_diag("no row %s.%s", section, name);
    exit(1);
}

static void test_value(const char *section, const char *key, const char *value,
                       const char *want)
{
    char text[512], got[1100];
    const char *dot = strchr(section, '.');
    struct config c;
    struct config_diags d;
    accel_error_t err;
    accel_status_t status;
    size_t row;
    const struct config_key *k = find(section, key, &row);

    if (!*section)
        snprintf(text, sizeof(text), "distributed_type: FSDP\n%s: %s\n", key, value);
    else if (!dot)
        snprintf(text, sizeof(text), "distributed_type: FSDP\n%s:\n  %s: %s\n", section,
                 key, value);
    else
        snprintf(text, sizeof(text),
                 "distributed_type: FSDP\naccel:\n  %s:\n    %s: %s\n", dot + 1, key,
                 value);
    status = load(text, &c, &d, &err);
    if (!want) {
        tap_ok(status != ACCEL_OK && d.errors == 1 && err.hint[0] && d.item[0].line > 0,
               "%s: %s is refused once, with place and cure", key, value);
    } else if (tap_is_int(status, ACCEL_OK, "%s: %s is accepted", key, value)) {
        config_value_text(&c, k, got, sizeof(got));
        tap_is_str(got, want, "%s: %s means '%s'", key, value, want);
    }
    config_diags_free(&d);
}

static void test_origins(void)
{
    struct config c;
    struct config_diags d;
    size_t debug, cpu, device, keep;

    find("", "debug", &debug);
    find("", "use_cpu", &cpu);
    find("accel", "device", &device);
    find("accel.checkpoint", "keep", &keep);
    tap_is_int(load("# one\ndistributed_type: FSDP\n\nuse_cpu: true\naccel:\n"
                    "  checkpoint:\n    keep: 3\n",
                    &c, &d, NULL),
               ACCEL_OK, "a file with comments and gaps");
    tap_ok(c.origin[cpu] == ORIGIN_FILE && c.line[cpu] == 4, "use_cpu: line 4");
    tap_ok(c.origin[keep] == ORIGIN_FILE && c.line[keep] == 7, "keep: line 7");
    tap_ok(c.origin[debug] == ORIGIN_DEFAULT && c.line[debug] == 0, "debug: default");
    tap_ok(c.device == DEVICE_CPU && c.line[device] == 4, "use_cpu sets the device");
    tap_ok(c.has_accel_section, "has an accel section");
    config_diags_free(&d);
    load("distributed_type: MULTI_CPU\n", &c, &d, NULL);
    tap_ok(c.device == DEVICE_CPU && !c.has_accel_section, "MULTI_CPU means the CPU");
    config_diags_free(&d);
}

static void test_messages(void)
{
    struct config c, before;
    struct config_diags d;
    accel_error_t err;
    char many[2000] = "distributed_type: FSDP\n", want[128];

    config_defaults(&c);
    before = c;
    load("bogus: 1\ndistributed_type: FSDP\nnum_processes: 5\nnum_machines: 2\n", &c,
         &d, &err);
    snprintf(want, sizeof(want), "%s:1:1", config_job);
    tap_is_str(err.where, want, "the error names the first place");
    tap_is_int((long long)d.errors, 2, "cross checks are made besides");
    tap_ok(d.item[0].line == 1 && d.item[1].line == 3, "messages are in file order");
    tap_ok(!memcmp(&c, &before, sizeof(c)), "outputs are set only on success");
    config_diags_free(&d);
    for (int i = 0; i < 100; i++)
        strcat(many, "zz: 1\n");
    load(many, &c, &d, &err);
    tap_is_int((long long)d.count, 20, "at most 20 messages");
    config_diags_free(&d);
    config_diags_free(NULL);
    tap_is_int(load_path("/no/such/dir/x.yaml", &c, &d, &err), ACCEL_ENOENT,
               "a missing directory is ENOENT");
    config_diags_free(&d);
    tap_is_int(load_path("", &c, &d, &err), ACCEL_ENOENT, "so is an empty path");
    config_diags_free(&d);
}

/* What the rest of config/ relies on. */
static void test_schema(void)
{
    size_t n;
    const struct config_key *k = config_schema(&n);
    bool helped = true, unique = true, fits = true;

    for (size_t i = 0; i < n; i++) {
        helped &= k[i].help && k[i].help[0];
        fits &= k[i].offset == SIZE_MAX || k[i].offset < sizeof(struct config);
        for (size_t j = 0; j < i; j++)
            unique &=
                strcmp(k[i].name, k[j].name) || strcmp(k[i].section, k[j].section);
    }
    tap_ok(n <= CONFIG_MAX_KEYS, "%zu rows fit struct config", n);
    tap_ok(helped, "every key has a help line");
    tap_ok(unique, "no key is listed twice");
    tap_ok(fits, "every offset is inside struct config");
}

int main(void)
{
    config_files_make();
    /* A comma as decimal point, where the system has such a locale, must not matter. */
    if (!setlocale(LC_ALL, "de_DE.UTF-8"))
        tap_diag("no de_DE.UTF-8 locale: numbers are tried in C only");
    test_schema();
    test_defaults();
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++)
        test_value(cases[i].section, cases[i].key, cases[i].value, cases[i].want);
    test_origins();
    test_messages();
    config_files_remove();
    return tap_done();
}
