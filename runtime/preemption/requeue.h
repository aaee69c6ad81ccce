/* SPDX-License-Identifier: Apache-2.0
 *
 * The requeue of a batch job whose state is saved. Rank 0 asks once, after the
 * checkpoint is durable and before the ranks exit with 85.
 */
#ifndef ACCEL_PREEMPTION_REQUEUE_H
#define ACCEL_PREEMPTION_REQUEUE_H

#include "common/common.h"

/* Why the run was told to stop. */
enum stop_reason {
    STOP_SIGNAL,      /* no job, or Slurm does not say why */
    STOP_PREEMPTED,   /* within the partition's GraceTime, or at the kill */
    STOP_TIME_LIMIT,  /* close to it, or after it */
    STOP_WARNED,      /* warning signal, sent by hand: save and requeue */
    STOP_REQUEUED,    /* somebody requeued the job */
    STOP_CANCELLED,   /* scancel of the job or the step, or SIGTERM by hand */
    STOP_INTERRUPTED, /* SIGINT: Ctrl-C, scancel -s INT */
};

enum requeue_result {
    REQUEUE_DONE,         /* Slurm accepted; it kills the job's processes at once */
    REQUEUE_BY_OTHER,     /* this incarnation is already being requeued */
    REQUEUE_NO_JOB,       /* not in a Slurm job */
    REQUEUE_NOT_BATCH,    /* srun or salloc: left to the plugin in srun */
    REQUEUE_FORBIDDEN,    /* the job was submitted with --no-requeue */
    REQUEUE_NOT_MEANT,    /* cancelled: nobody wants it requeued */
    REQUEUE_STOPPED,      /* interrupted, inside or outside a job */
    REQUEUE_LIMIT,        /* max_restarts is reached */
    REQUEUE_LEFT,         /* asking failed: left to the srun plugin and RequeueExit */
    REQUEUE_SWITCHED_OFF, /* accel.preemption.requeue is false */
};

/* What rank 0 knows about its stop. */
struct requeue_request {
    const char *state_dir; /* shared directory for the marker; NULL: no marker */
    int signal;            /* the one that stopped the run; SIGTERM may mean scancel */
    int64_t lead_seconds;  /* a SIGTERM so close to the time limit is due to it */
    int64_t grace_seconds; /* GraceTime of the partition; < 0: not known */
    int64_t restart;       /* number of this incarnation; the first is 0 */
    int64_t restarts, max_restarts; /* of this job so far, and allowed */
    bool switched_off;              /* find out why, but do not requeue */
};

#define REQUEUE_JOB_MAX 48
/* Why the run stops, and whether it is requeued. */
struct requeue_ending {
    enum stop_reason reason;
    enum requeue_result result;
    /* The job as Slurm's commands expect it: "12"; or "10_3" for an array element,
     * because the last element has the same id as the array. */
    char job[REQUEUE_JOB_MAX];
};

/* Not collective. Finds out why the run was told to stop and whether to ask for a
 * requeue. If so, the result is REQUEUE_DONE, though nothing has been asked yet. Takes
 * at most 10 s (one call of scontrol), and no time after SIGINT. */
struct requeue_ending requeue_look(const struct requeue_request *request,
                                   const struct accel_log *log);
/* Asks Slurm to requeue `job`, the current job as requeue_look names it. The marker
 * <state_dir>/requeue.<job id>.<restart> records who asked; a process that finds it
 * does not ask again. Takes at most 10 s. */
enum requeue_result requeue_ask(const struct requeue_request *request, const char *job,
                                const struct accel_log *log);
/* A clause for the log, "the job is requeued", and a word or two, "preempted";
 * static. */
const char *requeue_result_text(enum requeue_result result);
const char *stop_reason_text(enum stop_reason reason);

/* What `scontrol --oneliner show job` says of a job. */
struct requeue_job_facts {
    char job[REQUEUE_JOB_MAX]; /* as in struct requeue_ending */
    bool batch, may_requeue, running;
    /* from the state's name, which tells once the job has left its nodes */
    bool cancelled, preempted;
    int64_t restarts; /* Slurm's count of requeues of this job id */
    int64_t start_time, end_time, preempt_time; /* seconds since the epoch; 0: none */
    int64_t limit_seconds;                      /* 0: none */
};
/* Reads the line of job `id` in that command's answer, which for the id of an array has
 * one line for each element. False if there is none; *facts_out is then unchanged. */
bool requeue_parse_job(const char *answer, const char *id,
                       struct requeue_job_facts *facts_out);
/* Asks for the facts of the current job, for at most `seconds`. False: there is no job,
 * or no answer; a warning then says why. */
bool requeue_facts(const struct accel_log *log, int seconds,
                   struct requeue_job_facts *facts_out);
/* The decisions, as pure functions. `now` in seconds since the epoch. REQUEUE_DONE
 * means: ask for it. */
enum stop_reason requeue_reason(const struct requeue_job_facts *facts,
                                const struct requeue_request *request, int64_t now);
enum requeue_result requeue_decide(const struct requeue_job_facts *facts,
                                   const struct requeue_request *request,
                                   enum stop_reason reason);

#endif
