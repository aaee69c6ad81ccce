/* SPDX-License-Identifier: Apache-2.0
 *
 * The self-test of `accel test`: one process per rank, started by srun, by
 * mpirun or alone. Every check is collective; what a rank finds reaches rank 0
 * with its rank and host.
 *
 * A rank that finds a mistake keeps it to itself until the check is over and makes all
 * collective calls that its peers make: a rank that returned early would leave them
 * waiting for the deadline.
 */
#ifndef ACCEL_SELFTEST_H
#define ACCEL_SELFTEST_H

#include "handle/run.h"

enum { SELFTEST_MAX_CHECKS = 12, SELFTEST_STEPS = 3 };

/* SKIPPED: the check does not apply here, or the ranks lost each other before it. */
enum verdict { VERDICT_OK, VERDICT_FAIL, VERDICT_SKIPPED };

/* One line of the result. */
struct check {
    const char *name;
    enum verdict verdict;
    /* Milliseconds of the slowest rank. The check may set it, else
     * its whole time counts. */
    double ms;
    /* 1e9 bytes per second that one rank sends; 0: nothing to say. */
    double gb_per_s;
    /* What the check found when all is well, in rank 0's words. */
    char found[256];
    /* Set on rank 0 with VERDICT_FAIL: the error of the lowest rank that has a text. */
    accel_error_t error;
};

struct selftest {
    accel_t *run;
    /* The directory below which the work directory is made. */
    const char *parent;
    /* The work directory; "": none yet. */
    char dir[4096];
    /* The ranks cannot talk to each other any more. */
    bool broken;
    /* The status of the first check that failed, the same on all ranks. */
    accel_status_t status;
    struct check check[SELFTEST_MAX_CHECKS];
    int checks;
};

/* One check on one rank. Returns this rank's own finding, which selftest_check shares.
 * ACCEL_OK with c->verdict SKIPPED leaves the check out. Collective. */
typedef accel_status_t (*selftest_f)(struct selftest *t, struct check *c,
                                     accel_error_t *err);

/* Runs one check and agrees with all ranks on its outcome. Skipped when the ranks
 * cannot talk any more. Collective. */
void selftest_check(struct selftest *t, const char *name, selftest_f fn);
/* Rank 0 prints the table or JSON on stdout and errors on stderr; other ranks print
 * an error only when the ranks lost each other. Returns the exit code, the same on
 * all ranks. Collective. */
int selftest_report(struct selftest *t, bool json);

/* The checks, in their order. */
accel_status_t check_map(struct selftest *t, struct check *c, accel_error_t *err);
/* Of the collective that the check is named after: all_gather, reduce_scatter,
 * all_reduce or broadcast. */
accel_status_t check_collective(struct selftest *t, struct check *c,
                                accel_error_t *err);
accel_status_t check_barrier(struct selftest *t, struct check *c, accel_error_t *err);
accel_status_t check_dir(struct selftest *t, struct check *c, accel_error_t *err);
accel_status_t check_steps(struct selftest *t, struct check *c, accel_error_t *err);
accel_status_t check_checkpoint(struct selftest *t, struct check *c,
                                accel_error_t *err);

/* The body of the process in which check_steps has its steps repeated; returns its exit
 * code. */
int selftest_reference(int world, const char *out);

/* Removes the work directory. Called by rank 0 only. */
void workdir_remove(const char *dir);

#endif
