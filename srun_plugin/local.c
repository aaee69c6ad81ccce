/* SPDX-License-Identifier: Apache-2.0
 *
 * srun, once the step exists and before its tasks start: refuses a step whose size is
 * not the config's, and chooses the rendezvous of its ranks. The validated config and
 * Slurm's view of the step come in. The step's environment goes out, made by taskenv.c.
 */
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env_names.h"
#include "common/port.h"
#include "srun_plugin/config_api.h"
#include "srun_plugin/plugin.h"

/* The step as Slurm laid it out. */
struct step {
    uint32_t job_id, step_id, tasks, nodes;
    /* Address of the node of rank 0. */
    char address[256];
    struct strbuf tasks_per_node; /* "2(x3),1" */
    /* Nodes have different numbers of tasks. */
    bool uneven;
    /* Slurm does not number the tasks node by node. */
    bool scattered;
};

/* Writes the address at which Slurm itself reaches `node`, because it resolves on every
 * node. Falls back to the name. */
static void node_address(char *node, char *out, size_t len)
{
    node_info_msg_t *msg = NULL;
    const char *addr = node;

    if (slurm_load_node_single(&msg, node, SHOW_ALL) == SLURM_SUCCESS && msg) {
        for (uint32_t i = 0; i < msg->record_count; i++)
            if (msg->node_array[i].name && strcmp(msg->node_array[i].name, node) == 0 &&
                msg->node_array[i].node_addr && msg->node_array[i].node_addr[0])
                addr = msg->node_array[i].node_addr;
    }
    snprintf(out, len, "%s", addr);
    slurm_free_node_info_msg(msg);
}

/* The first node of the step runs rank 0, since ranks count node by node. */
static void read_first_node(struct step *s, const char *list)
{
    hostlist_t hosts = slurm_hostlist_create(list);
    char *first = hosts ? slurm_hostlist_shift(hosts) : NULL;

    if (first)
        node_address(first, s->address, sizeof(s->address));
    free(first);
    slurm_hostlist_destroy(hosts);
}

/* Writes the tasks of each node in Slurm's short form, and finds out how regular
 * they are. */
static void read_tasks(struct step *s, const slurm_step_layout_t *l)
{
    uint32_t next = 0, same = 1;

    for (uint32_t n = 0; n < l->node_cnt; n++) {
        s->uneven |= l->tasks[n] != l->tasks[0];
        for (uint32_t t = 0; t < l->tasks[n]; t++)
            s->scattered |= l->tids[n][t] != next++;
        if (n + 1 < l->node_cnt && l->tasks[n + 1] == l->tasks[n]) {
            same++;
            continue;
        }
        strbuf_printf(&s->tasks_per_node, "%s%u", s->tasks_per_node.s ? "," : "",
                      l->tasks[n]);
        if (same > 1)
            strbuf_printf(&s->tasks_per_node, "(x%u)", same);
        same = 1;
    }
}

/* Fills *s, which is all 0. False: Slurm does not tell. Special steps (batch,
 * interactive) need only their id. */
static bool read_step(spank_t sp, struct step *s)
{
    slurm_step_id_t id = { .step_het_comp = NO_VAL };
    slurm_step_layout_t *layout;

    if (spank_get_item(sp, S_JOB_ID, &s->job_id) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_STEPID, &s->step_id) != ESPANK_SUCCESS)
        return false;
    if (s->step_id >= FIRST_SPECIAL_ID)
        return true;
    id.job_id = s->job_id;
    id.step_id = s->step_id;
    /* SLURM_NODELIST would be the nodes of the job, and the step may use only some
     * of them. */
    layout = slurm_job_step_layout_get(&id);
    if (!layout)
        return false;
    s->tasks = layout->task_cnt;
    s->nodes = layout->node_cnt;
    if (layout->node_list)
        read_first_node(s, layout->node_list);
    if (layout->tasks && layout->tids)
        read_tasks(s, layout);
    slurm_job_step_layout_free(layout);
    return s->address[0] && s->tasks_per_node.s && !s->tasks_per_node.failed;
}

/* HYBRID_SHARD shards inside a node: a group that spans parts of two nodes has no
 * meaning, so nodes must have equally many tasks. */
static bool layout_fits(const struct config *cfg, const struct step *s)
{
    char strategy[64], cure[200];

    opts_value(cfg, "fsdp_sharding_strategy", strategy, sizeof(strategy));
    if (s->uneven && strncmp(strategy, "HYBRID_", 7) == 0) {
        snprintf(cure, sizeof(cure),
                 "give --ntasks-per-node, with a number of tasks that %u divides, or "
                 "use fsdp_sharding_strategy: FULL_SHARD",
                 s->nodes);
        plugin_error(A0322, "fsdp_sharding_strategy", cure,
                     "%s needs equally many tasks on each node, but they are %s",
                     strategy, s->tasks_per_node.s);
        return false;
    }
    if (s->scattered)
        slurm_info("accel: tasks are not placed node by node (-m): RANK counts node by "
                   "node all the same, as torch expects, SLURM_PROCID does not");
    return true;
}

/* Claims a port for the rendezvous and exports the environment. The claim lasts as long
 * as this srun. False, with the reason reported: the step cannot start. */
static bool start_environment(const struct config *cfg, const struct step *s)
{
    struct config_world world = { .tasks = s->tasks,
                                  .nodes = s->nodes,
                                  .master_addr = s->address };
    accel_error_t err = { 0 };
    int claim;

    if (cfg->distributed_type != DIST_NO &&
        port_claim(s->address, s->job_id, s->step_id, &world.master_port, &claim,
                   &err)) {
        plugin_report(&err);
        return false;
    }
    return taskenv_export(cfg, &world, s->tasks_per_node.s);
}

/* May this step run? Reports why not. */
static bool is_allowed(const struct config *cfg, const struct step *s)
{
    if (getenv("SLURM_HET_SIZE")) {
        size_refuse_het();
        return false;
    }
    return size_fits(cfg, s->tasks, s->nodes) && layout_fits(cfg, s);
}

/* Refuses the step. A bare srun just ends. Inside an allocation, a step that srun has
 * created but does not launch keeps its CPUs until the job ends, and nothing can end
 * it; so there the step starts and its tasks refuse. */
static int local_refuse(void)
{
    if (!defaults_user_env("SLURM_JOB_ID"))
        return -1;
    return setenv(ENV_CARRIER, CARRIER_REFUSED, 1) == 0 ? 0 : -1;
}

/* Everything between the layout and the start of the tasks. Returns what
 * local_user_init returns. */
static int local_prepare(const struct config *cfg, const struct step *s)
{
    if (s->step_id >= FIRST_SPECIAL_ID)
        return 0;
    if (!is_allowed(cfg, s))
        return local_refuse();
    resubmit_arm(s->job_id);
    notice_export(cfg, s->job_id);
    if (!start_environment(cfg, s))
        return local_refuse();
    if (cfg->preempt_enabled)
        interrupt_watch(s->job_id, s->step_id);
    return 0;
}

int local_user_init(spank_t sp)
{
    struct step s = { 0 };
    int rc = -1;

    if (read_step(sp, &s))
        rc = local_prepare(opts_config(), &s);
    else
        plugin_error(A0312, NULL,
                     "see whether `scontrol ping` answers, and start the step again",
                     "Slurm does not tell the size of this step");
    strbuf_free(&s.tasks_per_node);
    return rc;
}
