/* SPDX-License-Identifier: Apache-2.0
 *
 * The environment of a task: what `accelerate launch` would give its children, made
 * from the config and the step. It is made in parts, because srun knows the config and
 * a task knows its place: environ.c makes the list, carrier.c packs it into one
 * variable, environ_task.c and environ_cores.c fill in what belongs to one task. Only
 * environ.c knows the schema; none of the others parses YAML, so that slurmstepd can
 * carry them.
 */
#ifndef ACCEL_CONFIG_ENVIRON_H
#define ACCEL_CONFIG_ENVIRON_H

#include "config/config.h"

/* Receives one variable. `task` false: `value` is the value. true: `value` names what
 * every task fills in for itself, see environ_apply. The strings are valid during the
 * call only. */
typedef void (*config_env_f)(void *user, const char *name, const char *value,
                             bool task);

/* The step as a whole: tasks and nodes; address and port at which its ranks meet
 * (master_addr is borrowed). */
struct config_world {
    int64_t tasks, nodes;
    const char *master_addr;
    unsigned master_port;
    /* OMP_NUM_THREADS that was asked for; 0: by rule, see emit_threads. */
    int64_t threads;
    /* Slurm has chosen the GPUs: gpu_ids has no effect. */
    bool devices_chosen;
    /* Where accel's own Python modules are installed (borrowed); NULL: there are none,
     * and accel.python.trainer has no effect. */
    const char *python_dir;
};

/* ---- environ.c ------------------------------------------------------------------- */

/* Calls `emit` for every variable of the torch and Accelerate contract, and for those
 * by which accel's Python modules know the config, in a fixed order, each name once.
 * The only error is ACCEL_ENOMEM. Not collective. */
accel_status_t config_environment(const struct config *cfg,
                                  const struct config_world *w, config_env_f emit,
                                  void *user, accel_error_t *err);

/* ---- carrier.c ------------------------------------------------------------------- */

/* The carrier: "accelenv1;NAME=value;NAME:word;...;xxh3=HEX", printable ASCII, shorter
 * than CARRIER_MAX bytes. The hash guards against damage, not malice. */
enum { CARRIER_MAX = 60 << 10 };

/* Begins a carrier in an empty b. */
void carrier_start(struct strbuf *b);
/* Appends one variable. A config_env_f whose `user` is the struct strbuf. Failures are
 * kept in b. */
void carrier_add(void *b, const char *name, const char *value, bool task);
/* Appends the hash. ACCEL_ENOMEM, or A0320 when the text is too large. The caller frees
 * b in all cases. */
accel_status_t carrier_seal(struct strbuf *b, accel_error_t *err);
/* Calls `each` for every variable, but only after the whole text was found good: only
 * names of the contract, only printable values. Otherwise fails with A0311 and makes
 * no call. */
accel_status_t carrier_read(const char *text, config_env_f each, void *user,
                            accel_error_t *err);

/* ---- environ_task.c -------------------------------------------------------------- */

/* May a launcher of ours set this variable? By an allow-list: LD_PRELOAD is not
 * on it. */
bool environ_name_allowed(const char *name);

/* Where a task stands in its step. Counts and numbers are those of the step, not of
 * the job. */
struct task_place {
    /* Counted node by node, as torch does. */
    int64_t rank;
    /* The launcher's own number of the task, which is also its PMIx rank. Differs from
     * `rank` when Slurm does not number the tasks node by node. */
    int64_t index;
    int64_t world, local_rank, local_world, node, nodes;
    /* Physical cores of this task, >= 1. */
    int64_t cores;
};

/* An environment: where variables are read and set. `get` returns false when the
 * variable is not set; a value that is too long is cut to len - 1 bytes. `where` is
 * passed to each. */
struct environ_ops {
    bool (*get)(void *where, const char *name, char *buf, size_t len);
    void (*set)(void *where, const char *name, const char *value);
    void (*unset)(void *where, const char *name);
    void *where;
};
/* Sets one variable of the list for one task. A value that is there already
 * stays, except for our own names (ACCEL_*). Words: rank, local_rank,
 * local_world, node, cores; and cwd_last, which appends the current directory to
 * the path that is there; "dirs_first=A:B", which puts directories in front of it;
 * "dirs_first_cwd_last=A:B", which does both; "error_file=DIR", the file of this
 * rank in DIR if that is there. */
void environ_apply(const struct environ_ops *ops, const struct task_place *place,
                   const char *name, const char *value, bool task);
/* Is it one of the words that extend a path? Then the directories in front of it (""
 * for none), and whether the current one comes last. *dirs_out lies in `word`. */
bool environ_path_word(const char *word, const char **dirs_out, bool *cwd_last_out);
/* Sets what tasks of every type get: ACCEL_RANK and the other variables of a task's
 * place, and PYTHONUNBUFFERED unless it is set. */
void environ_apply_place(const struct environ_ops *ops, const struct task_place *place);

/* Appends " NAME=users (the config says VALUE)" to `b` if the user's value (NULL: none)
 * is kept and contradicts ours. */
void environ_note_kept(struct strbuf *b, const char *name, const char *value, bool task,
                       const char *users);

/* ---- python_modules.c ------------------------------------------------------------ */

/* Where this installation has its Python modules, by ACCEL_ROOT if that is set, else
 * as it was built. Returns buf. */
const char *python_modules_dir(char *buf, size_t len);
/* Is what accel.python.trainer needs there? If not, writes to buf what is missing and
 * the cure. */
bool python_modules_found(const char *dir, char *buf, size_t len);

/* ---- environ_cores.c ------------------------------------------------------------- */

/* Physical cores for this process, one of `local_tasks` on this node; >= 1. From Slurm
 * come the CPUs of each task, or those of all tasks of the step on this node; 0: not
 * known. Cores are those of the affinity mask. */
int64_t environ_cores(int64_t local_tasks, long cpus_per_task, long cpus_on_node);

#endif
