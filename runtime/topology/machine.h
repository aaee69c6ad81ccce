/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of struct topo_machine and the pure parts of the map, for the files of
 * this stage and their tests.
 */
#ifndef ACCEL_TOPOLOGY_MACHINE_H
#define ACCEL_TOPOLOGY_MACHINE_H

#include <hwloc.h>

#include "topology/topo.h"

enum { TOPO_NICS = 64 };

/* A network interface whose link is up, as far as anybody can say. */
struct topo_nic {
    char name[32];
    char port[40]; /* UCX's name of it: "eth0", "mlx5_0:1" */
    bool fabric;   /* InfiniBand or RoCE, else Ethernet */
    /* fabric: first half of its GID; equal ones can reach each other */
    char subnet[24];
    hwloc_obj_t at; /* its PCI device, or the interface itself */
};

struct topo_machine {
    hwloc_topology_t tree;
    bool recorded; /* the tree is not of this machine: ask no kernel about it */
    int nics;      /* those whose link is not known to be down */
    struct topo_nic nic[TOPO_NICS];
    struct topo_gpus gpus;
};

/* gpus.c: the GPUs of a recorded machine, found by PCI class and vendor. */
void topo_gpus_of_record(struct topo_gpus *gpus_out, hwloc_topology_t tree);

/* The PCI device of a rank's first GPU; NULL: none, or not in the tree. */
hwloc_obj_t topo_gpu_object(const struct topo_machine *m, const struct topo_rank *rank);

/* cores.c: fills place[i].cores, pus, numa_node, shared, cpuset, mask and why. */
accel_status_t topo_map_cores(const struct topo_machine *m,
                              const struct topo_rank *rank, int ranks,
                              struct topo_place *place, accel_error_t *err);
/* nic.c: finds m->nic; fills place[i].nic, path and net_devices, for which numa_node
 * must be known. */
void topo_nics_find(struct topo_machine *m);
accel_status_t topo_map_nics(const struct topo_machine *m, const struct topo_rank *rank,
                             int ranks, struct topo_place *place, accel_error_t *err);

#endif
