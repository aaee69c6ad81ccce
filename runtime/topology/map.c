/* SPDX-License-Identifier: Apache-2.0
 *
 * The map of a node: every rank's GPU, cores, NUMA node and interface. In: the machine
 * and what each rank was given. Out: one place per rank, or the contradiction in words.
 * A pure function.
 */
#include <stdio.h>
#include <string.h>

#include "topology/machine.h"

/* Refuses ranks a and b if they have a device in common: neither would know that it
 * shares it. Slices of one GPU have the same bus id but different UUIDs. */
static accel_status_t refuse_same_device(const struct topo_rank *rank, int a, int b,
                                         accel_error_t *err)
{
    for (int i = 0; i < rank[a].devices; i++) {
        const struct topo_device *x = &rank[a].device[i];

        for (int k = 0; x->bus_id[0] && k < rank[b].devices; k++) {
            const struct topo_device *y = &rank[b].device[k];

            if (strcmp(x->bus_id, y->bus_id) == 0 && strcmp(x->id, y->id) == 0)
                return accel_fail(
                    err, A0425,
                    "give every rank its own GPU: --gpus-per-task=1, or as many "
                    "--gpus-per-node as ranks per node",
                    "local ranks %d and %d of this node were both given %s %s (%s)", a,
                    b, topo_is_slice(x) ? "the MIG slice" : "GPU", x->bus_id, x->id);
        }
    }
    return ACCEL_OK;
}

accel_status_t topo_check_devices(const struct topo_rank *rank, int ranks, int *a_out,
                                  int *b_out, accel_error_t *err)
{
    for (int a = 0; a < ranks; a++)
        for (int b = a + 1; b < ranks; b++)
            if (refuse_same_device(rank, a, b, err) != ACCEL_OK) {
                *a_out = a;
                *b_out = b;
                return ACCEL_EMISMATCH;
            }
    return ACCEL_OK;
}

/* The visible GPU with this bus id; NULL: none. */
static const struct topo_gpu *topo_gpu_at(const struct topo_gpus *gpus,
                                          const char *bus_id)
{
    for (int i = 0; bus_id[0] && i < gpus->count; i++)
        if (strcmp(gpus->gpu[i].bus_id, bus_id) == 0)
            return &gpus->gpu[i];
    return NULL;
}

/* The first local rank that was given the GPU; -1: none. */
static int rank_of_gpu(const struct topo_rank *rank, int ranks, const char *bus_id)
{
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < rank[r].devices; i++)
            if (strcmp(rank[r].device[i].bus_id, bus_id) == 0)
                return r;
    return -1;
}

/* place->nvlink: "NVLink to local ranks 1, 2", followed by the bus ids of linked GPUs
 * that no rank of the node has. Empty for slices, which have no links. */
static void map_links(const struct topo_machine *m, const struct topo_rank *rank,
                      int ranks, int self, struct topo_place *place)
{
    const struct topo_device *d = &rank[self].device[0];
    const struct topo_gpu *gpu = rank[self].devices && !topo_is_slice(d)
                                     ? topo_gpu_at(&m->gpus, d->bus_id)
                                     : NULL;
    struct strbuf near = { 0 }, rest = { 0 };
    int found = 0, r;

    if (!gpu || gpu->nvlinks == 0)
        return;
    for (int i = 0; i < gpu->peers; i++) {
        r = rank_of_gpu(rank, ranks, gpu->peer[i]);
        if (r < 0)
            strbuf_printf(&rest, ", %s", gpu->peer[i]);
        else if (r != self)
            strbuf_printf(&near, "%s%d", found++ ? ", " : "", r);
    }
    if (near.failed || rest.failed)
        found = 0, rest.len = 0;
    if (gpu->nvlinks_switch > 0)
        snprintf(place->nvlink, sizeof(place->nvlink), "%d NVLink%s to a switch",
                 gpu->nvlinks, gpu->nvlinks == 1 ? "" : "s");
    else if (found)
        snprintf(place->nvlink, sizeof(place->nvlink), "NVLink to local rank%s %s%s",
                 found == 1 ? "" : "s", near.s, rest.len ? rest.s : "");
    else if (rest.len)
        snprintf(place->nvlink, sizeof(place->nvlink), "NVLink to GPU %s", rest.s + 2);
    strbuf_free(&near);
    strbuf_free(&rest);
}

/* Appends "GPU 0000:17:00.0 (80.0 GiB, 1980 MHz, 700 W)". Unknown facts
 * are left out. */
static void device_text(const struct topo_device *d, struct strbuf *s)
{
    bool slice = topo_is_slice(d);
    struct strbuf facts = { 0 };
    char bytes[32];

    strbuf_printf(s, "%s %s", slice ? "MIG slice" : "GPU",
                  slice || !d->bus_id[0] ? d->id : d->bus_id);
    if (slice && d->bus_id[0])
        strbuf_printf(&facts, ", of %s", d->bus_id);
    if (d->memory_bytes > 0)
        strbuf_printf(&facts, ", %s",
                      format_bytes((double)d->memory_bytes, bytes, sizeof(bytes)));
    if (d->sm_max_mhz > 0)
        strbuf_printf(&facts, ", %d MHz", d->sm_max_mhz);
    if (d->limit_watts > 0)
        strbuf_printf(&facts, ", %d W", d->limit_watts);
    if (facts.len > 0 && !facts.failed)
        strbuf_printf(s, " (%s)", facts.s + 2);
    strbuf_free(&facts);
}

const char *topo_place_text(const struct topo_place *place, char *buf, size_t len)
{
    struct strbuf s = { 0 };

    strbuf_printf(&s, "%s", place->devices ? "" : "CPU");
    for (int i = 0; i < place->devices; i++) {
        strbuf_printf(&s, "%s", i ? ", " : "");
        device_text(&place->device[i], &s);
    }
    if (place->nvlink[0])
        strbuf_printf(&s, ", %s", place->nvlink);
    if (place->numa_node >= 0)
        strbuf_printf(&s, ", NUMA %d", place->numa_node);
    strbuf_printf(&s, ", cores %s (%s)", place->cpuset, place->why);
    if (place->nic[0])
        strbuf_printf(&s, ", nic %s", place->nic);
    if (place->nic[0] && place->path != PATH_UNKNOWN)
        strbuf_printf(&s, " %s", topo_path_name(place->path));
    snprintf(buf, len, "%s", s.failed ? "" : s.s);
    strbuf_free(&s);
    return buf;
}

/* The order matters: interfaces need the NUMA node of the cores. */
accel_status_t topo_map(const struct topo_machine *m, const struct topo_rank *rank,
                        int ranks, struct topo_place *place_out, accel_error_t *err)
{
    int a, b;
    accel_status_t st;

    ACCEL_CHECK(st, topo_check_devices(rank, ranks, &a, &b, err));
    for (int r = 0; r < ranks; r++) {
        memset(&place_out[r], 0, sizeof(place_out[r]));
        place_out[r].devices = rank[r].devices;
        memcpy(place_out[r].device, rank[r].device, sizeof(place_out[r].device));
        map_links(m, rank, ranks, r, &place_out[r]);
    }
    st = topo_map_cores(m, rank, ranks, place_out, err);
    ACCEL_TRY(st, topo_map_nics(m, rank, ranks, place_out, err));
    return st;
}
