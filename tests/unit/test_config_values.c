/* SPDX-License-Identifier: Apache-2.0
 *
 * The writer of config files: what a key accepts, written and read again, is the same
 * value, for every row of the schema table and for texts that YAML would take for
 * something else.
 */
#include <stdio.h>
#include <string.h>

#include "cli/config/config_values.h"
#include "tests/tap.h"
#include "tests/world/config_files.h"

static long written;

static const char *const texts[] = {
    "NO",
    "no",
    "yes",
    "On",
    "null",
    "~",
    "y",
    "N",
    "TRUE",
    "12",
    "-1",
    "+3",
    "0x10",
    "1e3",
    ".5",
    "0o7",
    "2001-01-01",
    "12:30:45",
    "a: b",
    "a:b",
    "# x",
    "a #b",
    "it's",
    "\"q\"",
    "back\\slash",
    "- a",
    "-",
    "[x]",
    "{y}",
    "*a",
    "&b",
    "!t",
    "%d",
    "@x",
    "`y`",
    "=",
    "<<",
    "?",
    "|",
    ">",
    ",",
    " lead",
    "trail ",
    "two  blanks",
    "gr\xc3\xb6\xc3\x9f"
    "e",
    "sep\xe2\x80\xa8"
    "end",
    "sep\xe2\x80\xa9",
    "nel\xc2\x85"
    "end",
    "bom\xef\xbb\xbf",
    "nbsp\xc2\xa0"
    "x",
    "/abs/path",
    "a,b",
    "50% of 'it'",
    "'",
    "''",
    "\"",
    "GPT2Block,LlamaDecoderLayer",
    "auto",
    "1",
    "2",
    "3",
    "0",
    "7",
    "16",
    "100",
    "1.5",
};

static accel_status_t by_flag(const char *key, const char *text, struct config *cfg)
{
    struct config_setting flags[] = { { "distributed_type", "FSDP" }, { key, text } };
    struct config_sources src = { .flags = flags, .flag_count = 2 };
    struct config_diags diags;
    accel_status_t status = config_resolve(&src, cfg, &diags, NULL);

    config_diags_free(&diags);
    return status;
}

/* Writes the one value and reads it. */
static bool survives(const char *key, const char *text, char *got, size_t len)
{
    struct config_values v = { 0 };
    struct strbuf yaml = { 0 };
    struct config_sources src = { 0 };
    struct config_diags diags = { 0 };
    struct config cfg;
    accel_error_t err = { 0 };
    bool good = config_values_set(&v, "distributed_type", "FSDP") &&
                config_values_set(&v, key, text);

    config_values_yaml(&v, &yaml);
    src.job_path = config_put_bytes(config_job, yaml.s, yaml.len);
    good = good && !config_resolve(&src, &cfg, &diags, &err);
    if (good)
        config_get(&cfg, key, got, len);
    else
        snprintf(got, len, "%s in %s", err.text, yaml.s);
    config_diags_free(&diags);
    strbuf_free(&yaml);
    config_values_free(&v);
    written++;
    return good;
}

/* The first text that changes on its way, or none. */
static bool try_key(const char *key, const char *const *try, size_t n)
{
    static char want[CONFIG_GIVEN_BYTES], got[CONFIG_GIVEN_BYTES + 1000];
    struct config cfg;

    for (size_t i = 0; i < n; i++) {
        if (!strcmp(key, "distributed_type") || by_flag(key, try[i], &cfg))
            continue; /* no value of this key */
        config_get(&cfg, key, want, sizeof(want));
        if (!want[0])
            continue; /* it says "not given" */
        if (!survives(key, want, got, sizeof(got)) || strcmp(got, want) != 0) {
            tap_diag("%s: '%s' became '%s'", key, want, got);
            return false;
        }
    }
    return true;
}

static void test_round_trip(void)
{
    size_t n;
    const struct config_key *k = config_schema(&n);

    for (size_t i = 0; i < n; i++) {
        char key[128];
        size_t words = 0;

        config_key_path(&k[i], key, sizeof(key));
        if (config_row(key) != (int)i)
            continue; /* an old place of another key */
        while (k[i].type == TYPE_ENUM && k[i].values[words])
            words++;
        tap_ok(try_key(key, texts, ACCEL_ARRAY_SIZE(texts)) &&
                   try_key(key, k[i].values, words) &&
                   try_key(key, (const char *const[]){ "true", "false" }, 2),
               "%s", key);
    }
    tap_ok(written > 200, "%ld values were written and read", written);
}

/* All keys of one file together, and the maps written once each. */
static void test_maps(void)
{
    static const char want[] = "distributed_type: FSDP\n"
                               "fsdp_config:\n"
                               "  fsdp_auto_wrap_policy: NO_WRAP\n"
                               "accel:\n"
                               "  device: cpu\n"
                               "  checkpoint:\n"
                               "    keep: 3\n"
                               "  preemption:\n"
                               "    requeue: false\n";
    struct config_values v = { 0 };
    struct strbuf yaml = { 0 };
    const char *from;

    config_values_set(&v, "accel.preemption.requeue", "false");
    config_values_set(&v, "accel.checkpoint.keep", "3");
    config_values_set(&v, "accel.device", "cpu");
    config_values_set(&v, "fsdp_auto_wrap_policy", "NO_WRAP");
    config_values_set(&v, "distributed_type", "FSDP");
    tap_ok(!config_values_set(&v, "no_such_key", "1"), "an unknown key is refused");
    config_values_yaml(&v, &yaml);
    from = yaml.s[0] == '#' ? strchr(yaml.s, '\n') + 1 : yaml.s;
    tap_is_str(from, want, "maps nest, each once, in the order of the table");
    strbuf_free(&yaml);
    config_values_free(&v);
}

int main(void)
{
    config_files_make();
    test_maps();
    test_round_trip();
    config_files_remove();
    return tap_done();
}
