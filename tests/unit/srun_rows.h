/* SPDX-License-Identifier: Apache-2.0
 *
 * The ends of an srun that test_srun_end plays.
 */
#ifndef ACCEL_TESTS_SRUN_ROWS_H
#define ACCEL_TESTS_SRUN_ROWS_H

#include <slurm/slurm.h>
#include <stdbool.h>
#include <stddef.h>

enum asked { ALL, NOTHING, ANOTHER_JOB };

struct srun_row {
    const char *what;
    const char *config; /* lines of accel.preemption */
    const char *env;    /* "A=1 B=2", the user's */
    int code;           /* of srun */
    uint32_t state;
    const char *want;
    slurm_job_info_t job;
    enum asked answers;  /* about the job, at the end */
    int seconds;         /* of the step; 0: 100 */
    int raises;          /* a signal to srun while the step runs */
    int refusals;        /* requests of one kind that Slurm refuses first */
    uint32_t tasks;      /* of the step; 0: 2, as the config says */
    bool no_preemption;  /* of the site */
    bool silent;         /* the controller, from the start on */
    bool no_layout;      /* Slurm does not tell the size of the step */
    const char *option;  /* one more word of the command line */
    const char *reports; /* of rank 0; NULL: nothing */
    const char *error;   /* the exception of rank 1, as its file has it; NULL: none */
    const char *end;     /* of rank 1, as slurmstepd notes it; NULL: nothing */
    int own_code;        /* how srun ends after it; 0: with `code` */
};

extern const struct srun_row srun_rows[];
extern const size_t srun_row_count;

#endif
