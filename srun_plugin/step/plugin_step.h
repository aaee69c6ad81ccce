/* SPDX-License-Identifier: Apache-2.0
 *
 * The step of this srun: its size, its layout, and what its tasks are given. Runs in
 * srun; sizes are asked for in sbatch and salloc, too, and the tasks' environment for a
 * dry run.
 */
#ifndef ACCEL_SRUN_PLUGIN_STEP_H
#define ACCEL_SRUN_PLUGIN_STEP_H

#include <pthread.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "srun_plugin/client.h"

/* ---- size.c ---------------------------------------------------------------------- */

/* sbatch, salloc, at init: if the user gave no number of tasks, starts the program
 * again with the config's as options. Returns when there is nothing to add, when this
 * is that second start, or on failure. */
void size_ask_again(const struct config *cfg, const struct typed *t);
/* Removes the mark of that second start from the environment. */
void size_forget_guard(void);
/* Did the user give this very client a number of tasks or nodes? argv may be NULL. */
bool size_is_typed(char **argv);
/* The size as the client's own options give it, and for srun the allocation it is in.
 * 0: they leave it open. */
void size_typed(const struct client *c, uint32_t *tasks_out, uint32_t *nodes_out);
/* Is a step of these tasks and nodes (0: not known) what the config asks for? If not,
 * reports it with the cure. */
bool size_fits(const struct client *c, uint32_t tasks, uint32_t nodes);
/* srun, after all options: ends it with 1 if the size is known and wrong, before
 * anything is queued. Inside an allocation that also spares the job a step that would
 * never end. */
void size_refuse_early(const struct client *c);
/* srun: reports why a part of a heterogeneous job is refused. */
void size_refuse_het(void);
/* srun: reports what to give when the allocation is too small for the
 * config's tasks. */
void size_hint(const struct client *c);

/* ---- preemption_grace.c ---------------------------------------------------------- */

/* What the controller is asked; all 0: nothing. */
struct notice_ask {
    uint32_t job_id;
    struct notice_request {
        pthread_t thread;
        bool under_way;
    } request[2];
    /* The answers; NULL: none. */
    job_info_msg_t *job;
    partition_info_msg_t *parts;
};

/* When the job is told of its time limit, in seconds since 1970. INT64_MAX: it has
 * none. */
int64_t notice_due(const struct config *cfg, const slurm_job_info_t *job);
/* Begins to ask what notice_export needs, if it needs anything: srun has questions of
 * its own meanwhile. notice_free ends it. */
void notice_ask(struct notice_ask *a_out, const struct client *c, uint32_t job_id);
/* Tells the tasks, in ACCEL_PREEMPTION_NOTICE, how much time the partition gives
 * between the notice of a preemption and the kill, and in ACCEL_WARNING which warning
 * accel asked for; says so when the time limit is too short for it. Sets
 * c->undisturbed_until. Waits for the answers. */
void notice_export(struct notice_ask *a, struct client *c);
/* Waits, too: no request outlives it. */
void notice_free(struct notice_ask *a);

/* ---- taskenv.c ------------------------------------------------------------------- */

/* srun: puts config and variables into the carrier, and tells what is kept of the
 * user's own environment. False, with the reason reported: the step cannot start. */
bool taskenv_export(const struct client *c, const struct config_world *world,
                    const char *tasks_per_node);
/* Calls `emit` for every variable that goes to the tasks, except those of their
 * place (environ_apply_place). */
accel_status_t taskenv_list(const struct client *c, const struct config_world *world,
                            config_env_f emit, void *user, accel_error_t *err);
/* The user's own value of a variable, as far as srun exports it to the tasks;
 * NULL: none. */
const char *taskenv_user_value(const struct client *c, const char *name, char *buf,
                               size_t len);

/* ---- srun_step.c ----------------------------------------------------------------- */

/* The step as Slurm laid it out. */
struct srun_step {
    uint32_t job_id, step_id, tasks, nodes;
    /* Address of the node of rank 0. */
    char address[256];
    /* "2(x3),1" */
    struct strbuf tasks_per_node;
    /* It has one node, on which this srun runs as well. */
    bool here;
    /* Nodes have different numbers of tasks. */
    bool uneven;
    /* Slurm does not number the tasks node by node. */
    bool scattered;
};

/* Fills the ids of *s, which is all 0. False, with the reason reported: Slurm does not
 * tell. */
bool srun_step_identify(spank_t sp, struct srun_step *s);
/* Fills the rest, of a step that is not special (batch, interactive). The same. The
 * caller frees s->tasks_per_node. */
bool srun_step_read(spank_t sp, struct srun_step *s);
/* May this step run? Reports why not. */
bool srun_step_allowed(const struct client *c, const struct srun_step *s);
/* Claims a port for the rendezvous and exports the tasks' environment. The claim lasts
 * as long as this srun. False, with the reason reported: the step cannot start. */
bool srun_step_export(const struct client *c, const struct srun_step *s);
/* Refuses the step. Returns what slurm_spank_local_user_init returns. */
int srun_step_refuse(const struct client *c);

#endif
