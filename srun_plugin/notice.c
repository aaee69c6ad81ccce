/* SPDX-License-Identifier: Apache-2.0
 *
 * srun, before the tasks start: what this site gives a job that has to go. In: the job's
 * partition and the cluster's settings, from the controller. Out: a variable for the tasks,
 * which know how long a checkpoint takes; a line about a time limit that is too short.
 */
#include <dlfcn.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun_plugin/plugin.h"

/* A limit that the warning precedes by more than its length: the run would stop, saved,
 * after every first step. */
static void check_limit(const struct config *cfg, const slurm_job_info_t *job)
{
    long long limit = (long long)job->time_limit * 60;

    if (job->time_limit < NO_VAL && limit <= cfg->preempt_lead_seconds)
        slurm_info(
            "accel: the time limit of %lld s is not longer than "
            "accel.preemption.lead_seconds %lld: the run will be told to stop as "
            "soon as it starts; use a longer --time or fewer lead_seconds",
            limit, (long long)cfg->preempt_lead_seconds);
}

static const char *mode_name(uint16_t mode)
{
    if (mode & PREEMPT_MODE_REQUEUE)
        return "REQUEUE";
    if (mode & PREEMPT_MODE_CANCEL)
        return "CANCEL";
    return mode & PREEMPT_MODE_SUSPEND ? "SUSPEND" : "OFF";
}

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

void notice_export(const struct config *cfg, uint32_t job_id)
{
    job_info_msg_t *msg = NULL;

    unsetenv(ENV_NOTICE);
    if (!cfg->preempt_enabled ||
        slurm_load_job(&msg, job_id, JOB_FLAGS) != SLURM_SUCCESS || !msg)
        return;
    for (uint32_t i = 0; i < msg->record_count; i++) {
        if (msg->job_array[i].job_id != job_id)
            continue;
        check_limit(cfg, &msg->job_array[i]);
        read_partition(msg->job_array[i].partition);
    }
    slurm_free_job_info_msg(msg);
}
