/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel config default` and `accel config update`: a config file from what this
 * machine offers, and an older file of Accelerate in the form that its
 * questionnaire writes today.
 */
#include "cli/config/config_values.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/config/settings.h"
#include "topology/topo.h"

/* Keys that every file of Accelerate has, with the value for files that lack them. */
static const struct {
    const char *key, *text;
} base[] = {
    { "compute_environment", "LOCAL_MACHINE" },
    { "debug", "false" },
    { "downcast_bf16", "no" },
    { "enable_cpu_affinity", "false" },
    { "machine_rank", "0" },
    { "main_training_function", "main" },
    { "num_machines", "1" },
    { "rdzv_backend", "static" },
    { "same_network", "false" },
    { "tpu_use_cluster", "false" },
    { "tpu_use_sudo", "false" },
    { "use_cpu", "false" },
};

/* Adds the missing base keys and the number of processes: Accelerate's own
 * questionnaire leaves none of them out. */
static bool fill_base(struct config_values *v)
{
    const char *type = config_values_get(v, "distributed_type");
    bool good = true;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(base); i++)
        if (!config_values_get(v, base[i].key))
            good &= config_values_set(v, base[i].key, base[i].text);
    /* -1 is Accelerate's "not given". Only a run of one process has a count
     * that can be assumed. */
    if (!config_values_get(v, "num_processes"))
        good &= config_values_set(v, "num_processes",
                                  type && !strcmp(type, "NO") ? "1" : "-1");
    return good;
}

int config_write_values(const struct config_values *v, const char *path, bool *kept_out)
{
    struct strbuf text = { 0 };
    accel_error_t err;
    accel_status_t st;

    config_values_yaml(v, &text);
    st = kept_out ? config_file_replace(path, &text, kept_out, &err)
                  : config_file_write(path, &text, false, &err);
    strbuf_free(&text);
    return st ? cli_fail(&err) : 0;
}

/* ---- default --------------------------------------------------------------------- */

/* The GPUs of this machine as NVML lists them. -1: there is no NVML to ask. */
static int count_nvml(void)
{
    struct topo_machine *m;
    accel_error_t err;
    int n = -1;

    if (topo_machine_open(&m, NULL, TOPO_GPUS_TOO, &err))
        return -1;
    if (topo_machine_gpus(m)->known)
        n = topo_machine_gpus(m)->count;
    topo_machine_close(m);
    return n;
}

/* The devices a CUDA program would see: the visible list, else NVML's count, else
 * device files (a driver without its library). */
static int count_gpus(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    struct dirent *e;
    DIR *dir;
    int n = 0, listed;

    /* An empty list hides all GPUs. */
    if (visible) {
        while (*visible && *visible != '-') { /* -1 ends the list */
            size_t len = strcspn(visible, ",");

            n += len > 0;
            visible += len + (visible[len] == ',');
        }
        return n;
    }
    listed = count_nvml();
    if (listed >= 0)
        return listed;
    /* nvidia0, nvidia1 ...; nvidiactl and nvidia-uvm are not GPUs. */
    dir = opendir("/dev");
    if (!dir)
        return 0;
    while ((e = readdir(dir)))
        n += !strncmp(e->d_name, "nvidia", 6) && isdigit((unsigned char)e->d_name[6]);
    closedir(dir);
    return n;
}

/* A machine without GPUs may be the login node of a cluster full of them: the file then
 * says nothing about the device and the size of a run. */
static bool leave_open(struct config_values *v)
{
    static const char *const keys[] = { "use_cpu", "num_processes", "num_machines" };
    bool good = true;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(keys); i++)
        good &= config_values_set(v, keys[i], NULL);
    return good;
}

/* Never replaces a file: `default` is meant for a first run. */
int config_default(const char *path, const char *precision)
{
    struct config_values v = { 0 };
    int gpus = count_gpus(), code;
    char count[16];

    /* One process per GPU, on this machine. */
    snprintf(count, sizeof(count), "%d", gpus);
    if (!config_values_set(&v, "distributed_type", gpus > 1 ? "MULTI_GPU" : "NO") ||
        !config_values_set(&v, "num_processes", count) ||
        !config_values_set(&v, "mixed_precision", precision ? precision : "no") ||
        !fill_base(&v) || (!gpus && !leave_open(&v)))
        code = cli_no_memory("the config file");
    else
        code = config_write_values(&v, path, NULL);
    /* Says what was decided: the user has answered no question. */
    if (!code && gpus)
        printf("%s: written for %d GPU%s\n", path, gpus, gpus == 1 ? "" : "s");
    else if (!code)
        printf(
            "%s: written; no GPU is visible here, but jobs may run on nodes with GPUs: "
            "each job sets its device and number of processes\n",
            path);
    config_values_free(&v);
    return cli_finish(code);
}

/* ---- update ---------------------------------------------------------------------- */

/* Old top-level keys that have moved: fp16 became a value of mixed_precision,
 * dynamo_backend went into its map. A value in the new place wins. */
static bool move_old_keys(struct config_values *v)
{
    size_t n;
    const struct config_key *k = config_schema(&n);
    bool good = true;

    for (size_t i = 0; i < n && good; i++) {
        /* Only the top level has old names. */
        if (!v->text[i] || k[i].section[0])
            continue;
        if (!strcmp(k[i].name, "fp16")) {
            if (!strcmp(v->text[i], "true") && !config_values_get(v, "mixed_precision"))
                good = config_values_set(v, "mixed_precision", "fp16");
        } else if (!strcmp(k[i].name, "dynamo_backend")) {
            if (!config_values_get(v, "dynamo_config.dynamo_backend"))
                good = config_values_set(v, "dynamo_config.dynamo_backend", v->text[i]);
        } else {
            continue;
        }
        /* By row, not by name: the new place may have the same name. */
        free(v->text[i]);
        v->text[i] = NULL;
    }
    return good;
}

/* A file in today's form already is left untouched, without a .bak. */
static int update_values(struct config_values *v, const char *path)
{
    bool kept;
    int code = config_write_values(v, path, &kept);

    if (!code && kept)
        printf("%s: rewritten; the old file is %s.bak\n", path, path);
    else if (!code)
        printf("%s: already has the current form\n", path);
    return cli_finish(code);
}

/* The file alone is read: values from the environment do not belong into it. */
int config_update(const char *path)
{
    struct config_values v = { 0 };
    struct cli_config c;
    int code = cli_config_load(path, &(struct cli_settings){ .alone = true }, &c);

    if (code)
        return code;
    if (!config_values_take(&v, &c.config, ORIGIN_FILE) || !move_old_keys(&v) ||
        !fill_base(&v))
        code = cli_no_memory("the config file");
    else
        code = update_values(&v, path);
    config_values_free(&v);
    return code;
}
