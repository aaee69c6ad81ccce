/* SPDX-License-Identifier: Apache-2.0
 *
 * Cores of this rank: the hwloc tree cut to the affinity mask, shared out among the ranks
 * of the node when they have one mask in common. Binds nothing.
 */
#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>

#include "topology/topo_impl.h"

/* Cores that have at least one PU in the mask. */
static int count_cores(hwloc_topology_t machine, hwloc_const_cpuset_t mask)
{
    int all = hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_CORE), n = 0;

    for (int i = 0; i < all; i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(machine, HWLOC_OBJ_CORE, (unsigned)i);

        n += hwloc_bitmap_intersects(core->cpuset, mask);
    }
    return n > 0 ? n : hwloc_bitmap_weight(mask); /* a tree without cores: count PUs */
}

/* Keeps cores [from, to) of those in the mask. */
static void keep_cores(hwloc_topology_t machine, hwloc_cpuset_t mask, int from, int to)
{
    int all = hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_CORE), n = 0;
    hwloc_obj_type_t type = all > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;

    all = hwloc_get_nbobjs_by_type(machine, type);
    for (int i = 0; i < all; i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(machine, type, (unsigned)i);

        if (!hwloc_bitmap_intersects(core->cpuset, mask))
            continue;
        if (n < from || n >= to)
            hwloc_bitmap_andnot(mask, mask, core->cpuset);
        n++;
    }
}

static int numa_of_first(hwloc_topology_t machine, hwloc_const_cpuset_t mask)
{
    int pu = hwloc_bitmap_first(mask);
    hwloc_obj_t node = NULL;

    while (pu >= 0 &&
           (node = hwloc_get_next_obj_by_type(machine, HWLOC_OBJ_NUMANODE, node)))
        if (node->cpuset && hwloc_bitmap_isset(node->cpuset, (unsigned)pu))
            return (int)node->os_index;
    return -1;
}

/* How many ranks of the node must have these cores in common. Slurm gives every rank a
 * mask of the same size; if the sizes add up to more than the machine, masks overlap. */
static int ranks_sharing(int cores_in_mask, int cores_allowed, int local_size)
{
    long wanted = (long)cores_in_mask * local_size;

    if (cores_allowed < cores_in_mask)
        cores_allowed = cores_in_mask;
    return (int)((wanted + cores_allowed - 1) / cores_allowed);
}

accel_status_t topo_describe(struct topo *t, hwloc_topology_t machine,
                             hwloc_const_cpuset_t mask, int local_rank, int local_size,
                             accel_error_t *err)
{
    hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(machine);
    hwloc_cpuset_t own = hwloc_bitmap_dup(mask);
    const char *model;
    int cores, sharing;

    if (!own)
        return accel_fail_nomem(err, "cpu set", 128);
    memset(t, 0, sizeof(*t));
    cores = count_cores(machine, own);
    sharing = ranks_sharing(cores, count_cores(machine, allowed), local_size);
    if (sharing >= local_size && local_size > 1) {
        /* One mask for all: this rank's slice of it; more ranks than cores: one core. */
        int from = (int)((long)local_rank * cores / local_size);
        int to = (int)((long)(local_rank + 1) * cores / local_size);

        keep_cores(machine, own, from, to > from ? to : from + 1);
        t->cores = to > from ? to - from : 1;
    } else {
        /* Which of the sharing ranks this is cannot be known: only the count is cut. */
        t->cores = cores / sharing > 0 ? cores / sharing : 1;
    }
    t->pus = hwloc_bitmap_weight(own);
    t->numa_node = numa_of_first(machine, own);
    hwloc_bitmap_list_snprintf(t->cpuset, sizeof(t->cpuset), own);
    hwloc_bitmap_free(own);
    model = hwloc_obj_get_info_by_name(hwloc_get_root_obj(machine), "CPUModel");
    if (!model && hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_PACKAGE) > 0)
        model = hwloc_obj_get_info_by_name(
            hwloc_get_obj_by_type(machine, HWLOC_OBJ_PACKAGE, 0), "CPUModel");
    snprintf(t->cpu_model, sizeof(t->cpu_model), "%s", model ? model : "unknown");
    return ACCEL_OK;
}

/* The affinity of the calling thread; grows the set until the kernel's fits. */
static accel_status_t own_mask(hwloc_topology_t machine, hwloc_cpuset_t mask,
                               accel_error_t *err)
{
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        cpu_set_t *set = CPU_ALLOC(cpus);
        int rc;

        if (!set)
            return accel_fail_nomem(err, "cpu set", bytes);
        rc = sched_getaffinity(0, bytes, set);
        if (rc == 0)
            rc = hwloc_cpuset_from_glibc_sched_affinity(machine, mask, set, bytes);
        else if (errno == EINVAL)
            rc = 1;
        CPU_FREE(set);
        if (rc == 0)
            return ACCEL_OK;
        if (rc < 0)
            break;
    }
    return accel_fail(err, A0410, "see whether `taskset -p $$` works",
                      "cannot read the CPU affinity: %s", strerror(errno));
}

accel_status_t topo_discover(struct topo *t, int local_rank, int local_size,
                             accel_error_t *err)
{
    hwloc_topology_t machine = NULL;
    hwloc_cpuset_t mask = hwloc_bitmap_alloc();
    struct topo found;
    accel_status_t s = ACCEL_OK;

    if (!mask)
        return accel_fail_nomem(err, "cpu set", 128);
    if (local_size < 1 || local_rank < 0 || local_rank >= local_size) {
        s = accel_fail(err, A0411, "let srun, mpirun or accel launch number the ranks",
                       "local rank %d of %d", local_rank, local_size);
        goto out;
    }
    if (hwloc_topology_init(&machine) != 0 || hwloc_topology_load(machine) != 0) {
        s = accel_fail(err, A0410, "check that lstopo works; unset HWLOC_XMLFILE",
                       "hwloc cannot read the machine's topology: %s", strerror(errno));
        goto out;
    }
    /* A recorded machine (HWLOC_XMLFILE) has no running threads to ask. */
    if (hwloc_topology_is_thissystem(machine))
        s = own_mask(machine, mask, err);
    else
        hwloc_bitmap_copy(mask, hwloc_topology_get_allowed_cpuset(machine));
    if (s == ACCEL_OK)
        s = topo_describe(&found, machine, mask, local_rank, local_size, err);
    if (s == ACCEL_OK)
        *t = found;
out:
    if (machine)
        hwloc_topology_destroy(machine);
    hwloc_bitmap_free(mask);
    return s;
}
