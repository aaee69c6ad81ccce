/* SPDX-License-Identifier: Apache-2.0
 *
 * The self-test of `accel test`: one process per rank, started by srun, mpirun or alone.
 * Every check is collective; what a rank finds reaches rank 0 with its number and host.
 */
#ifndef ACCEL_SELFTEST_H
#define ACCEL_SELFTEST_H

#include "run/run.h"

enum { SELFTEST_MAX_CHECKS = 12, SELFTEST_STEPS = 3 };

enum verdict { VERDICT_OK, VERDICT_FAIL, VERDICT_SKIPPED };

/* One line of the result. */
struct check {
    const char *name;
    enum verdict verdict;
    double ms;       /* of the slowest rank; set by the check, else its whole time */
    double gb_per_s; /* 0: nothing to say */
    char found[256]; /* rank 0's words */
    accel_error_t error; /* VERDICT_FAIL, rank 0: of the lowest rank that has a text */
};

struct selftest {
    accel_t *run;
    const char *parent;    /* where the work directory is made */
    char dir[4096];        /* the work directory; "": none yet */
    bool broken;           /* the ranks cannot talk to each other any more */
    accel_status_t status; /* of the first check that failed; the same on all ranks */
    struct check check[SELFTEST_MAX_CHECKS];
    int checks;
};

/* Returns the rank's own finding; ACCEL_OK with c->verdict SKIPPED leaves the check out. */
typedef accel_status_t (*selftest_f)(struct selftest *t, struct check *c,
                                     accel_error_t *err);

/* Runs one check and agrees with all ranks on its outcome. Left out when the ranks cannot
 * talk any more. Collective. */
void selftest_check(struct selftest *t, const char *name, selftest_f fn);
/* Rank 0: prints table or JSON on stdout, errors on stderr. Other ranks: an error only when
 * nobody else can say it. Returns the exit code, the same on all ranks. Collective. */
int selftest_report(struct selftest *t, bool json);

/* The checks, in their order. */
accel_status_t check_map(struct selftest *t, struct check *c, accel_error_t *err);
accel_status_t check_all_gather(struct selftest *t, struct check *c,
                                accel_error_t *err);
accel_status_t check_reduce_scatter(struct selftest *t, struct check *c,
                                    accel_error_t *err);
accel_status_t check_all_reduce(struct selftest *t, struct check *c,
                                accel_error_t *err);
accel_status_t check_broadcast(struct selftest *t, struct check *c, accel_error_t *err);
accel_status_t check_barrier(struct selftest *t, struct check *c, accel_error_t *err);
accel_status_t check_dir(struct selftest *t, struct check *c, accel_error_t *err);
accel_status_t check_steps(struct selftest *t, struct check *c, accel_error_t *err);
accel_status_t check_checkpoint(struct selftest *t, struct check *c,
                                accel_error_t *err);
accel_status_t check_signal(struct selftest *t, struct check *c, accel_error_t *err);

/* The losses of SELFTEST_STEPS steps of a small model, `micro` micro-batches each, with
 * everything the run writes below `out`. Collective. */
accel_status_t selftest_train(accel_t *run, int micro, const char *out,
                              double loss_out[SELFTEST_STEPS], accel_error_t *err);
/* The same steps with the same samples as the run's ranks take them, in one process of its
 * own: starts this program again without ranks and reads what it prints. */
accel_status_t selftest_alone(const accel_t *run, const char *out,
                              double loss_out[SELFTEST_STEPS], accel_error_t *err);
/* What that process does; returns its exit code. */
int selftest_reference(int world, const char *out);

/* Makes and removes the work directory; rank 0's alone. */
accel_status_t workdir_make(const char *parent, char *dir, size_t len,
                            accel_error_t *err);
void workdir_remove(const char *dir);

#endif
