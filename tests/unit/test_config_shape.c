/* SPDX-License-Identifier: Apache-2.0
 *
 * config/: what a machine happened to show never overrides what a job file means. Size
 * and device of the site and the user file beside the distributed_type of a stronger
 * source; the default file of Accelerate.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "tests/tap.h"
#include "tests/world/config_files.h"

static struct config_said reply;

static accel_status_t resolve(const struct config_sources *src, struct config *cfg)
{
    return config_say(src, cfg, &reply);
}

/* ---- who says the type ----------------------------------------------------------- */

#define NO_FILE TYPE("'NO'") "num_processes: 1\nuse_cpu: true\n"
#define GPUS    TYPE("MULTI_GPU") "num_processes: 4\nnum_machines: 1\n"
#define CPU     "accel: {device: cpu}\n"

/* "processes machines device", the places that are told (t) or noted (n). */
static const struct {
    const char *site, *user, *job, *flag, *want, *marks;
} cases[] = {
    /* The report: a login node's file behind a job file. */
    { NULL, NO_FILE, TYPE("MULTI_GPU"), NULL, "0 0 auto", "tt" },
    { NULL, NO_FILE, TYPE("FSDP"), NULL, "0 0 auto", "tt" },
    { NULL, NO_FILE, TYPE("MULTI_CPU"), NULL, "0 0 cpu", "tt" },
    { NULL, NO_FILE, TYPE("FSDP") "num_processes: 8\n", NULL, "8 0 auto", "t" },
    { NULL, NO_FILE, TYPE("FSDP") "use_cpu: true\nnum_processes: 2\n", NULL, "2 0 cpu",
      "" },
    { NULL, NO_FILE, TYPE("'NO'"), NULL, "0 0 auto", "nn" },
    { NULL, NO_FILE, NULL, NULL, "1 0 cpu", "" },
    { NULL, NO_FILE, NULL, "MULTI_GPU", "0 0 auto", "tt" },
    { NULL, NO_FILE, NULL, "NO", "1 0 cpu", "" },
    /* A workstation's. */
    { NULL, GPUS, TYPE("MULTI_GPU"), NULL, "0 0 auto", "nn" },
    { NULL, GPUS, TYPE("MULTI_GPU") "num_machines: 2\n", NULL, "0 2 auto", "n" },
    { NULL, GPUS, TYPE("FSDP"), NULL, "0 0 auto", "tt" },
    { NULL, GPUS, NULL, NULL, "4 1 auto", "" },
    { NULL, GPUS, NULL, "MULTI_GPU", "4 1 auto", "" },
    /* One's own habits, without a type: they stand behind a job file that can have
     * them. */
    { NULL, "num_processes: 4\n", TYPE("FSDP"), NULL, "4 0 auto", "" },
    { NULL, "num_processes: 4\nnum_machines: 2\n", TYPE("'NO'"), NULL, "0 0 auto",
      "tt" },
    { NULL, "num_processes: 1\n", TYPE("'NO'"), NULL, "1 0 auto", "" },
    { NULL, "use_cpu: true\n", TYPE("FSDP"), NULL, "0 0 cpu", "" },
    { NULL, "use_cpu: true\n", TYPE("MULTI_GPU"), NULL, "0 0 auto", "t" },
    { NULL, "use_cpu: true\n", TYPE("MULTI_XPU"), NULL, "0 0 auto", "t" },
    { NULL, "use_cpu: true\n", TYPE("MEGATRON_LM"), NULL, "0 0 auto", "t" },
    { NULL, "use_cpu: false\n", TYPE("MULTI_GPU"), NULL, "0 0 auto", "" },
    { NULL, CPU, TYPE("MULTI_GPU"), NULL, "0 0 auto", "t" },
    { NULL, CPU, TYPE("DEEPSPEED"), NULL, "0 0 cpu", "" },
    { NULL, TYPE("MULTI_GPU") "use_cpu: true\n", NULL, NULL, "0 0 cpu", "" },
    /* The job file, and what is stronger, is not touched. */
    { NULL, NULL, TYPE("MULTI_GPU") "use_cpu: true\n", NULL, "0 0 cpu", "" },
    { NULL, NULL, TYPE("FSDP") "use_cpu: true\nnum_processes: 2\n", "MULTI_GPU",
      "2 0 cpu", "" },
    /* The site's file: below the user's, by the same rule. */
    { "num_processes: 6\n", NO_FILE, TYPE("FSDP"), NULL, "6 0 auto", "tt" },
    { "use_cpu: true\n", NO_FILE, TYPE("FSDP"), NULL, "0 0 cpu", "t" },
    { "use_cpu: true\n", NO_FILE, TYPE("MULTI_GPU"), NULL, "0 0 auto", "tt" },
    { GPUS, "num_machines: 3\n", TYPE("FSDP") "num_processes: 3\n", NULL, "3 3 auto",
      "" },
    { "use_cpu: true\naccel: {lock: [use_cpu]}\n", NULL, TYPE("FSDP"), NULL, "0 0 cpu",
      "" },
};

static void test_cases(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        struct config_setting flag = { "distributed_type", cases[i].flag };
        struct config_sources src = { .flags = &flag,
                                      .flag_count = cases[i].flag != NULL };
        struct config cfg;
        char got[80], marks[8] = "";
        size_t notes = 0;

        src.site_path = cases[i].site ? config_put(config_site, cases[i].site) : NULL;
        src.user_path = cases[i].user ? config_put(config_user, cases[i].user) : NULL;
        src.job_path = cases[i].job ? config_put(config_job, cases[i].job) : NULL;
        if (!tap_is_int(resolve(&src, &cfg), ACCEL_OK, "case %zu is good", i))
            tap_diag("%s", reply.text);
        snprintf(got, sizeof(got), "%lld %lld %s", (long long)cfg.num_processes,
                 (long long)cfg.num_machines,
                 cfg.device == DEVICE_CPU ? "cpu" : "auto");
        tap_is_str(got, cases[i].want, "its size and device");
        for (const char *p = reply.text; (p = strstr(p, "is not applied")); p++)
            notes++;
        for (size_t n = 0; n < notes && n < sizeof(marks) - 1; n++)
            marks[n] = n < reply.told ? 't' : 'n';
        if (!tap_is_str(marks, cases[i].marks, "and what is said"))
            tap_diag("%s", reply.text);
    }
}

/* Both places, and the cure. */
static void test_places(void)
{
    struct config_sources src = { .user_path = config_put(config_user, NO_FILE),
                                  .job_path = config_job };
    struct config cfg;
    char want[400];

    config_put(config_job, "# mine\ndistributed_type: MULTI_GPU\n");
    resolve(&src, &cfg);
    snprintf(
        want, sizeof(want),
        "%s:2:16: note: 'num_processes: 1' is not applied: it belongs to this file's "
        "distributed_type NO, but %s:2 says MULTI_GPU\n",
        config_user, config_job);
    tap_ok(!strncmp(reply.text, want, strlen(want)), "the size");
    snprintf(
        want, sizeof(want),
        "%s:3:10: note: 'use_cpu: true' is not applied: %s:2 says distributed_type "
        "MULTI_GPU\n",
        config_user, config_job);
    tap_ok(strstr(reply.text, want) != NULL, "the device");
    tap_ok(!config_is_given(&cfg, "use_cpu") && !config_is_given(&cfg, "num_processes"),
           "what is set aside is not given");
    config_put(config_user, GPUS);
    resolve(&src, &cfg);
    snprintf(want, sizeof(want),
             "%s:2:16: note: 'num_processes: 4' is not applied: %s:2 sets "
             "distributed_type, and with it size and device\n",
             config_user, config_job);
    tap_ok(!strncmp(reply.text, want, strlen(want)), "of the same type");

    static char *const env[] = { "ACCEL_DISTRIBUTED_TYPE=FSDP", NULL };
    src.job_path = NULL;
    src.env = env;
    resolve(&src, &cfg);
    tap_ok(strstr(reply.text, "but environment ACCEL_DISTRIBUTED_TYPE says FSDP") !=
               NULL,
           "a type from the environment");
}

static void test_locked(void)
{
    struct config_sources src = {
        .site_path =
            config_put(config_site, "accel:\n  device: cpu\n  lock: [accel.device]\n"),
        .job_path = config_put(config_job, TYPE("MULTI_GPU"))
    };
    struct config cfg;
    char want[400];

    tap_is_int(resolve(&src, &cfg), ACCEL_EPOLICY, "a lock does not give way");
    snprintf(
        want, sizeof(want),
        "%s:1:19: error[A0128]: distributed_type MULTI_GPU needs GPUs, but the site "
        "keeps every run on the CPU (%s:3 locks accel.device)\n",
        config_job, config_site);
    tap_ok(!strncmp(reply.text, want, strlen(want)), "both places");
    config_put(config_site, "num_processes: 2\naccel: {lock: [num_processes]}\n");
    config_put(config_job, TYPE("FSDP"));
    config_put(config_user, NO_FILE);
    src.user_path = config_user;
    tap_is_int(resolve(&src, &cfg), ACCEL_EPOLICY, "the user file cannot change it");
    src.user_path = NULL;
    tap_is_int(resolve(&src, &cfg), ACCEL_OK, "a locked size");
    tap_is_int(cfg.num_processes, 2, "holds");
}

/* Values without a field in struct config come back, too. */
static void test_restored(void)
{
    struct config_sources src = { .site_path =
                                      config_put(config_site, "gpu_ids: '0,1'\n"),
                                  .user_path = config_user,
                                  .job_path = config_put(config_job, TYPE("FSDP")),
                                  .without_slurm = true };
    struct config cfg;
    char text[80], place[300];

    config_put(config_user, TYPE("MULTI_GPU") "gpu_ids: '2,3'\nmain_process_port: 7\n");
    resolve(&src, &cfg);
    tap_is_str(config_get(&cfg, "gpu_ids", text, sizeof(text)), "0,1",
               "the site's ids");
    tap_is_str(config_get(&cfg, "main_process_port", text, sizeof(text)), "",
               "no port where the site has none");
    tap_ok(!config_is_given(&cfg, "main_process_port"), "it is not given");
    config_place(&cfg, &src, (size_t)config_row("gpu_ids"), place, sizeof(place));
    snprintf(text, sizeof(text), "%s:1", config_site);
    tap_is_str(place, text, "with their place");
}

/* And their places: a message about the site's value names the site's line. */
static void test_restored_place(void)
{
    struct config_sources src = {
        .site_path = config_put(config_site, "# site\nnum_machines: 3\n"),
        .user_path = config_put(config_user, TYPE("'NO'") "num_machines: 1\n"),
        .job_path = config_put(config_job, TYPE("FSDP") "num_processes: 2\n")
    };
    struct config cfg;
    char want[200];

    tap_is_int(resolve(&src, &cfg), ACCEL_ECONFIG, "three machines, two processes");
    snprintf(want, sizeof(want), "%s:2:15: error[A0117]: num_machines (3) is larger",
             config_site);
    tap_ok(!strncmp(reply.text, want, strlen(want)), "the site's line is named");
}

/* ---- Accelerate's default file --------------------------------------------------- */

/* Which file counts as the user's. */
static const char *found(const char *job_path, struct config_sources *src,
                         struct config_paths *paths)
{
    *src = (struct config_sources){ .job_path = job_path };
    config_sources_default(src, paths);
    return src->user_path ? src->user_path : "none";
}

static void make_dirs(const char *path)
{
    char part[300];

    for (const char *p = strchr(path + strlen(config_dir) + 1, '/'); p;
         p = strchr(p + 1, '/')) {
        snprintf(part, sizeof(part), "%.*s", (int)(p - path), path);
        mkdir(part, 0755);
    }
}

static void remove_file(const char *path)
{
    char part[300];

    unlink(path);
    snprintf(part, sizeof(part), "%s", path);
    for (char *slash = strrchr(part, '/'); slash > part + strlen(config_dir);
         slash = strrchr(part, '/')) {
        *slash = '\0';
        rmdir(part);
    }
}

/* Where it is looked for: HF_HOME, else XDG_CACHE_HOME, else the home. */
static void test_accelerates(void)
{
    static const struct {
        const char *hf, *cache, *file;
    } places[] = {
        { "hub", NULL, "hub/accelerate/default_config.yaml" },
        { "hub", "cache", "hub/accelerate/default_config.yaml" },
        { NULL, "cache", "cache/huggingface/accelerate/default_config.yaml" },
        { "", "cache", "cache/huggingface/accelerate/default_config.yaml" },
        { NULL, NULL, ".cache/huggingface/accelerate/default_config.yaml" },
        { "~/my", NULL, "my/accelerate/default_config.yaml" },
        { "~", NULL, "accelerate/default_config.yaml" },
        { NULL, "~/c", "c/huggingface/accelerate/default_config.yaml" },
    };
    static struct config_paths paths;
    struct config_sources src;
    struct config cfg;
    char value[400], file[300], own[300];

    setenv("HOME", config_dir, 1);
    setenv("XDG_CONFIG_HOME", "some/where", 1);
    snprintf(own, sizeof(own), "%s/.config/accel/config.yaml", config_dir);
    tap_is_str(found(config_job, &src, &paths), own,
               "a relative XDG_CONFIG_HOME is none");
    unsetenv("XDG_CONFIG_HOME");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(places); i++) {
        const char *names[] = { "HF_HOME", "XDG_CACHE_HOME" };
        const char *values[] = { places[i].hf, places[i].cache };

        for (int j = 0; j < 2; j++) {
            bool as_is = values[j] && (!values[j][0] || values[j][0] == '~');

            snprintf(value, sizeof(value), "%s%s%s", as_is ? "" : config_dir,
                     as_is ? "" : "/", values[j] ? values[j] : "");
            if (values[j])
                setenv(names[j], value, 1);
            else
                unsetenv(names[j]);
        }
        snprintf(file, sizeof(file), "%s/%s", config_dir, places[i].file);
        tap_is_str(found(NULL, &src, &paths), own, "%zu: none yet", i);
        make_dirs(file);
        config_put(file, TYPE("MULTI_CPU") "num_processes: 3\n");
        tap_is_str(found(NULL, &src, &paths), file, "%zu: Accelerate's own file", i);
        tap_is_str(paths.user, own, "accel's own is named beside it");
        tap_is_str(found(config_job, &src, &paths), own, "but not behind a job file");
        if (i + 1 < ACCEL_ARRAY_SIZE(places))
            remove_file(file);
    }
    found(NULL, &src, &paths);
    src.site_path = NULL;
    src.env = NULL;
    tap_is_int(resolve(&src, &cfg), ACCEL_OK, "it is read");
    tap_is_int(cfg.num_processes, 3, "and counts");
    snprintf(value, sizeof(value), "%s: note: using Accelerate's own config file",
             file);
    tap_ok(!strncmp(reply.text, value, strlen(value)) && reply.told == 1,
           "which is said");
    make_dirs(own);
    config_put(own, "mixed_precision: bf16\n");
    tap_is_str(found(NULL, &src, &paths), own, "accel's own comes first");
    src.site_path = NULL;
    src.env = NULL;
    tap_ok(resolve(&src, &cfg) == ACCEL_OK && !reply.text[0] && !cfg.num_processes,
           "and then nothing of the other counts");
    remove_file(own);
    remove_file(file);
}

int main(void)
{
    config_files_make();
    test_cases();
    test_places();
    test_locked();
    test_restored();
    test_restored_place();
    test_accelerates();
    tap_is_int(config_files_remove(), 0, "nothing is left");
    return tap_done();
}
