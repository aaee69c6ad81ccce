/* SPDX-License-Identifier: Apache-2.0
 *
 * job/: preemption for programs that train without libaccel (accel_job.h). An attempt
 * is a struct preemption and what the program has saved.
 */
#ifndef ACCEL_JOB_ATTEMPT_H
#define ACCEL_JOB_ATTEMPT_H

#include "accel_job.h"
#include "preemption/preemption.h"

struct accel_attempt {
    struct preemption preemption;
    struct accel_log log;
    char directory[DIRECTORY_MOST];
    char run_id[192];
    accel_agree_f agree;
    void *agree_user;
    int agreed;       /* the signal of an agreed stop; 0: none */
    int64_t saved;    /* the last step that is saved; -1: none */
    int64_t begun_ns; /* clock_ns of the begin of a save; 0: none is under way */
};

/* ---- attempt_rules.c ------------------------------------------------------------- */

/* The rules of accel.preemption that srun or accel launch wrote to $ACCEL_PREEMPTION;
 * where it is not set, or is in another form, the defaults of the config. */
struct preemption_rules attempt_rules(void);

#endif
