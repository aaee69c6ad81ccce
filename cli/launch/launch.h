/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside `accel launch`: Accelerate's flags become options of ours (launch_flags.c),
 * the tasks get their environment (launch_env.c), several Python processes get a parent
 * (launch_fork.c), mpirun gets its own (launch_mpirun.c).
 */
#ifndef ACCEL_LAUNCH_H
#define ACCEL_LAUNCH_H

#include <limits.h>

#include "config/python/environ.h"

/* ---- launch_flags.c -------------------------------------------------------------- */

/* What flags say that is no key of a config. */
struct launch_flags {
    /* --cpu, -m, --no_python. */
    bool cpu, module, no_python;
    /* Per process; 0: not given. */
    long threads;
};
/* A copy of argv in which every flag of `accelerate launch` in front of the program is
 * an option of `accel launch`: "--fsdp_version 2" becomes "--set=fsdp_version=2". Other
 * words stay. The caller frees it with launch_flags_free. NULL: `err` says why. */
char **launch_flags_translate(int argc, char **argv, struct launch_flags *flags,
                              int *argc_out, accel_error_t *err);
void launch_flags_free(char **words);
/* Flag number i (from 0) of Accelerate's flags that are not keys of a config, such as
 * "use_fsdp"; NULL: no more. Static. *value_out: whether it takes a value. */
const char *launch_flag_name(size_t i, bool *value_out);

/* ---- launch_env.c ---------------------------------------------------------------- */

/* The variables of all tasks of one launch. */
struct launch_env {
    /* The list of variables, sealed with a hash (carrier_seal). */
    struct strbuf carrier;
    /* Names of the user's own variables that contradict, and stay. */
    struct strbuf kept;
    /* The rendezvous port, if chosen here; 0: the user's. */
    unsigned port;
    /* Descriptor that claims the port; -1: none. */
    int claim;
    /* Where the ranks of this machine report; empty: nowhere, since nobody of ours is
     * left to read it (one process). */
    char reports[PATH_MAX];
    /* All processes, those of this machine; this machine's number and
     * the count of machines. */
    int64_t world, local_world, node, nodes;
};
/* Fills *env. The port stays claimed as long as this process lives and does not call
 * exec. launch_env_free frees, also after an error. */
accel_status_t launch_env_make(const struct config *cfg, const char *config_path,
                               int64_t processes, long threads, struct launch_env *env,
                               accel_error_t *err);
/* Sets the environment of this process for the task with this local rank. */
accel_status_t launch_env_apply(const struct launch_env *env, int64_t local_rank,
                                accel_error_t *err);
/* Prints the whole list on stdout: "NAME=value" for all tasks, then "task
 * 0: NAME=value ...". */
accel_status_t launch_env_print(const struct launch_env *env, accel_error_t *err);
/* In a task of mpirun: takes the list from ACCEL_LAUNCH_ENVIRONMENT, and the port of
 * our choice (0: none) from ACCEL_LAUNCH_PORT. Removes both, and applies the list. */
accel_status_t launch_env_as_task(accel_error_t *err);
/* Before the processes start: makes the directory for their reports. */
void launch_env_begin(const struct launch_env *env);
/* When the processes have ended, with `exit_code` for all: names the rank that failed
 * first, if one has told why, and removes what they have reported. */
void launch_env_end(const struct launch_env *env, int exit_code);
void launch_env_free(struct launch_env *env);

/* ---- launch_fork.c --------------------------------------------------------------- */

/* Becomes the program, which so gets all signals and whose exit status is ours. Returns
 * only on failure, which it reports: the exit code. */
int launch_become(char **argv);
/* The exit code for a status of waitpid: 128 + signal, as a shell says it. */
int launch_code_of(int wait_status);

/* Runs `argv` once per local task and waits for all. When one fails, the
 * others are ended. Returns the exit code of the first that failed, else 0.
 * Leaves no process behind. */
int launch_fork(const struct launch_env *env, char **argv);

/* ---- launch_mpirun.c ------------------------------------------------------------- */

/* Runs mpirun with `argv` and passes signals on to the processes that it starts.
 * Returns mpirun's exit code. */
int launch_mpirun(char **argv);
/* In such a process, before it becomes the program: unblocks the signals that mpirun
 * must not see, so that the program gets them. */
void launch_mpirun_task(void);

#endif
