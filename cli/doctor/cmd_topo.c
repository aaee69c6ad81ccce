/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel topo`: what this task gets of the machine or, with --local-ranks, the map of
 * all ranks of a node, here or on a recorded machine: GPU, cores, NUMA node,
 * interface. It calls the functions that accel_open uses, so both give the same
 * answer. Binds nothing.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/output.h"
#include "cli/doctor/topo_report.h"
#include "common/repeat_list.h"

/* More ranks than any node has cores for; keeps a typing error from
 * allocating gigabytes. */
#define MAX_LOCAL_RANKS 1024

struct topo_args {
    /* A machine recorded by lstopo, and the visible devices; NULL: not given. */
    const char *record, *gpus;
    /* 0: not given. */
    int local_ranks;
    bool json;
};

/* This process among the tasks of its step. */
struct place {
    int rank, size, node, local_rank, local_size;
    bool under_slurm;
};

static error_t parse_topo_args(int key, char *arg, struct argp_state *state)
{
    struct topo_args *a = state->input;
    char *end;
    long n;

    switch (key) {
    case 'x':
        a->record = arg;
        return 0;
    case 'g':
        a->gpus = arg;
        return 0;
    case 'l':
        errno = 0;
        n = strtol(arg, &end, 10);
        if (errno || *end || end == arg || n < 1 || n > MAX_LOCAL_RANKS)
            argp_error(state, "--local-ranks takes a number from 1 to %d, not '%s'",
                       MAX_LOCAL_RANKS, arg);
        a->local_ranks = (int)n;
        return 0;
    default:
        return cli_parse_json_into(key, state, &a->json);
    }
}

/* Reads the place from Slurm's variables. Outside of a step this process counts as the
 * only one of its node. */
static accel_status_t find_own_place(struct place *p, accel_error_t *err)
{
    const char *tasks = getenv("SLURM_STEP_TASKS_PER_NODE");

    *p = (struct place){ .size = 1, .local_size = 1 };
    /* All three, or the variables are leftovers of a shell that srun did not start. */
    if (!getenv("SLURM_PROCID") || !getenv("SLURM_STEP_ID") || !tasks)
        return ACCEL_OK;
    p->under_slurm = true;
    p->rank = (int)env_long("SLURM_PROCID", 0);
    p->size = (int)env_long("SLURM_STEP_NUM_TASKS", 1);
    p->node = (int)env_long("SLURM_NODEID", 0);
    p->local_rank = (int)env_long("SLURM_LOCALID", 0);
    /* Slurm names the tasks of every node in one list, and this node by its number. */
    p->local_size = (int)repeat_list_at(tasks, p->node);
    if (p->local_size < 1 || p->local_rank < 0 || p->local_rank >= p->local_size)
        return accel_fail_at(err, A0415, "SLURM_LOCALID",
                             "run it with srun, or unset SLURM_PROCID outside a step",
                             "rank %d of the node does not fit "
                             "SLURM_STEP_TASKS_PER_NODE '%s' on node %d",
                             p->local_rank, tasks, p->node);
    return ACCEL_OK;
}

/* The task's own facts; "started_by" tells whether Slurm's variables were used. */
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

/* ---- who gets what --------------------------------------------------------------- */

/* What the ranks of the node were given, before it is shared out among them. */
struct given {
    const struct topo_machine *machine;
    /* CUDA_VISIBLE_DEVICES; NULL: unset. */
    const char *visible;
    /* GPUs that count where it is unset. */
    int on_node;
    /* CPUs that this process may use. */
    char mask[TOPO_MASK];
};

/* The devices of one rank: *first_out is the index, in the visible list, of the first
 * of them. A rank keeps at most TOPO_RANK_GPUS. */
static accel_status_t take_devices(const struct given *g, int local_rank,
                                   int local_size, int *first_out,
                                   struct topo_rank *rank, accel_error_t *err)
{
    const struct topo_gpus *gpus = topo_machine_gpus(g->machine);
    accel_status_t st = topo_gpu_map(g->visible, g->on_node, local_rank, local_size,
                                     first_out, &rank->devices, err);

    ACCEL_TRY(st, topo_check_unset(gpus, g->visible, g->on_node, err));
    /* More than a rank can use; the report says how many it keeps. */
    if (rank->devices > TOPO_RANK_GPUS)
        rank->devices = TOPO_RANK_GPUS;
    for (int i = 0; st == ACCEL_OK && i < rank->devices; i++)
        st = topo_visible_device(gpus, g->visible, *first_out + i, &rank->device[i],
                                 err);
    return st;
}

/* The places of `ranks` ranks that were all given the same list and mask. */
static accel_status_t map_all(const struct given *g, int ranks,
                              struct topo_place *place, accel_error_t *err)
{
    struct topo_rank *rank = calloc((size_t)ranks, sizeof(*rank));
    accel_status_t st = ACCEL_OK;
    int first;

    /* topo_map wants all ranks at once: what one gets depends on the others. */
    if (!rank)
        return accel_fail_nomem(err, "the map", (size_t)ranks * sizeof(*rank));
    for (int i = 0; st == ACCEL_OK && i < ranks; i++) {
        memcpy(rank[i].mask, g->mask, sizeof(g->mask));
        st = take_devices(g, i, ranks, &first, &rank[i], err);
    }
    ACCEL_TRY(st, topo_map(g->machine, rank, ranks, place, err));
    free(rank);
    return st;
}

/* This task's place. The other tasks cannot be asked. If masks of this size do not all
 * fit into the machine, all tasks have the same one and share it out; else each has
 * cores of its own. A single GPU is this task's own, whatever number the others see. */
static accel_status_t map_own(const struct given *g, const struct place *p,
                              int *first_out, struct topo_place *own,
                              accel_error_t *err)
{
    /* Without a common mask this task is mapped alone, as rank 0 of 1. */
    bool common = topo_masks_common(g->machine, g->mask, p->local_size);
    int ranks = common ? p->local_size : 1, at = common ? p->local_rank : 0;
    struct topo_rank *rank = calloc((size_t)ranks, sizeof(*rank));
    struct topo_place *place = calloc((size_t)ranks, sizeof(*place));
    struct topo_rank mine = { 0 };
    accel_status_t st = ACCEL_OK;
    int first, last = 0;

    if (!rank || !place)
        st = accel_fail_nomem(err, "the map", (size_t)ranks * sizeof(*place));
    ACCEL_TRY(st, take_devices(g, p->local_rank, p->local_size, first_out, &mine, err));
    /* Where the last rank of the node begins in the list: 0 when there
     * is nothing to share. */
    if (st == ACCEL_OK)
        topo_gpu_map(g->visible, g->on_node, p->local_size - 1, p->local_size, &last,
                     &first, NULL);
    for (int i = 0; st == ACCEL_OK && i < ranks; i++) {
        memcpy(rank[i].mask, g->mask, sizeof(g->mask));
        /* last > 0: the list has GPUs for several ranks, so it is the same for all. */
        if (i != at && last > 0)
            st = take_devices(g, i, ranks, &first, &rank[i], err);
    }
    if (st == ACCEL_OK) {
        memcpy(mine.mask, g->mask, sizeof(g->mask));
        /* The others' places are only needed to find this one. */
        rank[at] = mine;
        st = topo_map(g->machine, rank, ranks, place, err);
    }
    if (st == ACCEL_OK)
        *own = place[at];
    /* The place depends on the other ranks' GPUs, which are not known here. In
     * accel_open the ranks tell each other. */
    if (st == ACCEL_OK && ranks > 1 && mine.devices > 0 && last == 0)
        snprintf(own->why, sizeof(own->why),
                 "a guess: the GPUs of the other tasks are not visible here");
    free(rank);
    free(place);
    return st;
}

/* Opens the machine, this one or a recorded one, and finds what its ranks were given. A
 * recorded machine has no environment: only --gpus counts there. The caller closes
 * *machine_out, which is NULL on failure. */
static accel_status_t look_at_machine(const struct topo_args *a,
                                      struct topo_machine **machine_out,
                                      struct given *g, accel_error_t *err)
{
    bool in_step = getenv("SLURM_STEP_ID") != NULL;
    accel_status_t st = topo_machine_open(machine_out, a->record, TOPO_GPUS_TOO, err);

    *g = (struct given){ .visible = a->gpus };
    if (st != ACCEL_OK)
        return st;
    g->machine = *machine_out;
    /* This machine without --gpus: what Slurm or the user made visible. */
    if (!a->gpus && !a->record) {
        g->visible = getenv("CUDA_VISIBLE_DEVICES");
        g->on_node = (int)env_long("SLURM_GPUS_ON_NODE", 0);
    }
    /* The question is what ranks started here would get: all GPUs, where
     * nothing limits them. */
    if (!a->gpus && !g->visible && a->local_ranks && !in_step)
        g->on_node = topo_machine_gpus(*machine_out)->count;
    /* The CPUs of this process; of a recorded machine all of them. */
    st = topo_own_mask(*machine_out, g->mask, err);
    if (st != ACCEL_OK) {
        topo_machine_close(*machine_out);
        *machine_out = NULL;
    }
    return st;
}

/* ---- output ---------------------------------------------------------------------- */

/* The cores of this task and why it has these (`cores_are`). */
static json_t *cores_json(const struct topo_machine *m, const struct topo_place *p)
{
    json_t *o = json_object();

    json_object_set_new(o, "cpu", json_string(topo_machine_cpu(m)));
    json_object_set_new(o, "cores", json_integer(p->cores));
    json_object_set_new(o, "hardware_threads", json_integer(p->pus));
    json_object_set_new(o, "cpuset", json_string(p->cpuset));
    json_object_set_new(o, "cores_are", json_string(p->why));
    json_object_set_new(o, "numa_node",
                        p->numa_node < 0 ? json_null() : json_integer(p->numa_node));
    return o;
}

/* Indices as CUDA counts them in this task: from the first of its part of the list. A
 * slice, or a device without a bus id, is named by its id. */
static json_t *devices_json(const struct topo_machine *m, const struct topo_place *p,
                            int first)
{
    json_t *o = topo_machine_json(m), *indices = json_array(), *ids = json_array();

    for (int i = 0; i < p->devices; i++) {
        const struct topo_device *d = &p->device[i];

        json_array_append_new(indices, json_integer(first + i));
        json_array_append_new(
            ids, json_string(topo_is_slice(d) || !d->bus_id[0] ? d->id : d->bus_id));
    }
    /* Told in the group "cpu" already. */
    json_object_del(o, "cpu");
    json_object_set_new(o, "gpu_count", json_integer(p->devices));
    json_object_set_new(o, "gpu_indices", indices);
    json_object_set_new(o, "gpu_ids", ids);
    if (p->nvlink[0])
        json_object_set_new(o, "nvlink", json_string(p->nvlink));
    json_object_set_new(o, "nic", p->nic[0] ? json_string(p->nic) : json_null());
    json_object_set_new(o, "nic_path", json_string(topo_path_name(p->path)));
    return o;
}

/* The report of this task alone. */
static int show_own(const struct topo_args *a, const struct given *g,
                    accel_error_t *err)
{
    struct topo_place own;
    struct place place;
    json_t *all, *task;
    int first = 0;

    if (find_own_place(&place, err) || map_own(g, &place, &first, &own, err))
        return cli_fail(err);
    task = json_object();
    add_place(task, &place);
    all = json_pack(
        "{s:o,s:o,s:o,s:o}", "task", task, "cpu", cores_json(g->machine, &own),
        "devices", devices_json(g->machine, &own, first), "gpus",
        (a->json ? topo_gpus_json : topo_gpus_words)(topo_machine_gpus(g->machine)));
    return report_print(all, a->json);
}

/* The map of all ranks of a node. In JSON the map is part of the report; as text the
 * report comes first and the map is a table of its own after it. */
static int show_map(const struct topo_args *a, const struct given *g,
                    accel_error_t *err)
{
    /* --xml alone: one rank, which gets the whole machine. */
    int ranks = a->local_ranks ? a->local_ranks : 1, code;
    struct topo_place *place = calloc((size_t)ranks, sizeof(*place));
    json_t *all, *map = a->json ? json_array() : NULL;
    accel_status_t st;

    if (place)
        st = map_all(g, ranks, place, err);
    else
        st = accel_fail_nomem(err, "the map", (size_t)ranks * sizeof(*place));
    if (st != ACCEL_OK) {
        free(place);
        json_decref(map);
        return cli_fail(err);
    }
    for (int r = 0; map && r < ranks; r++)
        json_array_append_new(map, topo_place_json(r, &place[r]));
    all = json_pack(
        "{s:o,s:o,s:o*}", "machine", topo_machine_json(g->machine), "gpus",
        (a->json ? topo_gpus_json : topo_gpus_words)(topo_machine_gpus(g->machine)),
        "map", map);
    code = report_print(all, a->json);
    /* The table is too wide for a report of names and values. */
    if (code == 0 && !a->json) {
        puts("");
        code = topo_map_print(place, ranks);
    }
    free(place);
    return code;
}

static const struct argp_option options[] = {
    { "local-ranks", 'l', "L", 0, "Show the map of L ranks on one node", 0 },
    { "gpus", 'g', "LIST", 0,
      "Visible devices, instead of CUDA_VISIBLE_DEVICES: indices, UUIDs, MIG instances",
      0 },
    { "xml", 'x', "FILE", 0,
      "A machine recorded by `lstopo FILE.xml`, instead of this one", 0 },
    CLI_JSON_OPTION,
    { 0 }
};
static const struct argp argp = {
    .options = options,
    .parser = parse_topo_args,
    .doc =
        "Shows the resources of a rank started here: cores, NUMA node, GPUs (numbered "
        "as the task sees them) and the nearest network interface. Under srun each "
        "task shows its own resources; --local-ranks and --xml show the map of all "
        "ranks of a node. PATH is the distance to the interface, in the terms of "
        "nvidia-smi topo: PIX one PCIe switch, PXB several switches, PHB the same host "
        "bridge, NODE the same NUMA node, SYS farther.\vExit code: 0 no problem, 64 "
        "Slurm's variables contradict each other, 65 the GPUs cannot be divided "
        "evenly, 66 the recorded machine cannot be read, 69 the GPUs of the step are "
        "hidden, or a visible GPU does not exist."
};

/* --xml and --local-ranks ask about a node, anything else about this task. */
static int run_topo(int argc, char **argv)
{
    struct topo_args a = { 0 };
    struct topo_machine *machine = NULL;
    struct given given;
    accel_error_t err = { 0 };
    int code;

    cli_parse(&cli_topo, argc, argv, &a);
    if (look_at_machine(&a, &machine, &given, &err))
        return cli_fail(&err);
    code = a.record || a.local_ranks ? show_map(&a, &given, &err)
                                     : show_own(&a, &given, &err);
    topo_machine_close(machine);
    return code;
}

const struct cli_command cli_topo = {
    .name = "topo",
    .run = run_topo,
    .summary = "cores, GPUs and network of this task",
    .example = "srun -n 2 accel topo\naccel topo --local-ranks 8",
    .argp = &argp,
};
