/* SPDX-License-Identifier: Apache-2.0
 *
 * config/: what a program sets, against the other sources: read here with them, and on
 * top of what was resolved where the job was started. Both ways give the same values.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "tests/tap.h"
#include "tests/world/config_files.h"

static struct config_said reply;

/* The sources go through the canonical text first, as from srun to a task. */
static accel_status_t resolve_twice(const struct config_sources *src,
                                    const char *const *settings, struct config *cfg)
{
    static char text[16 << 10];
    struct config_sources task = { .program = settings };
    struct config start;
    accel_status_t st = config_say(src, &start, &reply);

    if (st || config_encode(&start, text, sizeof(text), NULL) ||
        config_decode(text, &start, NULL))
        return st ? st : ACCEL_EBUG;
    task.resolved = &start;
    return config_say(&task, cfg, &reply);
}

static accel_status_t resolve_once(const struct config_sources *src,
                                   const char *const *settings, struct config *cfg)
{
    struct config_sources all = *src;

    all.program = settings;
    return config_say(&all, cfg, &reply);
}

typedef accel_status_t (*resolve_f)(const struct config_sources *, const char *const *,
                                    struct config *);
static const struct {
    const char *name;
    resolve_f resolve;
} ways[] = { { "at once", resolve_once }, { "after srun", resolve_twice } };

#define FSDP TYPE("FSDP")

/* ---- who wins -------------------------------------------------------------------- */

/* The program sets `set`: its value counts, or that of another source. */
static const struct {
    const char *site, *user, *job, *env, *set;
    const char *counts;      /* what another source says; NULL: the program's value */
    const char *key, *means; /* what to look at; NULL: what is set, as it is set */
} cases[] = {
    { .set = "mixed_precision=bf16" },
    { .job = FSDP, .set = "mixed_precision=bf16" },
    { .job = FSDP "mixed_precision: 'no'\n",
      .set = "mixed_precision=bf16",
      .counts = "no" },
    { .user = "mixed_precision: 'no'\n",
      .set = "mixed_precision=bf16",
      .counts = "no" },
    { .site = "mixed_precision: 'no'\n", .set = "mixed_precision=bf16" },
    { .env = "ACCEL_CHECKPOINT_KEEP=4",
      .set = "accel.checkpoint.keep=5",
      .counts = "4" },
    { .set = "accel.checkpoint.dir=/a;b=c" },
    { .set = "accel.track=jsonl, csv" },
    { .job = FSDP,
      .set = "fsdp_config.fsdp_sharding_strategy=NO_SHARD",
      .key = "fsdp_sharding_strategy" },
    { .set = "distributed_type=FSDP" },
    { .set = "debug=true" },
    { .env = "ACCEL_DEBUG=false", .set = "debug=true", .counts = "false" },
    { .job = "distributed_type: 'NO'\nfp16: true\n",
      .set = "mixed_precision=bf16",
      .counts = "fp16" },
    /* a value that follows from another key is as strong as that key */
    { .job = FSDP "use_cpu: true\n", .set = "accel.device=auto", .counts = "cpu" },
    { .job = FSDP, .set = "use_cpu=true", .key = "accel.device", .means = "cpu" },
    /* the device goes with the type */
    { .job = "distributed_type: MULTI_GPU\n",
      .set = "use_cpu=true",
      .counts = "false" },
    { .site = "use_cpu: true\n",
      .set = "distributed_type=MULTI_GPU",
      .key = "use_cpu",
      .counts = "false" },
    { .job = "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\n",
      .set = "zero_stage=1",
      .counts = "3" },
    { .site = "accel: {lock: [debug]}\n", .set = "debug=no", .means = "false" },
};

static void put_sources(struct config_sources *src, char **env, size_t i)
{
    env[0] = (char *)cases[i].env;
    env[1] = NULL;
    *src = (struct config_sources){ .env = env };
    if (cases[i].site)
        src->site_path = config_put(config_site, cases[i].site);
    if (cases[i].user)
        src->user_path = config_put(config_user, cases[i].user);
    if (cases[i].job)
        src->job_path = config_put(config_job, cases[i].job);
}

static void test_winners(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++)
        for (size_t way = 0; way < ACCEL_ARRAY_SIZE(ways); way++) {
            const char *set[] = { cases[i].set, NULL };
            const char *value = strchr(cases[i].set, '=') + 1;
            const char *want = cases[i].counts  ? cases[i].counts
                               : cases[i].means ? cases[i].means
                                                : value;
            struct config_sources src;
            struct config cfg;
            char *env[2], key[64], got[64] = "?", where[256];
            accel_status_t st;

            snprintf(key, sizeof(key), "%.*s", (int)(value - 1 - cases[i].set),
                     cases[i].set);
            if (cases[i].key)
                snprintf(key, sizeof(key), "%s", cases[i].key);
            put_sources(&src, env, i);
            st = ways[way].resolve(&src, set, &cfg);
            if (!st)
                config_get(&cfg, key, got, sizeof(got));
            config_where(&cfg, key, where, sizeof(where));
            tap_ok(!st && !strcmp(got, want) &&
                       (strncmp(where, "the program's ", 14) == 0) == !cases[i].counts,
                   "%s, %s: %s from %s %s", cases[i].set, ways[way].name, got, where,
                   reply.text);
        }
}

/* ---- what is refused ------------------------------------------------------------- */

static const struct {
    const char *set, *want;
    accel_status_t status;
    const char *site, *job;
} refused[] = {
    { "mixed_precison=bf16",
      "the program's mixed_precison: error[A0205]: there is no such key\n"
      "  cure: did you mean 'mixed_precision'?\n",
      .status = ACCEL_EUSAGE },
    { "mixed_precision=bf61",
      "the program's mixed_precision: error[A0104]: 'mixed_precision' cannot be "
      "'bf61'\n  cure: did you mean 'bf16'?\n",
      .status = ACCEL_ECONFIG },
    { "accel.checkpoint.keep=none",
      "the program's accel.checkpoint.keep: error[A0102]: 'keep' must be",
      .status = ACCEL_ECONFIG },
    /* a mistake in the program is one even where its value would not count */
    { "mixed_precision=bf61", "error[A0104]", ACCEL_ECONFIG,
      .job = FSDP "mixed_precision: bf16\n" },
    { "mixed_precision", "the program's mixed_precision: error[A0975]",
      .status = ACCEL_EINVAL },
    { "num_processes=4",
      "the program's num_processes: error[A0976]: 'num_processes' is decided "
      "before the program starts\n  cure: remove it: srun, mpirun or accel "
      "launch starts",
      .status = ACCEL_EINVAL },
    { "num_machines=2", "error[A0976]", .status = ACCEL_EINVAL },
    { "accel.preemption.signal=USR2", "cure: remove it: srun and sbatch",
      .status = ACCEL_EINVAL },
    { "main_process_port=29500", "cure: remove it: every step gets a free port",
      .status = ACCEL_EINVAL },
    { "machine_rank=0", "error[A0976]", .status = ACCEL_EINVAL },
    { "iam_role_name=x", "the program's iam_role_name: error[A0105]",
      .status = ACCEL_EUNSUPPORTED },
    { "debug=true",
      "the program's debug: error[A0201]: 'debug' is locked to 'false' by the "
      "site (",
      ACCEL_EPOLICY, .site = "accel: {lock: [debug]}\n" },
    { "mixed_precision=no", "locked to 'bf16'", ACCEL_EPOLICY,
      .site = "mixed_precision: bf16\naccel: {lock: [mixed_precision]}\n" },
    { "fsdp_version=2", "error[A0201]", ACCEL_EPOLICY,
      .site = "accel: {lock: [fsdp_version]}\n" },
    /* between two sources */
    { "fsdp_forward_prefetch=true", "the program's fsdp_forward_prefetch: error[A0122]",
      ACCEL_ECONFIG, .job = FSDP "fsdp_config: {fsdp_version: 2}\n" },
    { "fsdp_version=2", "job.yaml:3", ACCEL_ECONFIG,
      .job = FSDP "fsdp_config:\n  fsdp_forward_prefetch: true\n" },
    { "accel.track=xml", "the program's accel.track: error", .status = ACCEL_ECONFIG },
};

static void test_refused(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(refused); i++)
        for (size_t way = 0; way < ACCEL_ARRAY_SIZE(ways); way++) {
            const char *set[] = { refused[i].set, NULL };
            struct config_sources src = { 0 };
            struct config cfg;
            accel_status_t st;

            if (refused[i].site)
                src.site_path = config_put(config_site, refused[i].site);
            if (refused[i].job)
                src.job_path = config_put(config_job, refused[i].job);
            st = ways[way].resolve(&src, set, &cfg);
            tap_ok(st == refused[i].status && strstr(reply.text, refused[i].want),
                   "%s, %s: %s", refused[i].set, ways[way].name, reply.text);
        }
}

/* ---- DeepSpeed's own file -------------------------------------------------------- */

/* The file is read where the job starts. A task, which may not have it, keeps what it
 * said; the program cannot set its keys beside it. */
static void test_deepspeed_file(void)
{
    static const char *const clip[] = { "accel.track=csv", NULL };
    static const char *const stage[] = { "zero_stage=1", NULL };
    static char text[16 << 10];
    struct config start, cfg;
    char file[128], job[256];
    struct config_sources src = { .job_path = config_job },
                          task = { .resolved = &start, .program = clip };

    snprintf(file, sizeof(file), "%s/ds.json", config_dir);
    config_put(file, "{\"zero_optimization\": {\"stage\": 2}}");
    snprintf(job, sizeof(job),
             "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: "
             "%s}\n",
             file);
    config_put(config_job, job);
    tap_ok(!config_say(&src, &start, &reply) &&
               !config_encode(&start, text, sizeof(text), NULL) &&
               !config_decode(text, &start, NULL),
           "a DeepSpeed file %s", reply.text);
    unlink(file);
    tap_ok(!config_say(&task, &cfg, &reply) && config_get_int(&cfg, "zero_stage") == 2,
           "is not read again %s", reply.text);
    task.program = stage;
    tap_ok(config_say(&task, &cfg, &reply) == ACCEL_ECONFIG &&
               strstr(reply.text, "the program's zero_stage: error[A0150]"),
           "%s", reply.text);
}

/* Of two settings of a key the last one counts, as of flags. */
static void test_order(void)
{
    static const char *const twice[] = { "accel.checkpoint.keep=5", "debug=true",
                                         "accel.checkpoint.keep=7", NULL };

    for (size_t way = 0; way < ACCEL_ARRAY_SIZE(ways); way++) {
        struct config_sources src = { 0 };
        struct config cfg;

        tap_ok(!ways[way].resolve(&src, twice, &cfg) && cfg.ckpt_keep == 7 && cfg.debug,
               "the last one counts, %s %s", ways[way].name, reply.text);
    }
}

int main(void)
{
    config_files_make();
    test_winners();
    test_refused();
    test_deepspeed_file();
    test_order();
    tap_is_int(config_files_remove(), 0, "removed");
    return tap_done();
}
