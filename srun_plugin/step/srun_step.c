/* SPDX-License-Identifier: Apache-2.0
 *
 * srun, once the step exists and before its tasks start: refuses a step whose size is
 * not the config's, and chooses the rendezvous of its ranks. The validated config and
 * Slurm's view of the step come in. The step's environment goes out, made by taskenv.c.
 */

#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env_names.h"
#include "common/port.h"
#include "srun_plugin/plugin.h"
#include "srun_plugin/messages.h"
#include "srun_plugin/step/plugin_step.h"

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
static void read_first_node(struct srun_step *s, const char *list)
{
    hostlist_t hosts = slurm_hostlist_create(list);
    char *first = hosts ? slurm_hostlist_shift(hosts) : NULL;
    const char *own = getenv("SLURMD_NODENAME");

    if (first)
        node_address(first, s->address, sizeof(s->address));
    s->here = s->nodes == 1 && first && own && strcmp(first, own) == 0;
    free(first);
    slurm_hostlist_destroy(hosts);
}

/* Writes the tasks of each node in Slurm's short form, and finds out how regular
 * they are. */
static void read_tasks(struct srun_step *s, const slurm_step_layout_t *l)
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

/* A job of one node has one layout, and srun knows it without a request. False: it has
 * more nodes. */
static bool read_one_node(spank_t sp, struct srun_step *s)
{
    const char *nodes = getenv("SLURM_JOB_NUM_NODES"), *node = getenv("SLURM_NODELIST");

    if (!nodes || strcmp(nodes, "1") != 0 || !node ||
        spank_get_item(sp, S_JOB_TOTAL_TASK_COUNT, &s->tasks) != ESPANK_SUCCESS)
        return false;
    s->nodes = 1;
    read_first_node(s, node);
    strbuf_printf(&s->tasks_per_node, "%u", s->tasks);
    return s->address[0] && !s->tasks_per_node.failed;
}

/* Asks Slurm; false: it does not tell. */
static bool read_layout(struct srun_step *s)
{
    slurm_step_id_t id = { .job_id = s->job_id,
                           .step_id = s->step_id,
                           .step_het_comp = NO_VAL };
    /* SLURM_NODELIST would be the nodes of the job, and the step may use only some
     * of them. */
    slurm_step_layout_t *layout = slurm_job_step_layout_get(&id);

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

static bool fail_to_read(void)
{
    return plugin_error(A0312, NULL,
                        "check that `scontrol ping` answers, then start the step again",
                        "Slurm does not report the size of this step");
}

bool srun_step_identify(spank_t sp, struct srun_step *s)
{
    return (spank_get_item(sp, S_JOB_ID, &s->job_id) == ESPANK_SUCCESS &&
            spank_get_item(sp, S_JOB_STEPID, &s->step_id) == ESPANK_SUCCESS) ||
           fail_to_read();
}

bool srun_step_read(spank_t sp, struct srun_step *s)
{
    return read_one_node(sp, s) || read_layout(s) || fail_to_read();
}

/* HYBRID_SHARD shards inside a node: a group that spans parts of two nodes has no
 * meaning, so nodes must have equally many tasks. */
static bool layout_fits(const struct job_file *f, const struct srun_step *s)
{
    char strategy[64], cure[200];

    job_file_value(f, "fsdp_sharding_strategy", strategy, sizeof(strategy));
    if (s->uneven && strncmp(strategy, "HYBRID_", 7) == 0) {
        snprintf(cure, sizeof(cure),
                 "use --ntasks-per-node and a number of tasks that is a multiple of "
                 "%u, or use fsdp_sharding_strategy: FULL_SHARD",
                 s->nodes);
        return plugin_error(
            A0322, "fsdp_sharding_strategy", cure,
            "%s needs the same number of tasks on each node, but the numbers are %s",
            strategy, s->tasks_per_node.s);
    }
    if (s->scattered)
        slurm_info("accel: tasks are not placed node by node (-m): RANK still counts "
                   "node by node, as torch expects, but SLURM_PROCID does not");
    return true;
}

bool srun_step_allowed(const struct client *c, const struct srun_step *s)
{
    if (getenv("SLURM_HET_SIZE")) {
        size_refuse_het();
        return false;
    }
    return size_fits(c, s->tasks, s->nodes) && layout_fits(&c->file, s);
}

bool srun_step_export(const struct client *c, const struct srun_step *s)
{
    struct config_world world = { .tasks = s->tasks,
                                  .nodes = s->nodes,
                                  .master_addr = s->address };
    accel_error_t err = { 0 };
    int claim;

    if (c->file.config.distributed_type != DIST_NO &&
        port_claim(s->address, s->job_id, s->step_id, &world.master_port, &claim, &err))
        return plugin_report(&err);
    return taskenv_export(c, &world, s->tasks_per_node.s);
}

/* A bare srun just ends. Inside an allocation, a step that srun has created but does
 * not launch keeps its CPUs until the job ends, and nothing can end it; so there the
 * step starts and its tasks refuse. */
int srun_step_refuse(const struct client *c)
{
    if (!user_env_get(&c->env, "SLURM_JOB_ID"))
        return -1;
    return setenv(ENV_CARRIER, CARRIER_REFUSED, 1) == 0 ? 0 : -1;
}
