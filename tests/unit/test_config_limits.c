/* SPDX-License-Identifier: Apache-2.0
 *
 * config/: the caps at their very edge, files that are none, whom the site file may
 * belong to, and what a lock holds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "precision/policy.h"
#include "tests/tap.h"
#include "tests/world/config_files.h"

static struct config_said reply;

#define CHECKPOINT(keys) TYPE("FSDP") "accel: {checkpoint: {" keys "}}\n"

static accel_status_t resolve(const struct config_sources *src, struct config *cfg)
{
    return config_say(src, cfg, &reply);
}

static bool says(const char *text)
{
    bool found = strstr(reply.text, text) != NULL;

    if (!found)
        tap_diag("%s", reply.text);
    return found;
}

/* The job file alone. */
static accel_status_t judge(const char *text, size_t n)
{
    static struct config cfg;

    return resolve(
        &(struct config_sources){ .job_path = config_put_bytes(config_job, text, n) },
        &cfg);
}

/* ---- caps ------------------------------------------------------------------------ */

static void test_size(void)
{
    enum { CAP = 1 << 20 };
    static const char head[] = TYPE("FSDP") "# ";
    char *text = malloc(CAP + 2);

    if (!text)
        exit(1);
    memset(text, 'x', CAP + 1);
    memcpy(text, head, strlen(head));
    tap_is_int(judge(text, CAP), ACCEL_OK, "a file of exactly 1 MiB");
    tap_is_int(judge(text, CAP + 1), ACCEL_ECONFIG, "one byte more");
    tap_ok(says("error[A0111]"), "is too large");
    free(text);
}

static void test_depth(void)
{
    char text[100];

    for (int n = 15; n <= 16; n++) {
        snprintf(text, sizeof(text), "a: %.*s%.*s\n", n, "[[[[[[[[[[[[[[[[", n,
                 "]]]]]]]]]]]]]]]]");
        tap_is_int(judge(text, strlen(text)), ACCEL_ECONFIG, "%d levels", n + 1);
        tap_is_int(strstr(reply.text, "nest deeper than 16 levels") != NULL, n == 16,
                   "too deep or not");
    }
}

static void test_events(void)
{
    static char text[30000];

    for (int n = 9991; n <= 9992; n++) {
        size_t used = (size_t)snprintf(text, sizeof(text), "a: [");

        for (int i = 0; i < n; i++)
            used +=
                (size_t)snprintf(text + used, sizeof(text) - used, "%s1", i ? "," : "");
        snprintf(text + used, sizeof(text) - used, "]\n");
        tap_is_int(judge(text, strlen(text)), ACCEL_ECONFIG, "%d events", n + 9);
        tap_is_int(strstr(reply.text, "more than 10000 YAML events") != NULL, n == 9992,
                   "too many or not");
    }
}

static void test_count(void)
{
    char text[2000] = TYPE("FSDP");
    size_t used = strlen(text);

    for (int i = 0; i < 30; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "zz%d: 1\n", i);
    tap_is_int(judge(text, used), ACCEL_ECONFIG, "30 unknown keys");
    tap_is_int((long long)reply.count, 20, "20 are shown");
    tap_is_int((long long)reply.errors, 20, "and counted");
    tap_ok(strstr(reply.first.where, "job.yaml:2:1") != NULL,
           "the first is the error: %s", reply.first.where);
}

/* A message shows 78 columns of its line, from the first or from 20 before the mistake. */
static void test_shown_columns(void)
{
    static const struct {
        int col, length; /* of the unknown key, of the line */
        int from;        /* the first column that is shown */
    } rows[] = {
        { 25, 77, 1 },   { 25, 78, 1 },   { 25, 79, 1 },
        { 57, 90, 1 },   { 58, 90, 1 },   { 59, 90, 39 },
        { 60, 117, 40 }, { 60, 118, 40 }, { 200, 250, 180 },
    };
    enum { SHOWN = 78 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        char line[300], want[400];
        const int left = rows[i].length - rows[i].from + 1;

        snprintf(line, sizeof(line), "%-*szz: %0*d}", rows[i].col - 1,
                 "{distributed_type: 'NO',", rows[i].length - rows[i].col - 4, 1);
        tap_is_int(judge(line, strlen(line)), ACCEL_ECONFIG, "column %d of %zu",
                   rows[i].col, strlen(line));
        snprintf(want, sizeof(want), "\n  1 | %.*s%s\n    | %*s^^", SHOWN,
                 line + rows[i].from - 1, left > SHOWN ? "..." : "",
                 rows[i].col - rows[i].from, "");
        tap_ok(says(want), "shown from %d on", rows[i].from);
    }
}

/* ---- bytes ----------------------------------------------------------------------- */

static void test_bytes(void)
{
    static const struct {
        const char *text, *code; /* "" : good */
    } files[] = {
        { TYPE("FSDP") "# \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\n", "" },
        { TYPE("FSDP") "# \xed\xa0\x80\n", "A0112" },
        { TYPE("FSDP") "# \xc0\xaf\n", "A0112" },
        { TYPE("FSDP") "# \xf4\x90\x80\x80\n", "A0112" },
        { TYPE("FSDP") "# \xe2\x82\n", "A0112" },
        { "distributed_type: !!str FSDP\n", "A0110" },
        { "distributed_type: &a FSDP\n", "A0110" },
        { TYPE("FSDP") "--- \nx: 1\n", "A0110" },
        { CHECKPOINT("dir: \"a\\eb\""), "A0119" },
        { CHECKPOINT("dir: \"a\\nb\""), "A0119" },
        { CHECKPOINT("dir: 'a b'"), "" },
        { TYPE("FSDP") "num_processes: 2\nnum_machines: 2\n", "" },
        { TYPE("FSDP") "num_processes: 2\nnum_machines: 3\n", "A0117" },
        { TYPE("FSDP") "num_processes: 4\nnum_machines: 3\n", "A0117" },
        { TYPE("'NO'") "num_processes: 1\nnum_machines: 1\n", "" },
        { TYPE("'NO'") "num_processes: 2\n", "A0117" },
        { TYPE("'NO'") "num_machines: 2\n", "A0117" },
        { CHECKPOINT("every_minutes: 0"), "" },
        { CHECKPOINT("every_minutes: 525600"), "" },
        { CHECKPOINT("every_minutes: -0.1"), "A0103" },
        { CHECKPOINT("every_minutes: 525600.1"), "A0103" },
        { CHECKPOINT("every_minutes: 0x10"), "A0102" },
        { CHECKPOINT("every_minutes: 1e999"), "A0103" },
        { CHECKPOINT("keep: 1"), "" },
        { CHECKPOINT("keep: 0"), "A0103" },
        { TYPE("FSDP") "fsdp_config: {}\nfsdp_config: {}\n", "A0106" },
        { TYPE("FSDP") "fsdp_config: {version: 1, fsdp_version: 1}\n", "A0106" },
        { TYPE("FSDP") "fsdp_config: {dynamo_version: 1}\n", "A0101" },
        { TYPE("FSDP") "fsdp_config: {abcd_version: 1}\n", "A0101" },
        { TYPE("DEEPSPEED") "deepspeed_config: {ccumulation_steps: 2}\n", "A0101" },
    };
    char want[20];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(files); i++) {
        accel_status_t status = judge(files[i].text, strlen(files[i].text));

        snprintf(want, sizeof(want), "error[%s]", files[i].code);
        tap_ok(files[i].code[0] ? status != ACCEL_OK && says(want) : status == ACCEL_OK,
               "file %zu: %s", i, files[i].code[0] ? files[i].code : "good");
    }
}

/* ---- files that are none --------------------------------------------------------- */

static void test_kinds(void)
{
    struct config_sources src = { .job_path = config_job };
    struct config cfg;

    unlink(config_job);
    if (mkfifo(config_job, 0600)) {
        perror(config_job);
        exit(1);
    }
    alarm(HANG_S); /* a reader that hangs is ended */
    tap_is_int(resolve(&src, &cfg), ACCEL_ECONFIG, "a fifo without a writer");
    alarm(0);
    tap_ok(says("is a fifo, not a file"), "is named");
    unlink(config_job);
    src.job_path = config_dir;
    tap_is_int(resolve(&src, &cfg), ACCEL_ECONFIG, "a directory");
    src.job_path = "/dev/null";
    tap_is_int(resolve(&src, &cfg), ACCEL_ECONFIG, "a device");
}

/* Everybody's file may only be root's or the caller's; one's own file is one's own. */
static void test_trust(void)
{
    struct config_sources src = { .site_path = config_site };
    struct config cfg;

    config_put(config_site, "mixed_precision: bf16\n");
    tap_is_int(resolve(&src, &cfg), ACCEL_OK, "a site file of the caller");
    chmod(config_site, 0666);
    tap_is_int(resolve(&src, &cfg), ACCEL_EPERM, "one that others may write");
    tap_ok(says("error[A0206]"), "is not trusted");
    src = (struct config_sources){ .user_path = config_site };
    tap_is_int(resolve(&src, &cfg), ACCEL_OK, "a user file may be so");
    unlink(config_site);
    config_put(config_user, "mixed_precision: bf16\n");
    if (symlink(config_user, config_site)) {
        perror(config_site);
        exit(1);
    }
    src = (struct config_sources){ .site_path = config_site };
    tap_is_int(resolve(&src, &cfg), ACCEL_EPERM, "a site file that is a link");
    unlink(config_site);
}

/* A file that cannot be read through says nothing about keys against each other. */
static void test_broken(void)
{
    struct config_sources src = { .user_path =
                                      config_put(config_user, "mixed_precision: [\n"),
                                  .job_path =
                                      config_put(config_job, "num_machines: 2\n") };
    static char *const twice[] = { "ACCEL_CHECKPOINT_KEEP=4", "ACCEL_CHECKPOINT_KEEP=9",
                                   "ACCEL_CHECKPOINT_KEEP=8", NULL };
    struct config cfg;

    tap_is_int(resolve(&src, &cfg), ACCEL_ECONFIG, "a broken user file");
    tap_is_int((long long)reply.errors, 1, "is the only error");
    src = (struct config_sources){ .env = twice };
    tap_ok(resolve(&src, &cfg) == ACCEL_OK && cfg.ckpt_keep == 4,
           "of equal variables the first counts, as for getenv");
}

/* ---- locks ----------------------------------------------------------------------- */

static void test_locks(void)
{
    static char *const same[] = { "ACCEL_CHECKPOINT_KEEP=5", NULL };
    static char *const other[] = { "ACCEL_CHECKPOINT_KEEP=6", NULL };
    struct config_sources src = { .site_path = config_site, .job_path = config_job };
    struct config cfg;
    char want[300];

    config_put(config_site, "accel:\n  lock: [accel.checkpoint.keep, debug]\n"
                            "  checkpoint: {keep: 5}\n");
    config_put(config_job, CHECKPOINT("keep: 5"));
    src.env = same;
    tap_is_int(resolve(&src, &cfg), ACCEL_OK, "the same value may be repeated");
    tap_is_int(cfg.ckpt_keep, 5, "and holds");
    src.env = other;
    tap_is_int(resolve(&src, &cfg), ACCEL_EPOLICY, "another one is refused");
    snprintf(want, sizeof(want), "is locked to '5' by the site (%s:2:10)", config_site);
    tap_ok(says("environment ACCEL_CHECKPOINT_KEEP: error[A0201]") && says(want),
           "with both places");
    src.env = NULL;
    config_put(config_job, TYPE("FSDP") "debug: true\n");
    tap_is_int(resolve(&src, &cfg), ACCEL_EPOLICY, "a lock at what is built in");
    config_put(config_site,
               "mixed_precision: bf16\naccel: {lock: [mixed_precision]}\n");
    config_put(config_job, TYPE("FSDP") "fp16: true\n");
    tap_is_int(resolve(&src, &cfg), ACCEL_OK, "an old key beside a site's value");
    config_put(config_site, "accel: {lock: [mixed_precision]}\n");
    tap_is_int(resolve(&src, &cfg), ACCEL_EPOLICY, "cannot go round a lock");
    unlink(config_site);
    config_put(config_job, TYPE("FSDP") "accel: {lock: [debug]}\n");
    tap_is_int(resolve(&src, &cfg), ACCEL_ECONFIG, "a job file cannot lock");
    tap_ok(says("error[A0203]"), "which is told");
    src = (struct config_sources){ .user_path = config_put(
                                       config_user, "accel: {lock: [debug]}\n") };
    tap_is_int(resolve(&src, &cfg), ACCEL_ECONFIG, "nor can a user file");
    src = (struct config_sources){ .site_path = config_put(
                                       config_site, "accel: {lock: [debgu]}\n") };
    tap_is_int(resolve(&src, &cfg), ACCEL_ECONFIG, "a lock on no key");
    tap_ok(says("error[A0202]") && says("did you mean 'debug'?"), "names the nearest");
    config_put(config_site, "accel: {lock: debug}\n");
    tap_is_int(resolve(&src, &cfg), ACCEL_ECONFIG, "a lock that is no list");
    tap_ok(says("error[A0204]"), "is told");
}

/* ---- the wire of whole copies ---------------------------------------------------- */

static void test_copies(void)
{
    static const struct {
        const char *text;
        bool narrow;
    } files[] = {
        { TYPE("MULTI_CPU") "accel: {precision: {reduce: fp16}}\n", true },
        { TYPE("MULTI_CPU") "accel: {precision: {reduce: float32}}\n", false },
        { TYPE("MULTI_CPU") "mixed_precision: bf16\n", false },
        { TYPE("FSDP") "fsdp_config: {sharding_strategy: NO_SHARD}\naccel: {precision: "
                       "{reduce: e4m3}}\n",
          true },
    };
    struct config_sources src = { .job_path = config_job };
    struct config cfg;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(files); i++) {
        config_put(config_job, files[i].text);
        tap_is_int(resolve(&src, &cfg), ACCEL_OK, "copies %zu", i);
        tap_ok(config_supported(&cfg, NULL) == ACCEL_OK, "run");
        tap_is_int(precision_of(&cfg).narrow_copies, files[i].narrow, "narrow or not");
    }
}

int main(void)
{
    config_files_make();
    test_size();
    test_depth();
    test_events();
    test_count();
    test_shown_columns();
    test_bytes();
    test_kinds();
    test_trust();
    test_broken();
    test_locks();
    test_copies();
    config_files_remove();
    return tap_done();
}
