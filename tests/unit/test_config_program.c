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

/* ---- who wins -------------------------------------------------------------------- */

/* `wins` 1: the program's value counts. */
static const struct {
    const char *site, *user, *job, *env, *set, *key, *want;
    bool wins;
} cases[] = {
    { .set = "mixed_precision=bf16",
      .key = "mixed_precision",
      .want = "bf16",
      .wins = true },
    { .job = "distributed_type: FSDP\n",
      .set = "mixed_precision=bf16",
      .key = "mixed_precision",
      .want = "bf16",
      .wins = true },
    { .job = "distributed_type: FSDP\nmixed_precision: 'no'\n",
      .set = "mixed_precision=bf16",
      .key = "mixed_precision",
      .want = "no" },
    { .user = "mixed_precision: 'no'\n",
      .set = "mixed_precision=bf16",
      .key = "mixed_precision",
      .want = "no" },
    { .site = "mixed_precision: 'no'\n",
      .set = "mixed_precision=bf16",
      .key = "mixed_precision",
      .want = "bf16",
      .wins = true },
    { .env = "ACCEL_CHECKPOINT_KEEP=4",
      .set = "accel.checkpoint.keep=5",
      .key = "accel.checkpoint.keep",
      .want = "4" },
    { .set = "accel.checkpoint.dir=/a;b=c",
      .key = "accel.checkpoint.dir",
      .want = "/a;b=c",
      .wins = true },
    { .set = "accel.track=jsonl, csv",
      .key = "accel.track",
      .want = "jsonl, csv",
      .wins = true },
    { .job = "distributed_type: FSDP\n",
      .key = "fsdp_sharding_strategy",
      .set = "fsdp_config.fsdp_sharding_strategy=NO_SHARD",
      .want = "NO_SHARD",
      .wins = true },
    { .set = "distributed_type=FSDP",
      .key = "distributed_type",
      .want = "FSDP",
      .wins = true },
    { .set = "debug=true", .key = "debug", .want = "true", .wins = true },
    { .env = "ACCEL_DEBUG=false",
      .set = "debug=true",
      .key = "debug",
      .want = "false" },
    { .job = "distributed_type: 'NO'\nfp16: true\n",
      .set = "mixed_precision=bf16",
      .key = "mixed_precision",
      .want = "fp16" },
    /* a value that follows from another key is as strong as that key */
    { .job = "distributed_type: FSDP\nuse_cpu: true\n",
      .set = "accel.device=auto",
      .key = "accel.device",
      .want = "cpu" },
    { .job = "distributed_type: FSDP\n",
      .set = "use_cpu=true",
      .key = "accel.device",
      .want = "cpu",
      .wins = true },
    /* the device goes with the type */
    { .job = "distributed_type: MULTI_GPU\n",
      .set = "use_cpu=true",
      .key = "use_cpu",
      .want = "false" },
    { .site = "use_cpu: true\n",
      .set = "distributed_type=MULTI_GPU",
      .key = "use_cpu",
      .want = "false" },
    { .job = "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\n",
      .set = "zero_stage=1",
      .key = "zero_stage",
      .want = "3" },
    { .site = "accel: {lock: [debug]}\n",
      .set = "debug=no",
      .key = "debug",
      .want = "false",
      .wins = true },
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
            struct config_sources src;
            struct config cfg;
            char *env[2], got[64] = "?", where[256];
            accel_status_t st;

            put_sources(&src, env, i);
            st = ways[way].resolve(&src, set, &cfg);
            if (!st)
                config_get(&cfg, cases[i].key, got, sizeof(got));
            config_where(&cfg, cases[i].key, where, sizeof(where));
            tap_ok(!st && !strcmp(got, cases[i].want) &&
                       (strncmp(where, "the program's ", 14) == 0) == cases[i].wins,
                   "%s, %s: %s from %s %s", cases[i].set, ways[way].name, got, where,
                   reply.text);
        }
}

/* ---- what is refused ------------------------------------------------------------- */

static const struct {
    const char *site, *job, *set, *want;
    accel_status_t status;
} refused[] = {
    { .set = "mixed_precison=bf16",
      .want = "the program's mixed_precison: error[A0205]: there is no such key\n"
              "  cure: did you mean 'mixed_precision'?\n",
      .status = ACCEL_EUSAGE },
    { .set = "mixed_precision=bf61",
      .want =
          "the program's mixed_precision: error[A0104]: 'mixed_precision' cannot be "
          "'bf61'\n  cure: did you mean 'bf16'?\n",
      .status = ACCEL_ECONFIG },
    { .set = "accel.checkpoint.keep=none",
      .want = "the program's accel.checkpoint.keep: error[A0102]: 'keep' must be",
      .status = ACCEL_ECONFIG },
    /* a mistake in the program is one even where its value would not count */
    { .job = "distributed_type: FSDP\nmixed_precision: bf16\n",
      .set = "mixed_precision=bf61",
      .want = "error[A0104]",
      .status = ACCEL_ECONFIG },
    { .set = "mixed_precision",
      .want = "the program's mixed_precision: error[A0975]",
      .status = ACCEL_EINVAL },
    { .set = "num_processes=4",
      .want = "the program's num_processes: error[A0976]: 'num_processes' is decided "
              "before the program starts\n  cure: remove it: srun, mpirun or accel "
              "launch starts",
      .status = ACCEL_EINVAL },
    { .set = "num_machines=2", .want = "error[A0976]", .status = ACCEL_EINVAL },
    { .set = "accel.preemption.signal=USR2",
      .want = "cure: remove it: srun and sbatch",
      .status = ACCEL_EINVAL },
    { .set = "main_process_port=29500",
      .want = "cure: remove it: every step gets a free port",
      .status = ACCEL_EINVAL },
    { .set = "machine_rank=0", .want = "error[A0976]", .status = ACCEL_EINVAL },
    { .set = "iam_role_name=x",
      .want = "the program's iam_role_name: error[A0105]",
      .status = ACCEL_EUNSUPPORTED },
    { .site = "accel: {lock: [debug]}\n",
      .set = "debug=true",
      .want = "the program's debug: error[A0201]: 'debug' is locked to 'false' by the "
              "site (",
      .status = ACCEL_EPOLICY },
    { .site = "mixed_precision: bf16\naccel: {lock: [mixed_precision]}\n",
      .set = "mixed_precision=no",
      .want = "locked to 'bf16'",
      .status = ACCEL_EPOLICY },
    { .site = "accel: {lock: [fsdp_version]}\n",
      .set = "fsdp_version=2",
      .want = "error[A0201]",
      .status = ACCEL_EPOLICY },
    /* between two sources */
    { .job = "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n",
      .set = "fsdp_forward_prefetch=true",
      .want = "the program's fsdp_forward_prefetch: error[A0122]",
      .status = ACCEL_ECONFIG },
    { .job = "distributed_type: FSDP\nfsdp_config:\n  fsdp_forward_prefetch: true\n",
      .set = "fsdp_version=2",
      .want = "job.yaml:3",
      .status = ACCEL_ECONFIG },
    { .set = "accel.track=xml",
      .want = "the program's accel.track: error",
      .status = ACCEL_ECONFIG },
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
