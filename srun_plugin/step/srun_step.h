/* SPDX-License-Identifier: Apache-2.0
 *
 * The step of this srun, once Slurm has laid it out. Runs in srun.
 */
#ifndef ACCEL_SRUN_PLUGIN_SRUN_STEP_H
#define ACCEL_SRUN_PLUGIN_SRUN_STEP_H

#include <slurm/spank.h>

#include "srun_plugin/client.h"

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
