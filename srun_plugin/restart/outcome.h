/* SPDX-License-Identifier: Apache-2.0
 *
 * How the step of this srun ended, and whether it is to come back. Keeps nothing. Runs
 * in srun, inside exit().
 */
#ifndef ACCEL_SRUN_PLUGIN_OUTCOME_H
#define ACCEL_SRUN_PLUGIN_OUTCOME_H

#include "srun_plugin/client.h"

/* A run shorter than this made no progress. */
#define SHORT_SECONDS 10

/* What is known at the end of the step. */
struct outcome {
    int exit_code;
    /* The job as Slurm's commands want it: "12", or "10_3" for an element of an array,
     * whose last element has the number of the whole array. */
    char job[32];
    bool batch, may_requeue;
    /* Ended by its time limit. */
    bool timed_out;
    /* So near its time limit that it has been told. */
    bool warned;
    /* Still the same start of the job: running, or ended and not requeued. */
    bool present;
    bool preempted, node_failed;
    /* Ended by one of those two; srun may exit with 0 then. */
    bool killed;
    /* scancel, or Ctrl-C, which srun passes to Slurm. Overrides everything
     * before it. */
    bool cancelled;
    /* Ended by the warning signal before the program could handle it. */
    bool early;
    long restarts;
    /* How long the step took. */
    long seconds;
};

/* Fills *o from srun's exit code and from what the controller knows of the job. */
void outcome_read(const struct client *c, int exit_code, struct outcome *o_out);
/* Is the step to be started again? */
bool outcome_comes_back(const struct outcome *o);
/* Was it ended on purpose, by a signal to srun, without a last word of its own? */
bool outcome_was_told(const struct outcome *o);
/* Writes what happened, for all messages. Returns buf. */
const char *outcome_text(const struct outcome *o, char *buf, size_t len);
/* Says what would have saved a run that the warning, a preemption or the time limit
 * ended unsaved. */
void outcome_say_unsaved(const struct client *c, const struct outcome *o);
/* Says of a run that ended with 0 after a notice that it counts as finished. */
void outcome_say_finished(const struct outcome *o);

#endif
