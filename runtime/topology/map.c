/* SPDX-License-Identifier: Apache-2.0
 *
 * The map of a node: every rank's GPU, cores, NUMA node and interface. In: the machine and
 * what each rank was given. Out: one place per rank, or the contradiction in words. Pure.
 */
#include <stdio.h>
#include <string.h>

#include "topology/machine.h"

/* A device that two ranks were given would be shared without either knowing. */
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
                    "give every rank its own: --gpus-per-task=1, or as many "
                    "--gpus-per-node as ranks per node",
                    "local ranks %d and %d of this node were both given %s %s (%s)", a,
                    b, strncmp(x->id, "MIG-", 4) == 0 ? "the MIG slice" : "GPU",
                    x->bus_id, x->id);
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

const char *topo_place_text(const struct topo_place *place, char *buf, size_t len)
{
    struct strbuf s = { 0 };

    strbuf_printf(&s, "%s", place->devices ? "" : "CPU");
    for (int i = 0; i < place->devices; i++) {
        const struct topo_device *d = &place->device[i];
        bool slice = strncmp(d->id, "MIG-", 4) == 0;

        strbuf_printf(&s, "%s%s %s", i ? ", " : "", slice ? "MIG slice" : "GPU",
                      slice || !d->bus_id[0] ? d->id : d->bus_id);
    }
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

accel_status_t topo_map(const struct topo_machine *m, const struct topo_rank *rank,
                        int ranks, struct topo_place *place, accel_error_t *err)
{
    int a, b;
    accel_status_t st = topo_check_devices(rank, ranks, &a, &b, err);

    if (st != ACCEL_OK)
        return st;
    for (int r = 0; r < ranks; r++) {
        memset(&place[r], 0, sizeof(place[r]));
        place[r].devices = rank[r].devices;
        memcpy(place[r].device, rank[r].device, sizeof(place[r].device));
    }
    st = topo_map_cores(m, rank, ranks, place, err);
    if (st == ACCEL_OK)
        st = topo_map_nics(m, rank, ranks, place, err);
    return st;
}
