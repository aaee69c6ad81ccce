/* SPDX-License-Identifier: Apache-2.0
 *
 * srun, before the tasks start: what this site grants a job that has to go. The job's
 * partition and the cluster's settings come in from the controller, and the warning
 * that was asked for. Two variables go out to the tasks, which know how long a
 * checkpoint takes and whether they handle the warning; and a line about a time limit
 * that is too short.
 */
#include "srun_plugin/step/plugin_step.h"

#include <dlfcn.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/common.h"
#include "common/env_names.h"
#include "common/thread.h"
#include "srun_plugin/plugin.h"

/* Slurm looks at time limits this often. */
#define SCAN_SECONDS 30

/* With a limit shorter than the lead of the warning, the run would stop, saved, after
 * the first step of each start. */
static void check_limit(const struct config *cfg, const slurm_job_info_t *job)
{
    long long limit = (long long)job->time_limit * 60;

    if (job->time_limit < NO_VAL && limit <= cfg->preempt_lead_seconds)
        slurm_info(
            "accel: the time limit of %lld s is not longer than "
            "accel.preemption.lead_seconds %lld: the run will be told to stop as soon "
            "as it starts; use a longer --time or a smaller lead_seconds",
            limit, (long long)cfg->preempt_lead_seconds);
}

/* The flags may be combined (GANG); the first that ends or stops a job counts. */
static const char *mode_name(uint16_t mode)
{
    if (mode & PREEMPT_MODE_REQUEUE)
        return "REQUEUE";
    if (mode & PREEMPT_MODE_CANCEL)
        return "CANCEL";
    return mode & PREEMPT_MODE_SUSPEND ? "SUSPEND" : "OFF";
}

/* The settings that srun itself runs by; asking the controller costs a request. */
static const slurm_conf_t *own_settings(void)
{
    return dlsym(RTLD_DEFAULT, "slurm_conf");
}

/* True on most sites: that is Slurm's default. */
static bool preempts_nothing(const slurm_conf_t *conf)
{
    return !conf->preempt_type || strcmp(conf->preempt_type, "preempt/none") == 0;
}

/* "PARTITION MODE GRACE KILLWAIT", times in seconds. part: NULL: preempts nothing. A
 * partition without a mode of its own has the cluster's. */
static void export_terms(const char *name, const partition_info_t *part,
                         const slurm_conf_t *conf)
{
    uint16_t mode = !part                            ? PREEMPT_MODE_OFF
                    : part->preempt_mode == NO_VAL16 ? conf->preempt_mode
                                                     : part->preempt_mode;
    uint32_t grace = !part || part->grace_time >= NO_VAL ? 0 : part->grace_time;
    char text[160];

    snprintf(text, sizeof(text), "%.63s %s %u %u", name, mode_name(mode), grace,
             (unsigned)conf->kill_wait);
    setenv(ENV_NOTICE, text, 1);
}

int64_t notice_due(const struct config *cfg, const slurm_job_info_t *job)
{
    return job->time_limit >= NO_VAL
               ? INT64_MAX
               : (int64_t)job->start_time + job->time_limit * INT64_C(60) -
                     cfg->preempt_lead_seconds;
}

/* No answer of the controller: no variable. */
static void export_notice(struct client *c, const slurm_job_info_t *job,
                          const partition_info_msg_t *parts)
{
    slurm_conf_t *asked = NULL;
    const slurm_conf_t *conf = own_settings();
    const char *name = job->partition;

    if (!conf && slurm_load_ctl_conf(0, &asked) == SLURM_SUCCESS)
        conf = asked;
    if (name && conf && preempts_nothing(conf)) {
        c->undisturbed_until = notice_due(&c->file.config, job);
        export_terms(name, NULL, conf);
    } else if (name && conf && parts) {
        for (uint32_t i = 0; i < parts->record_count; i++)
            if (parts->partition_array[i].name &&
                strcmp(parts->partition_array[i].name, name) == 0)
                export_terms(name, &parts->partition_array[i], conf);
    }
    slurm_free_ctl_conf(asked);
}

/* Exports when the warning is due at the latest. `warning`: "USR1@120". `job` may be
 * NULL; a job without a limit never gets a warning (0). Slurm looks at limits only
 * twice a minute, which is added, but no more than half of the lead. */
static void export_warning(const char *warning, const slurm_job_info_t *job)
{
    long long lead = strtoll(warning + 5, NULL, 10), due = 0;
    char text[32];

    if (job && job->time_limit < NO_VAL)
        due = (long long)job->end_time - lead +
              (lead / 2 < SCAN_SECONDS ? lead / 2 : SCAN_SECONDS);
    snprintf(text, sizeof(text), "%.5s%lld", warning, due > 0 ? due : 0);
    setenv(ENV_WARNING, text, 1);
}

/* Is it in the form that only accel writes? */
static bool is_warning(const char *text)
{
    return text && (strncmp(text, "USR1@", 5) == 0 || strncmp(text, "USR2@", 5) == 0);
}

static void *load_job(void *ask)
{
    struct notice_ask *a = ask;

    slurm_load_job(&a->job, a->job_id, JOB_FLAGS);
    return NULL;
}

static void *load_partitions(void *ask)
{
    struct notice_ask *a = ask;

    slurm_load_partitions(0, &a->parts, SHOW_ALL);
    return NULL;
}

/* Without a thread it is done at once. */
static void ask_for(struct notice_request *r, void *(*load)(void *),
                    struct notice_ask *a)
{
    r->under_way = thread_start(&r->thread, NULL, load, a) == 0;
    if (!r->under_way)
        load(a);
}

static void await_answers(struct notice_ask *a)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(a->request); i++) {
        if (a->request[i].under_way)
            pthread_join(a->request[i].thread, NULL);
        a->request[i].under_way = false;
    }
}

static const char *our_warning(const struct client *c)
{
    const char *warning = defaults_warning(&c->defaults, &c->typed, &c->env);

    return is_warning(warning) ? warning : NULL;
}

void notice_ask(struct notice_ask *a_out, const struct client *c, uint32_t job_id)
{
    const bool terms = c->file.config.preempt_enabled;
    const slurm_conf_t *conf = own_settings();

    *a_out = (struct notice_ask){ .job_id = job_id };
    if (terms || our_warning(c))
        ask_for(&a_out->request[0], load_job, a_out);
    if (terms && !(conf && preempts_nothing(conf)))
        ask_for(&a_out->request[1], load_partitions, a_out);
}

/* Unsets both first: they may be left from the step or job that this srun runs in. */
void notice_export(struct notice_ask *a, struct client *c)
{
    const struct config *cfg = &c->file.config;
    const char *warning = our_warning(c);
    const slurm_job_info_t *job = NULL;

    unsetenv(ENV_NOTICE);
    unsetenv(ENV_WARNING);
    await_answers(a);
    for (uint32_t i = 0; a->job && i < a->job->record_count; i++)
        if (a->job->job_array[i].job_id == a->job_id)
            job = &a->job->job_array[i];
    if (warning)
        export_warning(warning, job);
    if (job && cfg->preempt_enabled) {
        check_limit(cfg, job);
        export_notice(c, job, a->parts);
    }
}

void notice_free(struct notice_ask *a)
{
    await_answers(a);
    slurm_free_job_info_msg(a->job);
    slurm_free_partition_info_msg(a->parts);
    *a = (struct notice_ask){ 0 };
}
