/* SPDX-License-Identifier: Apache-2.0
 *
 * The network interfaces of the node, and which of them each rank uses. In: hwloc's
 * tree with devices. Out: the nearest interface; if several are equally near, the ranks
 * take turns. Offers UCX fewer than all only if some are farther away, belong to the
 * same fabric and are kept busy by other ranks of the node: to leave out the only way
 * to another node, or bandwidth that nobody uses, would be worse than a detour.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/machine.h"

/* by enum topo_path */
static const char *const path_names[] = { "PIX", "PXB", "PHB", "NODE", "SYS", "-" };

const char *topo_path_name(enum topo_path path)
{
    return path_names[path];
}

/* ---- what there is --------------------------------------------------------------- */

/* Is the link up, as far as anybody says? A port that is down must not be chosen; in
 * doubt it is up. A record does not have the state of Ethernet links. */
static bool is_up(const struct topo_machine *m, hwloc_obj_t os, bool fabric)
{
    const char *state = fabric ? hwloc_obj_get_info_by_name(os, "Port1State") : NULL;
    char path[128], word[16] = "";
    FILE *f;

    if (fabric)
        return !state || strcmp(state, "4") == 0; /* "active" */
    if (m->recorded)
        return true;
    snprintf(path, sizeof(path), "/sys/class/net/%.64s/operstate", os->name);
    f = fopen(path, "re");
    if (!f)
        return true;
    if (!fgets(word, sizeof(word), f))
        word[0] = '\0';
    fclose(f);
    return strncmp(word, "down", 4) != 0;
}

/* for qsort: fabric before Ethernet, then in the order of the tree */
static int by_place(const void *a, const void *b)
{
    const struct topo_nic *x = a, *y = b;

    if (x->fabric != y->fabric)
        return x->fabric ? -1 : 1;
    return x->at->logical_index < y->at->logical_index ? -1 : 1;
}

/* The first port of each device only. Interfaces without a PCI device (virtual
 * ones) count, too. */
void topo_nics_find(struct topo_machine *m)
{
    hwloc_obj_t os = NULL;

    while ((os = hwloc_get_next_osdev(m->tree, os)) && m->nics < TOPO_NICS) {
        struct topo_nic *nic = &m->nic[m->nics];
        bool fabric = os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
        const char *gid;

        if ((!fabric && os->attr->osdev.type != HWLOC_OBJ_OSDEV_NETWORK) || !os->name ||
            !is_up(m, os, fabric))
            continue;
        snprintf(nic->name, sizeof(nic->name), "%s", os->name);
        snprintf(nic->port, sizeof(nic->port), fabric ? "%s:1" : "%s", os->name);
        gid = fabric ? hwloc_obj_get_info_by_name(os, "Port1GID0") : NULL;
        snprintf(nic->subnet, sizeof(nic->subnet), "%.19s", gid ? gid : "");
        nic->fabric = fabric;
        nic->at = os->parent->type == HWLOC_OBJ_PCI_DEVICE ? os->parent : os;
        m->nics++;
    }
    qsort(m->nic, (size_t)m->nics, sizeof(m->nic[0]), by_place);
}

/* ---- how far --------------------------------------------------------------------- */

/* Is `above` an ancestor of obj, or obj itself? */
static bool is_above(hwloc_obj_t above, hwloc_obj_t obj)
{
    while (obj && obj != above)
        obj = obj->parent;
    return obj != NULL;
}

/* Does this bridge connect a PCIe tree to the CPU? */
static bool is_host_bridge(hwloc_obj_t obj)
{
    return obj->type == HWLOC_OBJ_BRIDGE &&
           obj->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
}

/* Number of objects between obj and its ancestor `above`. A switch is two bridges, one
 * below the other. */
static int steps_to(hwloc_obj_t obj, hwloc_obj_t above)
{
    int n = 0;

    for (obj = obj->parent; obj != above; obj = obj->parent)
        n++;
    return n;
}

/* For an interface that shares no bridge with the GPU or the cores: same NUMA
 * nodes or not? */
static enum topo_path path_by_numa(const struct topo_machine *m, hwloc_obj_t nic,
                                   hwloc_const_nodeset_t nodes)
{
    hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(m->tree, nic);

    if (!near || !near->nodeset || !nodes)
        return PATH_UNKNOWN;
    return hwloc_bitmap_isequal(near->nodeset, nodes) ? PATH_NODE : PATH_SYS;
}

/* Looks for the lowest bridge above both. Below a host bridge it is a switch: one (PIX)
 * if hardly anything lies in between, else several (PXB). */
static enum topo_path path_from_gpu(const struct topo_machine *m, hwloc_obj_t nic,
                                    hwloc_obj_t gpu)
{
    hwloc_obj_t both = nic->parent, near;

    while (both && !is_above(both, gpu))
        both = both->parent;
    if (both && both->type == HWLOC_OBJ_BRIDGE) {
        if (is_host_bridge(both))
            return PATH_PHB;
        return steps_to(gpu, both) <= 1 && steps_to(nic, both) <= 1 ? PATH_PIX
                                                                    : PATH_PXB;
    }
    near = hwloc_get_non_io_ancestor_obj(m->tree, gpu);
    return path_by_numa(m, nic, near ? near->nodeset : NULL);
}

/* A CPU reaches every interface through a host bridge: only the NUMA node matters. */
static enum topo_path path_from_cores(const struct topo_machine *m, hwloc_obj_t nic,
                                      int numa_node)
{
    hwloc_nodeset_t nodes = hwloc_bitmap_alloc();
    enum topo_path path = PATH_UNKNOWN;

    if (nodes && numa_node >= 0) {
        hwloc_bitmap_only(nodes, (unsigned)numa_node);
        path = path_by_numa(m, nic, nodes);
    }
    hwloc_bitmap_free(nodes);
    return path;
}

/* ---- which ----------------------------------------------------------------------- */

/* A rank's view of the interfaces. */
struct choice {
    enum topo_path path[TOPO_NICS]; /* from this rank to m->nic[i] */
    enum topo_path best;            /* the shortest of them */
    uint64_t nearest;               /* bit i: path[i] is best */
    int chosen;                     /* index of the one that it uses */
};

/* Fills path, best and nearest. Only interfaces of the first kind count: an Ethernet
 * beside InfiniBand is not for data. They are sorted, so fabric comes first. */
static void look_around(const struct topo_machine *m, const struct topo_rank *rank,
                        const struct topo_place *place, struct choice *c)
{
    hwloc_obj_t gpu = topo_gpu_object(m, rank);

    c->best = PATH_UNKNOWN;
    c->nearest = 0;
    for (int i = 0; i < m->nics && m->nic[i].fabric == m->nic[0].fabric; i++) {
        c->path[i] = gpu ? path_from_gpu(m, m->nic[i].at, gpu)
                         : path_from_cores(m, m->nic[i].at, place->numa_node);
        if (c->path[i] < c->best || !c->nearest) {
            c->best = c->path[i];
            c->nearest = 0;
        }
        if (c->path[i] == c->best)
            c->nearest |= UINT64_C(1) << i;
    }
}

/* Bit set of the ports on the chosen one's fabric (empty for Ethernet). *farther_out:
 * those of them that are not among the nearest. */
static uint64_t same_fabric(const struct topo_machine *m, const struct choice *c,
                            uint64_t *farther_out)
{
    const struct topo_nic *own = &m->nic[c->chosen];
    uint64_t same = 0;

    *farther_out = 0;
    for (int i = 0; own->fabric && i < m->nics && m->nic[i].fabric; i++) {
        if (strcmp(m->nic[i].subnet, own->subnet) != 0)
            continue;
        same |= UINT64_C(1) << i;
        if (c->path[i] > c->best)
            *farther_out |= UINT64_C(1) << i;
    }
    return same;
}

/* Sets place->net_devices to everything except the farther ports of the rank's fabric,
 * but only if the nearest are on its own NUMA node and every port of that fabric is
 * some rank's choice (`used`). Otherwise it stays empty, and UCX uses all. */
static void offer(const struct topo_machine *m, const struct choice *c, uint64_t used,
                  struct topo_place *place)
{
    uint64_t farther, same = same_fabric(m, c, &farther);
    struct strbuf list = { 0 };

    if (!farther || c->best > PATH_NODE || (used & same) != same)
        return;
    for (int i = 0; i < m->nics; i++)
        if (!(farther >> i & 1))
            strbuf_printf(&list, "%s%s", list.len ? "," : "", m->nic[i].port);
    if (!list.failed && list.len < sizeof(place->net_devices))
        memcpy(place->net_devices, list.s, list.len + 1);
    strbuf_free(&list);
}

/* The nearest interface for rank r. Ranks to which the same ones are nearest take
 * turns, by the order of their local ranks. */
static int take_turn(const struct choice *all, int r)
{
    int turn = 0, at = -1;

    for (int k = 0; k < r; k++)
        turn += all[k].nearest == all[r].nearest;
    for (turn %= __builtin_popcountll(all[r].nearest); turn >= 0; turn--)
        do
            at++;
        while (!(all[r].nearest >> at & 1));
    return at;
}

accel_status_t topo_map_nics(const struct topo_machine *m, const struct topo_rank *rank,
                             int ranks, struct topo_place *place, accel_error_t *err)
{
    struct choice *all = calloc((size_t)ranks, sizeof(*all));
    uint64_t used = 0;

    if (!all)
        return accel_fail_nomem(err, "the map", (size_t)ranks * sizeof(*all));
    for (int r = 0; r < ranks; r++) {
        place[r].path = PATH_UNKNOWN;
        if (m->nics == 0)
            continue;
        look_around(m, &rank[r], &place[r], &all[r]);
        all[r].chosen = take_turn(all, r);
        used |= UINT64_C(1) << all[r].chosen;
        place[r].path = all[r].best;
        snprintf(place[r].nic, sizeof(place[r].nic), "%s", m->nic[all[r].chosen].name);
    }
    for (int r = 0; m->nics > 0 && r < ranks; r++)
        offer(m, &all[r], used, &place[r]);
    free(all);
    return ACCEL_OK;
}

void topo_use_nic(const struct topo_machine *m, int i, struct topo_place *place)
{
    snprintf(place->nic, sizeof(place->nic), "%s", m->nic[i].name);
    snprintf(place->net_devices, sizeof(place->net_devices), "%s", m->nic[i].port);
    place->path = PATH_UNKNOWN;
}
