/* SPDX-License-Identifier: Apache-2.0
 *
 * What the plugin's files need of each other and of Slurm, for tests of one file: the
 * context, errors and lines are kept as text, the controller answers with one job.
 */
#ifndef ACCEL_TESTS_FAKE_PLUGIN_H
#define ACCEL_TESTS_FAKE_PLUGIN_H

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "srun_plugin/client.h"

extern spank_context_t fake_context;
/* "A0301 TEXT | CURE\n" for each error, "TEXT\n" for each line of information. */
extern char fake_said[4096];
extern char *fake_words[32];
/* The client, with fake_words as its command line and a parser that knows no key. */
extern struct client fake_client;

/* The controller. Each look at the job takes the next of `states`, the last one
 * stays. */
struct fake_slurm {
    slurm_job_info_t job;
    uint32_t states[4];
    size_t looks;
    const char *requeue_exit, *requeue_exit_hold;
    uint16_t preempt_mode, kill_wait;
    partition_info_t partition;
    bool silent; /* does not answer */
    bool kill_fails;
    uint32_t killed; /* id of the job that was cancelled; 0: none */
};
extern struct fake_slurm fake_slurm;

/* Splits "srun -n 4 ./a" at blanks into fake_words, after it was copied. */
char **fake_split(const char *line);
/* Runs f(arg) in a child of its own, so that no static variable stays; what it writes
 * to standard output, at most 4 KiB, is valid until the next call. */
const char *fake_child(void (*f)(const void *arg), const void *arg);

#endif
