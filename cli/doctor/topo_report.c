/* SPDX-License-Identifier: Apache-2.0
 *
 * The output of `accel topo`: GPUs, interfaces and places as JSON, as words
 * and as a table. A lack of memory leaves a part out or makes the whole NULL,
 * which report_print tells.
 */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/doctor/topo_report.h"

/* NVML's empty text stands for "not told". */
static json_t *text_or_null(const char *text)
{
    return text[0] ? json_string(text) : json_null();
}

/* Without GPUs the reason is there instead of a driver: "no GPU" and "no driver"
 * have different cures. */
json_t *topo_machine_json(const struct topo_machine *m)
{
    const struct topo_gpus *gpus = topo_machine_gpus(m);
    json_t *o = json_object(), *nics = json_array();
    const char *name;

    json_object_set_new(o, "cpu", json_string(topo_machine_cpu(m)));
    for (int i = 0; (name = topo_machine_nic(m, i)); i++)
        json_array_append_new(nics, json_string(name));
    json_object_set_new(o, "nics", nics);
    if (gpus->driver[0])
        json_object_set_new(o, "driver", json_string(gpus->driver));
    if (!gpus->known)
        json_object_set_new(o, "no_gpus_because", json_string(gpus->why));
    return o;
}

/* ---- GPUs ------------------------------------------------------------------------ */

/* NVML's 0 stands for "not told". */
static json_t *known_number(int number)
{
    return number > 0 ? json_integer(number) : json_null();
}

/* Clocks in MHz, power in watts; why the GPU runs slower than it could. */
static json_t *clocks_json(const struct topo_clocks *c)
{
    char why[256];

    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:b}", "sm_mhz",
                     known_number(c->sm_mhz), "sm_max_mhz", known_number(c->sm_max_mhz),
                     "memory_mhz", known_number(c->memory_mhz), "memory_max_mhz",
                     known_number(c->memory_max_mhz), "watts", known_number(c->watts),
                     "limit_watts", known_number(c->limit_watts), "held_back_by",
                     text_or_null(topo_reasons_text(c->reasons, why, sizeof(why))),
                     "slowed_down", (c->reasons & REASONS_SLOW) != 0);
}

/* All of one GPU, for scripts. Memory in bytes; peers are bus ids. */
static json_t *gpu_json(const struct topo_gpus *gpus, int i)
{
    const struct topo_gpu *g = &gpus->gpu[i];
    json_t *slices = json_array(), *peers = json_array();

    for (int s = 0; s < g->slices; s++)
        json_array_append_new(slices, json_string(g->slice[s].uuid));
    for (int p = 0; p < g->peers; p++)
        json_array_append_new(peers, json_string(g->peer[p]));
    return json_pack(
        "{s:i,s:o,s:o,s:o,s:I,s:I,s:b,s:o,s:i,s:i,s:o,s:o}", "index", i, "bus_id",
        text_or_null(g->bus_id), "uuid", text_or_null(g->uuid), "name",
        text_or_null(g->name), "memory_bytes", (json_int_t)g->memory_bytes,
        "memory_used_bytes", (json_int_t)g->memory_used_bytes, "mig", g->mig,
        "mig_slices", slices, "nvlinks", g->nvlinks, "nvlinks_to_switch",
        g->nvlinks_switch, "nvlink_peers", peers, "clocks", clocks_json(&g->clocks));
}

json_t *topo_gpus_json(const struct topo_gpus *gpus)
{
    json_t *list = json_array();

    for (int i = 0; i < gpus->count; i++)
        json_array_append_new(list, gpu_json(gpus, i));
    return list;
}

/* ", 4 NVLinks to GPU 1, 2"; GPUs behind a switch are all named. */
static void links_words(const struct topo_gpus *gpus, const struct topo_gpu *g,
                        struct strbuf *s)
{
    /* The first GPU gets the words, the others a comma. */
    const char *before = " to GPU ";

    if (g->nvlinks == 0)
        return;
    strbuf_printf(s, ", %d NVLink%s", g->nvlinks, g->nvlinks == 1 ? "" : "s");
    if (g->nvlinks_switch > 0)
        strbuf_printf(s, " to a switch");
    for (int p = 0; p < gpus->count; p++)
        if (topo_gpu_linked(g, gpus->gpu[p].bus_id)) {
            strbuf_printf(s, "%s%d", before, p);
            before = ", ";
        }
}

/* One GPU in a line: bus id, name, memory, slices, links, clocks. Parts that are not
 * known are left out. */
static void gpu_words(const struct topo_gpus *gpus, const struct topo_gpu *g,
                      struct strbuf *s)
{
    char bytes[32], text[256];

    /* NVML counts it, and nothing more is known. */
    if (!g->bus_id[0]) {
        strbuf_printf(s, "does not answer");
        return;
    }
    strbuf_printf(s, "%s%s%s", g->bus_id, g->name[0] ? " " : "", g->name);
    if (g->memory_bytes > 0)
        strbuf_printf(s, ", %s",
                      format_bytes((double)g->memory_bytes, bytes, sizeof(bytes)));
    if (g->memory_used_bytes > 0)
        strbuf_printf(s, ", %s in use",
                      format_bytes((double)g->memory_used_bytes, bytes, sizeof(bytes)));
    if (g->mig)
        strbuf_printf(s, ", %d MIG slice%s", g->slices, g->slices == 1 ? "" : "s");
    links_words(gpus, g, s);
    if (*topo_clocks_text(&g->clocks, text, sizeof(text)))
        strbuf_printf(s, ", %s", text);
    if (*topo_reasons_text(g->clocks.reasons, text, sizeof(text)))
        strbuf_printf(s, ", %s", text);
}

/* Keys "gpu 0", "gpu 1" ...: each GPU is one line of the report's table. */
json_t *topo_gpus_words(const struct topo_gpus *gpus)
{
    json_t *o = json_object();

    for (int i = 0; i < gpus->count; i++) {
        struct strbuf s = { 0 };
        char key[16];

        snprintf(key, sizeof(key), "gpu %d", i);
        gpu_words(gpus, &gpus->gpu[i], &s);
        json_object_set_new(o, key, json_string(s.failed ? "?" : s.s));
        strbuf_free(&s);
    }
    return o;
}

/* ---- places ---------------------------------------------------------------------- */

/* -1 is the topology's "unknown" and becomes null: a script must not
 * take it for a number. */
json_t *topo_place_json(int local_rank, const struct topo_place *p)
{
    json_t *devices = json_array();

    /* index: NVML's, not the one that CUDA counts in this task. */
    for (int i = 0; i < p->devices; i++)
        json_array_append_new(
            devices,
            json_pack(
                "{s:o,s:o,s:s,s:I}", "index",
                p->device[i].index < 0 ? json_null() : json_integer(p->device[i].index),
                "bus_id", text_or_null(p->device[i].bus_id), "id", p->device[i].id,
                "memory_bytes", (json_int_t)p->device[i].memory_bytes));
    return json_pack(
        "{s:i,s:o,s:o,s:o,s:i,s:i,s:s,s:s,s:o,s:s,s:o}", "local_rank", local_rank,
        "gpus", devices, "nvlink", text_or_null(p->nvlink), "numa_node",
        p->numa_node < 0 ? json_null() : json_integer(p->numa_node), "cores", p->cores,
        "hardware_threads", p->pus, "cpuset", p->cpuset, "cores_are", p->why, "nic",
        text_or_null(p->nic), "nic_path", topo_path_name(p->path), "ucx_net_devices",
        text_or_null(p->net_devices));
}

/* The three cells about a rank's devices. GPU: "0", "0,1", "2:MIG-UUID" (a slice of GPU
 * 2), or the word in the visible list that no known GPU answers to. */
static void device_cells(const struct topo_place *p, struct strbuf *gpu,
                         struct strbuf *bus, struct strbuf *memory)
{
    for (int i = 0; i < p->devices; i++) {
        const struct topo_device *d = &p->device[i];
        const char *comma = i ? "," : "";
        char bytes[32] = "?";

        /* Not among NVML's GPUs: shown as the list names it. */
        if (d->index < 0)
            strbuf_printf(gpu, "%s%s", comma, d->id);
        else if (topo_is_slice(d))
            strbuf_printf(gpu, "%s%d:%s", comma, d->index, d->id);
        else
            strbuf_printf(gpu, "%s%d", comma, d->index);
        strbuf_printf(bus, "%s%s", comma, d->bus_id[0] ? d->bus_id : "unknown");
        if (d->memory_bytes > 0)
            format_bytes((double)d->memory_bytes, bytes, sizeof(bytes));
        strbuf_printf(memory, "%s%s", comma, bytes);
    }
    /* "-" tells a rank without GPUs from a cell that got lost. */
    if (p->devices == 0) {
        strbuf_printf(gpu, "-");
        strbuf_printf(bus, "-");
        strbuf_printf(memory, "-");
    }
}

/* Cells whose buffer failed are NULL, which is an empty cell. */
int topo_map_print(const struct topo_place *place, int ranks)
{
    static const char *const columns[] = { "#RANK", "GPU",    "BUS_ID",    "MEMORY",
                                           "NUMA",  "#CORES", "CPUS",      "NIC",
                                           "PATH",  "NVLINK", "CORES_ARE", NULL };
    struct cli_table *t = cli_table_new("map", columns);

    if (!t)
        return cli_no_memory("the map");
    for (int r = 0; r < ranks; r++) {
        const struct topo_place *p = &place[r];
        struct strbuf gpu = { 0 }, bus = { 0 }, memory = { 0 };
        /* "-": the topology does not know the NUMA node. */
        char rank[16], cores[16], numa[16] = "-";

        snprintf(rank, sizeof(rank), "%d", r);
        snprintf(cores, sizeof(cores), "%d", p->cores);
        if (p->numa_node >= 0)
            snprintf(numa, sizeof(numa), "%d", p->numa_node);
        device_cells(p, &gpu, &bus, &memory);
        cli_table_row(t, (const char *[]){ rank, gpu.s, bus.s, memory.s, numa, cores,
                                           p->cpuset, p->nic[0] ? p->nic : "-",
                                           topo_path_name(p->path),
                                           p->nvlink[0] ? p->nvlink : "-", p->why });
        strbuf_free(&memory);
        strbuf_free(&gpu);
        strbuf_free(&bus);
    }
    return cli_table_print(t, false);
}
