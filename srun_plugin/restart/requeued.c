/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a bare srun at a site with RequeueExit or RequeueExitHold. Slurm queues
 * the ended job once more, beside the new one that resubmit.c asks for. Nobody waits
 * for that job; it would hold nodes with nothing to run. The job and srun's exit code
 * come in. Then the job is cancelled before it starts, or an error names the one that
 * is left. Never touches a job that was not queued again.
 */
#include "srun_plugin/restart/restart.h"

#include <signal.h>
#include <slurm/slurm.h>
#include <stdlib.h>
#include <time.h>

#include "srun_plugin/plugin.h"
#include "srun_plugin/messages.h"

/* Between two requests to the controller. */
#define LOOK_NS 50000000
/* For the epilog of the nodes: only after it Slurm queues the job again. */
#define WAIT_SECONDS 30

/* What became of the job. */
enum fate {
    UNKNOWN,
    /* Not decided before its nodes are free. */
    ENDING,
    ENDED,
    QUEUED_AGAIN,
};

bool requeued_lists(const char *list, int code)
{
    while (list && *list) {
        char *end;
        long first = strtol(list, &end, 10), last = first;

        if (end == list)
            return false;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        if (code >= first && code <= last)
            return true;
        list = end + (*end == ',');
        if (*end && *end != ',')
            return false;
    }
    return false;
}

/* Does the site requeue jobs that end with this code? */
static bool site_requeues(int code)
{
    slurm_conf_t *conf = NULL;
    bool does;

    if (slurm_load_ctl_conf(0, &conf) != SLURM_SUCCESS || !conf)
        return false;
    does = requeued_lists(conf->requeue_exit, code) ||
           requeued_lists(conf->requeue_exit_hold, code);
    slurm_free_ctl_conf(conf);
    return does;
}

/* A job that was requeued and already runs again counts as queued, too. */
static enum fate fate_of(uint32_t job_id)
{
    job_info_msg_t *msg = NULL;
    enum fate fate = UNKNOWN;

    if (slurm_load_job(&msg, job_id, JOB_FLAGS) != SLURM_SUCCESS || !msg)
        return UNKNOWN;
    for (uint32_t i = 0; i < msg->record_count; i++) {
        const slurm_job_info_t *j = &msg->job_array[i];
        uint32_t base = j->job_state & JOB_STATE_BASE;

        if (j->job_id != job_id)
            continue;
        if (base == JOB_PENDING || (base == JOB_RUNNING && j->restart_cnt > 0))
            fate = QUEUED_AGAIN;
        else
            fate = j->job_state & JOB_COMPLETING ? ENDING : ENDED;
    }
    slurm_free_job_info_msg(msg);
    return fate;
}

/* Polls, because Slurm decides only after the epilog. At most 30 s; a user waits for
 * the prompt meanwhile. */
void requeued_drop(uint32_t job_id, int exit_code)
{
    const struct timespec look = { .tv_nsec = LOOK_NS };
    time_t start = time(NULL);
    enum fate fate;

    if (exit_code == 0 || !site_requeues(exit_code))
        return;
    while ((fate = fate_of(job_id)) == ENDING && time(NULL) - start < WAIT_SECONDS)
        nanosleep(&look, NULL);
    if (fate == ENDED || fate == UNKNOWN ||
        (fate == QUEUED_AGAIN && slurm_kill_job(job_id, SIGKILL, 0) == SLURM_SUCCESS))
        return;
    plugin_error(
        A0226, "RequeueExit", "cancel the job with scancel when squeue shows it",
        "Slurm requeued job %u of this srun, and accel cannot cancel it: %s", job_id,
        fate == ENDING ? "its nodes are still busy"
                       : slurm_strerror(slurm_get_errno()));
}
