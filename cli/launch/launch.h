/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside `accel launch`: Accelerate's flags become options of ours (launch_flags.c), the
 * tasks get their environment (launch_env.c), several Python processes their parent
 * (launch_fork.c), mpirun its own (launch_mpirun.c).
 */
#ifndef ACCEL_LAUNCH_H
#define ACCEL_LAUNCH_H

#include "config/python/environ.h"

/* ---- launch_flags.c ---------------------------------------------------------------------- */

/* What flags said that is no key of a config. */
struct launch_flags {
    bool cpu, module, no_python;
    long threads; /* per process; 0: not given */
};
/* A copy of argv in which every flag of `accelerate launch` in front of the program is an
 * option of `accel launch`, "--fsdp_version 2" being "--set=fsdp_version=2"; other words
 * stay. Freed by launch_flags_free. NULL: `err` says why. */
char **launch_flags_translate(int argc, char **argv, struct launch_flags *flags,
                              int *argc_out, accel_error_t *err);
void launch_flags_free(char **words);
/* Accelerate's flags that are not keys of a config, one by one from 0, as "use_fsdp"; NULL: no
 * more. Static. *value_out: whether it takes one. */
const char *launch_flag_name(size_t i, bool *value_out);

/* ---- launch_env.c ------------------------------------------------------------------------ */

/* The variables of all tasks of one launch. */
struct launch_env {
    struct strbuf carrier;
    struct strbuf kept; /* the user's own that contradict */
    unsigned port;      /* chosen here; 0: the user's */
    int claim;          /* on the port; -1: none */
    int64_t world, local_world, node, nodes;
};
/* Fills *env; its port is claimed for as long as this process stays what it is. */
accel_status_t launch_env_make(const struct config *cfg, const char *config_path,
                               int64_t processes, long threads, struct launch_env *env,
                               accel_error_t *err);
/* Sets the environment of this process for the task with that local rank. */
accel_status_t launch_env_apply(const struct launch_env *env, int64_t local_rank,
                                accel_error_t *err);
/* The whole list on stdout: "NAME=value", then "task 0: NAME=value ...". */
accel_status_t launch_env_print(const struct launch_env *env, accel_error_t *err);
/* As a task of mpirun: takes the list from the environment and applies it. */
accel_status_t launch_env_as_task(accel_error_t *err);
#define LAUNCH_CARRIER "ACCEL_LAUNCH_ENVIRONMENT"
#define LAUNCH_PORT    "ACCEL_LAUNCH_PORT" /* of our choice; 0: none */
void launch_env_free(struct launch_env *env);

/* ---- launch_fork.c ----------------------------------------------------------------------- */

/* Runs `argv` once per local task and waits for all. When one fails the others are ended.
 * Returns the exit code of the first that failed, else 0. Leaves no process behind. */
int launch_fork(const struct launch_env *env, char **argv);

/* ---- launch_mpirun.c --------------------------------------------------------------------- */

/* Runs mpirun with `argv`, and hands signals on to the processes that it starts. Returns its
 * exit code. */
int launch_mpirun(char **argv);
/* In such a process, before it becomes the program: it gets these signals. */
void launch_mpirun_task(void);

#endif
