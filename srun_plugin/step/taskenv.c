/* SPDX-License-Identifier: Apache-2.0
 *
 * srun: the environment that the tasks of this step will get. The validated config and
 * the step come in. One variable goes out, whose name starts with SLURM_ so that it
 * also travels with --export=NONE and with lists; and one line about what the user
 * exported otherwise. remote.c unpacks the variable in each task.
 */
#include "srun_plugin/step/plugin_step.h"

#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/env_names.h"
#include "srun_plugin/options/cmdline.h"
#include "srun_plugin/restart/restart.h"
#include "srun_plugin/messages.h"

/* Both texts while the list is made. */
struct building {
    const struct client *client;
    struct strbuf carrier;
    struct strbuf kept; /* " NAME=value ..." */
};

/* ---- what reaches the tasks ------------------------------------------------------ */

/* The value of `name` in the list of --export, "A,B=1,ALL"; NULL: it is not in it.
 * `buf` is used for values written in the list. */
static const char *listed(const struct user_env *env, const char *list,
                          const char *name, char *buf, size_t len)
{
    size_t n = strlen(name);
    const char *found = NULL;

    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',') {
        if (strncasecmp(p, "ALL", 3) == 0 && (p[3] == ',' || !p[3]))
            found = user_env_get(env, name);
        if (strncmp(p, name, n) != 0)
            continue;
        if (p[n] == '=') {
            snprintf(buf, len, "%.*s", (int)strcspn(p + n + 1, ","), p + n + 1);
            return buf;
        }
        if (p[n] == ',' || !p[n])
            found = user_env_get(env, name);
    }
    return found;
}

/* --export wins over SLURM_EXPORT_ENV; without either everything is exported. */
const char *taskenv_user_value(const struct client *c, const char *name, char *buf,
                               size_t len)
{
    char **words = c->typed.words;
    const char *list = words ? cmdline_option(words, "export", 3) : NULL;

    if (!list)
        list = user_env_get(&c->env, "SLURM_EXPORT_ENV");
    if (!list || !*list)
        return user_env_get(&c->env, name);
    return listed(&c->env, list, name, buf, len);
}

/* ---- the list -------------------------------------------------------------------- */

/* A config_env_f: into the carrier, and into the line if the user has another value. */
static void taskenv_take(void *user, const char *name, const char *value, bool task)
{
    struct building *b = user;
    char buf[1024];

    carrier_add(&b->carrier, name, value, task);
    environ_note_kept(&b->kept, name, value, task,
                      taskenv_user_value(b->client, name, buf, sizeof(buf)));
}

/* Emits a decimal number. */
static void add_number(config_env_f emit, void *user, const char *name, long n)
{
    char text[24];

    snprintf(text, sizeof(text), "%ld", n);
    emit(user, name, text, false);
}

/* Emits a variable that another part of the plugin has set for the tasks. */
static void add_exported(config_env_f emit, void *user, const char *name)
{
    const char *value = getenv(name);

    if (value)
        emit(user, name, value, false);
}

/* Where the ranks report, and the file of each. A dry run has no step yet. */
static void add_reports(const struct client *c, config_env_f emit, void *user)
{
    char word[PATH_MAX + 16];

    if (!c->reports[0] && !c->dry_run)
        return;
    snprintf(word, sizeof(word), "error_file=%s", c->reports);
    emit(user, ENV_STEP_REPORTS, c->reports, false);
    emit(user, "TORCHELASTIC_ERROR_FILE", word, true);
}

/* Where GPUs are a resource of Slurm, a step has the ones it was given: with gpu_ids it
 * would take the GPUs of other jobs. Asks the controller only when the key is given; no
 * answer counts as yes. */
static bool slurm_chooses_gpus(const struct job_file *f)
{
    slurm_conf_t *conf = NULL;
    char ids[256];
    bool found = false;

    job_file_value(f, "gpu_ids", ids, sizeof(ids));
    if (!ids[0] || !strcmp(ids, "all"))
        return false;
    if (slurm_load_ctl_conf(0, &conf) != SLURM_SUCCESS || !conf)
        return true;
    for (const char *p = conf->gres_plugins; p && *p && !found;
         p += strcspn(p, ","), p += *p == ',')
        found = strcspn(p, ",") == strlen("gpu") && !strncmp(p, "gpu", strlen("gpu"));
    slurm_free_ctl_conf(conf);
    return found;
}

/* Also the list of the dry run. Everything in it is the same for all tasks; what
 * differs is marked as such. */
accel_status_t taskenv_list(const struct client *c, const struct config_world *world,
                            config_env_f emit, void *user, accel_error_t *err)
{
    const struct config *cfg = &c->file.config;
    struct config_world w = *world;
    char python_dir[PATH_MAX], *resolved = malloc(RESOLVED_MAX + 1);
    accel_status_t st = ACCEL_OK;

    if (!resolved)
        return accel_fail_nomem(err, "the resolved config", RESOLVED_MAX + 1);
    w.devices_chosen = slurm_chooses_gpus(&c->file);
    w.python_dir = python_modules_dir(python_dir, sizeof(python_dir));
    st = c->file.api->encode(cfg, resolved, RESOLVED_MAX + 1, err);
    if (st == ACCEL_OK) {
        emit(user, ENV_CONFIG, c->file.path, false);
        emit(user, ENV_RESOLVED, resolved, false);
        add_number(emit, user, ENV_RESTART_COUNT, restarts_count(&c->env));
        add_number(emit, user, ENV_FIRST_JOB, restarts_first_job(&c->env, c->job_id));
        add_exported(emit, user, ENV_NOTICE);
        add_exported(emit, user, ENV_WARNING);
        add_exported(emit, user, ENV_RESUME);
        add_reports(c, emit, user);
        st = c->file.api->environment(cfg, &w, emit, user, err);
    }
    free(resolved);
    return st;
}

/* The tasks per node come first, because the rank follows from them and remote.c reads
 * the list in order. */
bool taskenv_export(const struct client *c, const struct config_world *world,
                    const char *tasks_per_node)
{
    struct building b = { .client = c };
    accel_error_t err = { 0 };
    accel_status_t st;

    carrier_start(&b.carrier);
    carrier_add(&b.carrier, ENV_TASKS_PER_NODE, tasks_per_node, false);
    st = taskenv_list(c, world, taskenv_take, &b, &err);
    ACCEL_TRY(st, carrier_seal(&b.carrier, &err));
    if (st == ACCEL_OK && (setenv(ENV_CARRIER, b.carrier.s, 1) != 0 ||
                           setenv(ENV_STEP_ENDS, c->reports, 1) != 0))
        st = accel_fail_nomem(&err, "the tasks' environment", b.carrier.len);
    if (st != ACCEL_OK)
        plugin_report(&err);
    else if (b.kept.s)
        slurm_info(
            "accel: kept from your environment:%s (unset them to let accel set them)",
            b.kept.s);
    strbuf_free(&b.carrier);
    strbuf_free(&b.kept);
    return st == ACCEL_OK;
}
