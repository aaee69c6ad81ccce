/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine as hwloc and NVML see it, read once. In: this machine, or an hwloc XML
 * file. Out: struct topo_machine. hwloc must not load GPU drivers: its plugins would
 * wake them up, and NVML is asked directly.
 */
#include <errno.h>
#include <hwloc/glibc-sched.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/machine.h"

/* Excludes hwloc's components for GPU drivers. Also pci: hwloc's linux
 * component reads the same from /sys, and libpciaccess does not free its memory
 * (9 leaks under LSan). */
static void leave_drivers_alone(hwloc_topology_t tree)
{
    static const char *const components[] = { "cuda", "gl",     "levelzero", "nvml",
                                              "pci",  "opencl", "rsmi" };

    /* An error only means that this hwloc has no such component. */
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(components); i++)
        hwloc_topology_set_components(tree, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                      components[i]);
}

/* Loads the tree from the record or from this machine. */
static accel_status_t machine_load_tree(struct topo_machine *m, const char *record,
                                        enum topo_want want, accel_error_t *err)
{
    const enum hwloc_type_filter_e devices = want == TOPO_CORES
                                                 ? HWLOC_TYPE_FILTER_KEEP_NONE
                                                 : HWLOC_TYPE_FILTER_KEEP_IMPORTANT;

    if (record && access(record, R_OK) != 0)
        return accel_fail_at(err, A0436, record, "create one with: lstopo FILE.xml",
                             "cannot read the recorded machine: %s", strerror(errno));
    if (hwloc_topology_init(&m->tree) != 0)
        return accel_fail_nomem(err, "the machine's topology", 0);
    leave_drivers_alone(m->tree);
    if (record && hwloc_topology_set_xml(m->tree, record) != 0)
        return accel_fail_at(err, A0436, record, "create one with: lstopo FILE.xml",
                             "not a machine recorded by hwloc");
    /* Cores that only other tasks of the node may use belong to the machine, too: masks
     * of other ranks name them. */
    if (hwloc_topology_set_flags(m->tree, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) ==
            0 &&
        hwloc_topology_set_io_types_filter(m->tree, devices) == 0 &&
        hwloc_topology_load(m->tree) == 0)
        return ACCEL_OK;
    if (record)
        return accel_fail_at(err, A0436, record, "create one with: lstopo FILE.xml",
                             "not a machine recorded by hwloc");
    return accel_fail(err, A0410, "check that lstopo works; unset HWLOC_XMLFILE",
                      "hwloc cannot read the machine's topology: %s", strerror(errno));
}

accel_status_t topo_machine_open(struct topo_machine **machine_out, const char *record,
                                 enum topo_want want, accel_error_t *err)
{
    struct topo_machine *m = calloc(1, sizeof(*m));
    accel_status_t st;

    if (!m)
        return accel_fail_nomem(err, "the machine's topology", sizeof(*m));
    st = machine_load_tree(m, record, want, err);
    if (st != ACCEL_OK) {
        topo_machine_close(m);
        return st;
    }
    m->recorded = !hwloc_topology_is_thissystem(m->tree);
    topo_nics_find(m);
    if (record)
        topo_gpus_of_record(&m->gpus, m->tree);
    else if (want == TOPO_GPUS_TOO)
        topo_gpus_find(&m->gpus);
    *machine_out = m;
    return ACCEL_OK;
}

void topo_machine_close(struct topo_machine *m)
{
    if (!m)
        return;
    if (m->tree)
        hwloc_topology_destroy(m->tree);
    free(m);
}

const struct topo_gpus *topo_machine_gpus(const struct topo_machine *m)
{
    return &m->gpus;
}

const char *topo_machine_cpu(const struct topo_machine *m)
{
    const char *model =
        hwloc_obj_get_info_by_name(hwloc_get_root_obj(m->tree), "CPUModel");

    if (!model && hwloc_get_nbobjs_by_type(m->tree, HWLOC_OBJ_PACKAGE) > 0)
        model = hwloc_obj_get_info_by_name(
            hwloc_get_obj_by_type(m->tree, HWLOC_OBJ_PACKAGE, 0), "CPUModel");
    return model ? model : "unknown";
}

const char *topo_machine_nic(const struct topo_machine *m, int i)
{
    return i >= 0 && i < m->nics ? m->nic[i].name : NULL;
}

/* The affinity of the calling thread. The kernel's set may be larger than glibc's
 * default: EINVAL says that ours is too small, and it doubles. */
static accel_status_t read_affinity(const struct topo_machine *m, hwloc_cpuset_t mask,
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
            rc = hwloc_cpuset_from_glibc_sched_affinity(m->tree, mask, set, bytes);
        else if (errno == EINVAL)
            rc = 1;
        CPU_FREE(set);
        if (rc == 0)
            return ACCEL_OK;
        if (rc < 0)
            break;
    }
    return accel_fail(err, A0410, "check that `taskset -p $$` works",
                      "cannot read the CPU affinity: %s", strerror(errno));
}

accel_status_t topo_own_mask(const struct topo_machine *m, char mask_out[TOPO_MASK],
                             accel_error_t *err)
{
    hwloc_cpuset_t mask = hwloc_bitmap_alloc();
    accel_status_t st = ACCEL_OK;

    if (!mask)
        return accel_fail_nomem(err, "cpu set", 128);
    /* A recorded machine has no running threads to ask. */
    if (m->recorded)
        hwloc_bitmap_copy(mask, hwloc_topology_get_allowed_cpuset(m->tree));
    else
        st = read_affinity(m, mask, err);
    if (st == ACCEL_OK)
        hwloc_bitmap_snprintf(mask_out, TOPO_MASK, mask);
    hwloc_bitmap_free(mask);
    return st;
}
