/* SPDX-License-Identifier: Apache-2.0
 *
 * srun, before the tasks start: what this site grants a job that has to go. The job's
 * partition and the cluster's settings come in from the controller, and the warning
 * that was asked for. Two variables go out to the tasks, which know how long a
 * checkpoint takes and whether they handle the warning; and a line about a time limit
 * that is too short.
 */
#include "srun_plugin/notice.h"

#include <dlfcn.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env_names.h"
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

/* "PARTITION MODE GRACE KILLWAIT", times in seconds. A partition without a mode of its
 * own has the cluster's. */
static void export_notice(const partition_info_t *part, const slurm_conf_t *conf)
{
    uint16_t mode =
        part->preempt_mode == NO_VAL16 ? conf->preempt_mode : part->preempt_mode;
    bool none = !conf->preempt_type || strcmp(conf->preempt_type, "preempt/none") == 0;
    uint32_t grace = part->grace_time >= NO_VAL ? 0 : part->grace_time;
    char text[160];

    snprintf(text, sizeof(text), "%.63s %s %u %u", part->name,
             none ? "OFF" : mode_name(mode), grace, (unsigned)conf->kill_wait);
    setenv(ENV_NOTICE, text, 1);
}

/* Finds the job's partition and exports its terms. No answer of the controller:
 * no variable. */
static void read_partition(const char *name)
{
    partition_info_msg_t *parts = NULL;
    slurm_conf_t *asked = NULL;
    /* The settings that srun itself runs by; asking the controller costs a request. */
    const slurm_conf_t *conf = dlsym(RTLD_DEFAULT, "slurm_conf");

    if (!conf && slurm_load_ctl_conf(0, &asked) == SLURM_SUCCESS)
        conf = asked;
    if (name && conf && slurm_load_partitions(0, &parts, SHOW_ALL) == SLURM_SUCCESS &&
        parts)
        for (uint32_t i = 0; i < parts->record_count; i++)
            if (parts->partition_array[i].name &&
                strcmp(parts->partition_array[i].name, name) == 0)
                export_notice(&parts->partition_array[i], conf);
    slurm_free_partition_info_msg(parts);
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

/* Unsets both first: they may be left from the step or job that this srun runs in. Asks
 * the controller only if there is something to tell. */
void notice_export(const struct client *c, uint32_t job_id)
{
    const struct config *cfg = &c->file.config;
    const char *warning = defaults_warning(&c->defaults, &c->typed, &c->env);
    const slurm_job_info_t *job = NULL;
    job_info_msg_t *msg = NULL;

    unsetenv(ENV_NOTICE);
    unsetenv(ENV_WARNING);
    if (!cfg->preempt_enabled && !is_warning(warning))
        return;
    slurm_load_job(&msg, job_id, JOB_FLAGS);
    for (uint32_t i = 0; msg && i < msg->record_count; i++)
        if (msg->job_array[i].job_id == job_id)
            job = &msg->job_array[i];
    if (is_warning(warning))
        export_warning(warning, job);
    if (job && cfg->preempt_enabled) {
        check_limit(cfg, job);
        read_partition(job->partition);
    }
    slurm_free_job_info_msg(msg);
}
