/* SPDX-License-Identifier: Apache-2.0
 *
 * config/: the sources against each other. Who wins for each pair, where a value says
 * it comes from, what a message names, and the variables of all keys.
 */
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "tests/tap.h"
#include "tests/world/config_files.h"

static struct config_said reply;

static accel_status_t resolve(const struct config_sources *src, struct config *cfg)
{
    return config_say(src, cfg, &reply);
}

/* Every non-empty choice of the six sources: the strongest of it wins. */
static void test_precedence(void)
{
    static char *const env[] = { "ACCEL_CHECKPOINT_KEEP=4", "HOME=/x", NULL };
    static const struct config_setting flag = { "accel.checkpoint.keep", "5" };
    static const char *const program[] = { "accel.checkpoint.keep=6", NULL };
    struct config cfg;
    int row = config_row("accel.checkpoint.keep");

    config_put(config_site, "accel: {checkpoint: {keep: 11}}\n");
    config_put(config_user, "# mine\naccel: {checkpoint: {keep: 12}}\n");
    config_put(config_job,
               "distributed_type: FSDP\naccel:\n  checkpoint:\n    keep: 13\n");
    for (unsigned set = 1; set < 64; set++) {
        static const int64_t value[] = { 11, 6, 12, 13, 4, 5 };
        static const int line[] = { 1, 0, 2, 4, 0, 0 };
        struct config_sources src = { .site_path = set & 1 ? config_site : NULL,
                                      .program = set & 2 ? program : NULL,
                                      .user_path = set & 4 ? config_user : NULL,
                                      .job_path = set & 8 ? config_job : NULL,
                                      .env = set & 16 ? env : NULL,
                                      .flags = &flag,
                                      .flag_count = set >> 5 };
        int top = 31 - __builtin_clz(set);

        if (resolve(&src, &cfg))
            tap_ok(false, "sources %u: %s", set, reply.text);
        else
            tap_ok(cfg.ckpt_keep == value[top] && cfg.line[row] == line[top] &&
                       cfg.origin[row] == ORIGIN_SITE + top,
                   "of the sources %u the strongest wins: %lld from %d:%d", set,
                   (long long)cfg.ckpt_keep, cfg.origin[row], cfg.line[row]);
    }
}

/* The variables of the keys: all different, none a variable of our own. */
static void test_names(void)
{
    static const char *const own[] = {
        "ACCEL_BOOT_TIMEOUT_MS",
        "ACCEL_COMM_TIMEOUT_MS",
        "ACCEL_CONFIG",
        "ACCEL_CONFIG_DIGEST",
        "ACCEL_CONFIG_RESOLVED",
        "ACCEL_FIRST_JOB_ID",
        "ACCEL_LAUNCH_ENVIRONMENT",
        "ACCEL_LAUNCH_PORT",
        "ACCEL_LOCAL_RANK",
        "ACCEL_LOCAL_WORLD_SIZE",
        "ACCEL_MASTER_ADDR",
        "ACCEL_MASTER_PORT",
        "ACCEL_MAX_RESTARTS",
        "ACCEL_NODE_RANK",
        "ACCEL_NUM_NODES",
        "ACCEL_OMP_NUM_THREADS",
        "ACCEL_PREEMPTION_NOTICE",
        "ACCEL_RANK",
        "ACCEL_RESTART_COUNT",
        "ACCEL_RESTART_SHORT",
        "ACCEL_RESUME",
        "ACCEL_ROOT",
        "ACCEL_SIZED",
        "ACCEL_TASKS_PER_NODE",
        "ACCEL_WARNING",
        "ACCEL_WORLD_SIZE",
    };
    size_t n, empty = 0;
    const struct config_key *k = config_schema(&n);
    char a[96], b[96];

    for (size_t i = 0; i < n; i++) {
        bool good = true;

        config_env_name(i, a, sizeof(a));
        if (!a[0]) {
            empty++;
            continue;
        }
        good &= strspn(a, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == strlen(a);
        for (size_t j = 0; j < ACCEL_ARRAY_SIZE(own); j++)
            good &= strcmp(a, own[j]) != 0;
        for (size_t j = 0; j < i; j++)
            good &= strcmp(a, config_env_name(j, b, sizeof(b))) != 0;
        tap_ok(good, "%s.%s: %s is its own", k[i].section, k[i].name, a);
    }
    tap_ok(empty <= 5, "only old places have no variable (%zu)", empty);
    tap_is_str(
        config_env_name((size_t)config_row("accel.checkpoint.dir"), a, sizeof(a)),
        "ACCEL_CHECKPOINT_DIR", "ours without 'accel'");
    tap_is_str(config_env_name((size_t)config_row("fsdp_version"), a, sizeof(a)),
               "ACCEL_FSDP_VERSION", "Accelerate's by their full name");
}

/* Each says where the value came from, and the cure. */
static const struct {
    const char *job, *env, *flag_name, *flag_value, *want;
    accel_status_t status;
} said[] = {
    { "distributed_type: FSDP\n", "ACCEL_MIXED_PRECISION=bf61", NULL, NULL,
      "environment ACCEL_MIXED_PRECISION: error[A0104]: 'mixed_precision' cannot be "
      "'bf61'\n"
      "  cure: did you mean 'bf16'?\n",
      ACCEL_ECONFIG },
    { "distributed_type: FSDP\n", "ACCEL_MIXED_PRECISON=bf16", NULL, NULL,
      "environment ACCEL_MIXED_PRECISON: note: ignored: there is no such key\n"
      "  cure: did you mean ACCEL_MIXED_PRECISION?\n",
      ACCEL_OK },
    { "distributed_type: FSDP\n", "ACCEL_SRC=/x", NULL, NULL, "", ACCEL_OK },
    { "distributed_type: FSDP\n", "ACCEL_RESUMES=auto", NULL, NULL, "", ACCEL_OK },
    { "distributed_type: FSDP\n", "ACCEL_NUM_PROCESSES=", NULL, NULL, "", ACCEL_OK },
    { "distributed_type: FSDP\n", NULL, "fsdp_sharding_stratgy", "NO_SHARD",
      "flag fsdp_sharding_stratgy: error[A0205]: there is no such key\n"
      "  cure: did you mean 'fsdp_sharding_strategy'?\n",
      ACCEL_EUSAGE },
    { "distributed_type: FSDP\n", NULL, "num_processes", "0x10",
      "flag num_processes: error[A0102]: 'num_processes' must be a whole number, not "
      "'0x10'\n",
      ACCEL_ECONFIG },
    { "num_machines: 1\n", NULL, NULL, NULL,
      "job.yaml: error[A0108]: the required key 'distributed_type' is missing\n",
      ACCEL_ECONFIG },
    { "num_machines: 1\n", "ACCEL_DISTRIBUTED_TYPE=FSDP", NULL, NULL, "", ACCEL_OK },
    /* Across sources: the place of the key that gives way. */
    { "distributed_type: FSDP\nnum_machines: 2\n", "ACCEL_NUM_PROCESSES=3", NULL, NULL,
      "environment ACCEL_NUM_PROCESSES: error[A0117]: num_processes (3) is "
      "not a multiple of num_machines (2)\n",
      ACCEL_ECONFIG },
    { "distributed_type: FSDP\nnum_machines: 3\n", NULL, "num_processes", "2",
      "job.yaml:2:15: error[A0117]: num_machines (3) is larger than num_processes (2)",
      ACCEL_ECONFIG },
    { "distributed_type: FSDP\nnum_processes: 3\n", "ACCEL_NUM_MACHINES=2",
      "num_processes", "4", "", ACCEL_OK },
};

static void test_messages(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(said); i++) {
        char *env[] = { (char *)said[i].env, NULL };
        struct config_setting flag = { said[i].flag_name, said[i].flag_value };
        struct config_sources src = { .job_path = config_put(config_job, said[i].job),
                                      .env = env,
                                      .flags = &flag,
                                      .flag_count = said[i].flag_name != NULL };
        struct config cfg;
        char *from;

        tap_is_int(resolve(&src, &cfg), said[i].status, "messages %zu: status", i);
        from = strstr(reply.text, "job.yaml");
        from = from && strncmp(reply.text, config_dir, strlen(config_dir)) == 0
                   ? from
                   : reply.text;
        if (said[i].want[0])
            tap_ok(!strncmp(from, said[i].want, strlen(said[i].want)), "says %.*s",
                   (int)strcspn(from, "\n"), from);
        else
            tap_is_str(reply.text, "", "and nothing is said");
    }
}

/* A file that need not be there, and one that is bad. */
static void test_optional(void)
{
    struct config_sources src = { .user_path = config_user, .site_path = config_site };
    struct config cfg;

    unlink(config_user);
    unlink(config_site);
    tap_is_int(resolve(&src, &cfg), ACCEL_OK, "user and site file may be missing");
    tap_is_int(cfg.distributed_type, DIST_MULTI_CPU, "then all is built-in");
    config_put(config_user, "mixed_precision: bf16\nmixed_precison: no\n");
    tap_is_int(resolve(&src, &cfg), ACCEL_ECONFIG, "a bad user file is refused");
    tap_ok(strstr(reply.text,
                  "user.yaml:2:1: error[A0101]: unknown key 'mixed_precison'") != NULL,
           "and named");
    unlink(config_user);
    config_put(config_site, "accel: {device: cpu}\n");
    src.job_path = config_put(config_job, "distributed_type: FSDP\n");
    tap_is_int(resolve(&src, &cfg), ACCEL_OK, "a site default");
    tap_is_int(cfg.device, DEVICE_CPU, "counts where the job file is silent");
}

/* As many keys as can be given together: the text for the tasks has room for all. */
static void test_everything(void)
{
    static const char *const tries[] = {
        "true",  "2",    "1",      "cpu", "/scratch/some/where",
        "false", "0.5",  "HYBRID", "O2",  "torch",
        "name",  "FSDP",
    };
    static struct config_setting flags[CONFIG_MAX_KEYS];
    static char names[CONFIG_MAX_KEYS][96], text[16 << 10];
    size_t n, count = 0;
    const struct config_key *k = config_schema(&n);
    struct config cfg, back;

    for (size_t i = 0; i < n; i++) {
        config_key_path(&k[i], names[i], sizeof(names[i]));
        for (size_t j = 0; j < ACCEL_ARRAY_SIZE(tries) + 1; j++) {
            struct config_sources src = { .flags = flags, .flag_count = count + 1 };

            if (j == ACCEL_ARRAY_SIZE(tries) && k[i].type != TYPE_ENUM)
                break;
            flags[count] = (struct config_setting){
                names[i], j < ACCEL_ARRAY_SIZE(tries) ? tries[j] : k[i].values[0]
            };
            if (resolve(&src, &cfg) == ACCEL_OK) {
                count++;
                break;
            }
        }
    }
    tap_ok(count * 2 > n, "%zu of %zu keys given together", count, n);
    resolve(&(struct config_sources){ .flags = flags, .flag_count = count }, &cfg);
    tap_is_int(config_encode(&cfg, text, sizeof(text), NULL), ACCEL_OK,
               "they fit into 16 KiB");
    tap_is_int(config_decode(text, &back, NULL), ACCEL_OK, "and come back");
    tap_ok(strlen(text) < 12 << 10, "with room for long paths (%zu bytes)",
           strlen(text));
}

int main(void)
{
    config_files_make();
    test_precedence();
    test_names();
    test_messages();
    test_optional();
    test_everything();
    config_files_remove();
    return tap_done();
}
