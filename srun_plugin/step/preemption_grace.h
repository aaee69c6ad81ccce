/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tasks learn about preemption and the warning. Runs in srun.
 */
#ifndef ACCEL_SRUN_PLUGIN_NOTICE_H
#define ACCEL_SRUN_PLUGIN_NOTICE_H

#include <pthread.h>
#include <slurm/slurm.h>

#include "srun_plugin/client.h"

/* What the controller is asked; all 0: nothing. */
struct notice_ask {
    uint32_t job_id;
    struct notice_request {
        pthread_t thread;
        bool under_way;
    } request[2];
    /* The answers; NULL: none. */
    job_info_msg_t *job;
    partition_info_msg_t *parts;
};

/* When the job is told of its time limit, in seconds since 1970. INT64_MAX: it has
 * none. */
int64_t notice_due(const struct config *cfg, const slurm_job_info_t *job);
/* Begins to ask what notice_export needs, if it needs anything: srun has questions of
 * its own meanwhile. notice_free ends it. */
void notice_ask(struct notice_ask *a_out, const struct client *c, uint32_t job_id);
/* Tells the tasks, in ACCEL_PREEMPTION_NOTICE, how much time the partition gives
 * between the notice of a preemption and the kill, and in ACCEL_WARNING which warning
 * accel asked for; says so when the time limit is too short for it. Sets
 * c->undisturbed_until. Waits for the answers. */
void notice_export(struct notice_ask *a, struct client *c);
/* Waits, too: no request outlives it. */
void notice_free(struct notice_ask *a);

#endif
