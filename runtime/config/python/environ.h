/* SPDX-License-Identifier: Apache-2.0
 *
 * The environment of a task: what `accelerate launch` would give its children, from the
 * config and the step. In parts, because srun knows the config and a task knows its
 * place: environ.c makes the list, carrier.c puts it into one variable, environ_task.c
 * and environ_cores.c fill in what belongs to one task. All but the first parse no YAML and
 * know no schema, so that slurmstepd can carry them.
 */
#ifndef ACCEL_CONFIG_ENVIRON_H
#define ACCEL_CONFIG_ENVIRON_H

#include "config/config.h"

/* One variable. `task` false: `value` is the value. true: `value` names what every task
 * fills in for itself, see environ_apply. */
typedef void (*config_env_f)(void *user, const char *name, const char *value,
                             bool task);

/* The step as a whole. */
struct config_world {
    int64_t tasks, nodes;
    const char *master_addr;
    unsigned master_port;
    int64_t threads;     /* OMP_NUM_THREADS that was asked for; 0: by rule */
    bool devices_chosen; /* by the launcher's own system: gpu_ids counts for nothing */
};

/* ---- environ.c ------------------------------------------------------------------------ */

/* Calls `emit` for every variable of the torch and Accelerate contract, in a fixed order,
 * each name once. ACCEL_ENOMEM is the only error. Not collective. */
accel_status_t config_environment(const struct config *cfg,
                                  const struct config_world *w, config_env_f emit,
                                  void *user, accel_error_t *err);

/* ---- carrier.c ------------------------------------------------------------------------- */

/* "accelenv1;NAME=value;NAME:word;...;xxh3=HEX", printable ASCII, below CARRIER_MAX. The
 * hash guards against damage, not malice. */
enum { CARRIER_MAX = 60 << 10 };

void carrier_start(struct strbuf *b);
/* A config_env_f; `user` is the struct strbuf. */
void carrier_add(void *b, const char *name, const char *value, bool task);
/* ACCEL_ENOMEM, ACCEL_EINVAL when it is too large. The caller frees b either way. */
accel_status_t carrier_seal(struct strbuf *b, accel_error_t *err);
/* Calls `each` for every variable, once the whole text was found good: only names of the
 * contract, values printable. Else A0311 and no call. */
accel_status_t carrier_read(const char *text, config_env_f each, void *user,
                            accel_error_t *err);

/* ---- environ_task.c -------------------------------------------------------------------- */

/* May a launcher of ours set this variable? An allow-list: LD_PRELOAD is not on it. */
bool environ_name_allowed(const char *name);

struct task_place {
    int64_t rank;  /* counted node by node, as torch does: see rank_of_place */
    int64_t index; /* the launcher's own number of the task; the rank of PMIx */
    int64_t world, local_rank, local_world, node, nodes;
    int64_t cores; /* of this task, >= 1 */
};

/* Where variables are read and set. `get`: false when the variable is not there; a longer
 * value is cut to len - 1 bytes. */
struct environ_ops {
    bool (*get)(void *where, const char *name, char *buf, size_t len);
    void (*set)(void *where, const char *name, const char *value);
    void (*unset)(void *where, const char *name);
    void *where;
};
/* Sets one variable of the list for one task. A value that is there stays, but for our own
 * names (ACCEL_*). Words: rank, local_rank, local_world, node; cores; cwd_last (the current
 * directory at the end of the path that is there). */
void environ_apply(const struct environ_ops *ops, const struct task_place *place,
                   const char *name, const char *value, bool task);
/* ACCEL_RANK and the others of a task's place, which every type gets. */
void environ_apply_place(const struct environ_ops *ops, const struct task_place *place);

/* Adds " NAME=users (the config says VALUE)" to `b` when the user's value, NULL for none,
 * stays and contradicts ours. */
void environ_note_kept(struct strbuf *b, const char *name, const char *value, bool task,
                       const char *users);

/* First rank of node `node`, from the number of tasks of each node as Slurm writes it,
 * "2(x3),1"; -1: the text is not of that form, or has fewer nodes in front. */
int64_t rank_of_node(const char *tasks_per_node, int64_t node);

/* ---- environ_cores.c ------------------------------------------------------------------- */

/* Physical cores for this process, one of `local_tasks` on this node, >= 1. From Slurm: the
 * CPUs of each task, or those of all tasks of the step on this node; 0: not known. */
int64_t environ_cores(int64_t local_tasks, long cpus_per_task, long cpus_on_node);

#endif
