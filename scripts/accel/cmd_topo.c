/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel topo`: what this task gets of the machine: cores, NUMA node, GPUs by the rule of
 * the runtime, network interfaces; under srun for this task's place in the step. Binds
 * nothing.
 */
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scripts/accel/cli.h"
#include "scripts/accel/report.h"
#include "scripts/accel/step.h"
#include "topology/topo.h"

struct place {
    int rank, size, node, local_rank, local_size;
    bool under_slurm;
};

/* Outside of a step this process counts as the only one of its node. */
static accel_status_t find_place(struct place *p, accel_error_t *err)
{
    const char *tasks = getenv("SLURM_STEP_TASKS_PER_NODE");

    *p = (struct place){ .size = 1, .local_size = 1 };
    if (!getenv("SLURM_PROCID") || !getenv("SLURM_STEP_ID") || !tasks)
        return ACCEL_OK;
    p->under_slurm = true;
    p->rank = (int)env_long("SLURM_PROCID", 0);
    p->size = (int)env_long("SLURM_STEP_NUM_TASKS", 1);
    p->node = (int)env_long("SLURM_NODEID", 0);
    p->local_rank = (int)env_long("SLURM_LOCALID", 0);
    p->local_size = step_tasks_on_node(tasks, p->node);
    if (p->local_size < 1 || p->local_rank < 0 || p->local_rank >= p->local_size)
        return accel_fail_at(err, A0415, "SLURM_LOCALID",
                             "run it by srun, or unset SLURM_PROCID outside of a step",
                             "rank %d of the node does not fit "
                             "SLURM_STEP_TASKS_PER_NODE '%s' on node %d",
                             p->local_rank, tasks, p->node);
    return ACCEL_OK;
}

static void add_place(json_t *o, const struct place *p)
{
    char host[256] = "";

    gethostname(host, sizeof(host) - 1);
    json_object_set_new(o, "host", json_string(host));
    json_object_set_new(o, "started_by",
                        json_string(p->under_slurm ? "Slurm step" : "hand"));
    json_object_set_new(o, "rank", json_integer(p->rank));
    json_object_set_new(o, "ranks", json_integer(p->size));
    json_object_set_new(o, "node", json_integer(p->node));
    json_object_set_new(o, "local_rank", json_integer(p->local_rank));
    json_object_set_new(o, "ranks_on_node", json_integer(p->local_size));
}

static void add_cores(json_t *o, const struct topo *t)
{
    json_object_set_new(o, "cpu", json_string(t->cpu_model));
    json_object_set_new(o, "cores", json_integer(t->cores));
    json_object_set_new(o, "hardware_threads", json_integer(t->pus));
    json_object_set_new(o, "cpuset", json_string(t->cpuset));
    json_object_set_new(o, "numa_node",
                        t->numa_node < 0 ? json_null() : json_integer(t->numa_node));
}

static accel_status_t add_gpus(json_t *o, const struct place *p, accel_error_t *err)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int first = 0, count = 0;
    json_t *list;
    accel_status_t s = topo_gpu_map(visible, (int)env_long("SLURM_GPUS_ON_NODE", 0),
                                    p->local_rank, p->local_size, &first, &count, err);

    if (s != ACCEL_OK)
        return s;
    list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_integer(first + i));
    json_object_set_new(o, "gpu_count", json_integer(count));
    json_object_set_new(o, "gpu_indices", list);
    return ACCEL_OK;
}

/* NUMA node of the part of the machine that a device hangs on, or -1 when it is on none
 * or on several. */
static int numa_of(hwloc_topology_t machine, hwloc_obj_t device)
{
    hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(machine, device);

    if (!near || !near->nodeset || hwloc_bitmap_weight(near->nodeset) != 1)
        return -1;
    return hwloc_bitmap_first(near->nodeset);
}

/* Only interfaces are asked for: GPU drivers and X servers need not be woken for them. */
static void leave_drivers_alone(hwloc_topology_t machine)
{
    static const char *const components[] = { "cuda", "gl",     "levelzero",
                                              "nvml", "opencl", "rsmi" };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(components); i++) /* -1: not there */
        hwloc_topology_set_components(machine, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                      components[i]);
}

/* "eth0@numa0" for every network and InfiniBand device. */
static accel_status_t add_nics(json_t *o, accel_error_t *err)
{
    hwloc_topology_t machine = NULL;
    hwloc_obj_t device = NULL;
    json_t *list;

    if (hwloc_topology_init(&machine) == 0)
        leave_drivers_alone(machine);
    if (!machine ||
        hwloc_topology_set_io_types_filter(machine, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) !=
            0 ||
        hwloc_topology_load(machine) != 0) {
        if (machine)
            hwloc_topology_destroy(machine);
        return accel_fail(err, A0410, "check that lstopo works",
                          "hwloc cannot read the machine's devices");
    }
    list = json_array();
    while ((device = hwloc_get_next_osdev(machine, device))) {
        hwloc_obj_osdev_type_t type = device->attr->osdev.type;
        char text[128], numa[32] = "";
        int node = numa_of(machine, device);

        if (type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS)
            continue;
        if (node >= 0)
            snprintf(numa, sizeof(numa), "@numa%d", node);
        snprintf(text, sizeof(text), "%s%s", device->name ? device->name : "?", numa);
        json_array_append_new(list, json_string(text));
    }
    hwloc_topology_destroy(machine);
    json_object_set_new(o, "nics", list);
    return ACCEL_OK;
}

static const struct argp argp = {
    .options = cli_json_options,
    .parser = cli_parse_json,
    .doc = "Shows what a rank started here computes with: cores, NUMA node, GPUs "
           "(counted as the task sees them) and the network interfaces of the node. "
           "Under srun each task shows its own part.\vExit code: 0 good, 64 Slurm's "
           "variables do not fit each other, 65 the GPUs cannot be shared out, 69 GPUs "
           "were given but are hidden."
};

static int run_topo(int argc, char **argv)
{
    bool json = false;
    struct place place;
    struct topo topo;
    accel_error_t err;
    json_t *all;

    cli_parse(&cli_topo, argc, argv, &json);
    if (find_place(&place, &err) ||
        topo_discover(&topo, place.local_rank, place.local_size, &err))
        return cli_fail(&err);
    all = json_pack("{s:{},s:{},s:{}}", "task", "cpu", "devices");
    if (all) {
        json_t *devices = json_object_get(all, "devices");

        add_place(json_object_get(all, "task"), &place);
        add_cores(json_object_get(all, "cpu"), &topo);
        if (add_gpus(devices, &place, &err) || add_nics(devices, &err)) {
            json_decref(all);
            return cli_fail(&err);
        }
    }
    return report_print(all, json);
}

const struct cli_command cli_topo = {
    .name = "topo",
    .run = run_topo,
    .summary = "cores, GPUs and network of this task",
    .example = "srun -n 2 accel topo",
    .argp = &argp,
};
