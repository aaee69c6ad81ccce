/* SPDX-License-Identifier: Apache-2.0
 *
 * The requeue of a batch job that has saved its state. Asked by rank 0, once, after the
 * checkpoint is durable and before the ranks exit with 85.
 */
#ifndef ACCEL_TRAIN_REQUEUE_H
#define ACCEL_TRAIN_REQUEUE_H

#include "common/common.h"

enum requeue_result {
    REQUEUE_DONE,      /* Slurm accepted; it kills the job's processes at once */
    REQUEUE_BY_OTHER,  /* this incarnation is being requeued already */
    REQUEUE_NO_JOB,    /* not in a Slurm job */
    REQUEUE_NOT_BATCH, /* srun or salloc: the plugin in srun goes on */
    REQUEUE_FORBIDDEN, /* the job was submitted with --no-requeue */
    REQUEUE_NOT_MEANT, /* cancelled: neither preempted nor near its time limit */
    REQUEUE_LEFT,      /* could not ask: left to the srun plugin and RequeueExit */
};

struct requeue_request {
    const char *state_dir; /* shared directory for the marker; NULL: no marker */
    int signal;            /* the one that stopped the run; SIGTERM may mean scancel */
    int64_t lead_seconds;  /* a SIGTERM this near the time limit means the limit */
};

/* Asks Slurm to requeue the present job if it is a batch job and was not cancelled. The
 * marker <state_dir>/requeue.<job>.<restart> says who asked; whoever finds it does not
 * ask again. Takes at most about 20 s (two calls of scontrol, each under a deadline).
 * Not collective. ACCEL_OK and *result_out in every case but lack of memory. */
accel_status_t requeue_job(const struct requeue_request *request,
                           const struct accel_log *log, enum requeue_result *result_out,
                           accel_error_t *err);
/* One clause for the log: "the job is requeued"; static. */
const char *requeue_result_text(enum requeue_result result);

/* What `scontrol --oneliner show job` says of a job. */
struct requeue_job_facts {
    bool batch, may_requeue, running, cancelled, preempted;
    int64_t end_time; /* seconds since the epoch; 0: none */
};
/* False when `line` is not such a line. */
bool requeue_parse_job(const char *line, struct requeue_job_facts *facts_out);
/* The decision alone; REQUEUE_DONE means: ask. `now` in seconds since the epoch. */
enum requeue_result requeue_decide(const struct requeue_job_facts *facts,
                                   const struct requeue_request *request, int64_t now);

#endif
