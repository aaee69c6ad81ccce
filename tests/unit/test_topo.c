/* SPDX-License-Identifier: Apache-2.0
 *
 * topology/: cores of a rank on recorded machines and on this one; the GPU rule.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "topology/topo_impl.h"

/* mask NULL: everything the machine has. cores -1 marks the end. */
static const struct {
    const char *file, *mask;
    int local_rank, local_size, cores, pus, numa;
    const char *cpuset;
} machines[] = {
    /* numa2-core4-pu2: 8 cores of 2 threads, PUs 0-7 on node 0, 8-15 on node 1 */
    { "numa2-core4-pu2", NULL, 0, 1, 8, 16, 0, "0-15" },
    { "numa2-core4-pu2", NULL, 0, 2, 4, 8, 0, "0-7" },
    { "numa2-core4-pu2", NULL, 1, 2, 4, 8, 1, "8-15" },
    { "numa2-core4-pu2", NULL, 0, 3, 2, 4, 0, "0-3" },
    { "numa2-core4-pu2", NULL, 2, 3, 3, 6, 1, "10-15" },
    { "numa2-core4-pu2", NULL, 15, 16, 1, 2, 1, "14-15" },
    { "numa2-core4-pu2", NULL, 0, 16, 1, 2, 0, "0-1" },
    /* masks that cannot be shared: as Slurm's task/affinity gives them */
    { "numa2-core4-pu2", "0-3", 0, 4, 2, 4, 0, "0-3" },
    { "numa2-core4-pu2", "12-15", 3, 4, 2, 4, 1, "12-15" },
    /* threads, not whole cores: still two cores */
    { "numa2-core4-pu2", "8,10", 1, 2, 2, 2, 1, "8,10" },
    /* bound to a socket that two ranks must share: the count is halved */
    { "numa2-core4-pu2", "8-15", 3, 4, 2, 8, 1, "8-15" },
    { "flat-core6", NULL, 0, 1, 6, 6, 0, "0-5" },
    { "flat-core6", NULL, 3, 4, 2, 2, 0, "4-5" },
    { "flat-core6", "5", 5, 6, 1, 1, 0, "5" },
    { "pack2-numa4-core8", NULL, 7, 8, 8, 8, 7, "56-63" },
    { "pack2-numa4-core8", NULL, 1, 2, 32, 32, 4, "32-63" },
};

static void test_machines(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(machines); i++) {
        hwloc_topology_t m;
        hwloc_cpuset_t mask;
        struct topo t;
        char path[512];

        snprintf(path, sizeof(path), "%s/%s.xml", DATA_DIR, machines[i].file);
        if (hwloc_topology_init(&m) != 0 || hwloc_topology_set_xml(m, path) != 0 ||
            hwloc_topology_load(m) != 0) {
            tap_ok(false, "load %s", path);
            return;
        }
        mask = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(m));
        if (machines[i].mask)
            hwloc_bitmap_list_sscanf(mask, machines[i].mask);
        tap_is_int(topo_describe(&t, m, mask, machines[i].local_rank,
                                 machines[i].local_size, NULL),
                   ACCEL_OK, "%s mask %s rank %d of %d", machines[i].file,
                   machines[i].mask ? machines[i].mask : "all", machines[i].local_rank,
                   machines[i].local_size);
        tap_is_int(t.cores, machines[i].cores, "  cores");
        tap_is_int(t.pus, machines[i].pus, "  hardware threads");
        tap_is_int(t.numa_node, machines[i].numa, "  NUMA node");
        tap_is_str(t.cpuset, machines[i].cpuset, "  cpuset");
        hwloc_bitmap_free(mask);
        hwloc_topology_destroy(m);
    }
}

static void test_discover(void)
{
    char path[512];
    struct topo t;
    accel_error_t err = { 0 };

    unsetenv("HWLOC_XMLFILE");
    tap_is_int(topo_discover(&t, 0, 1, &err), ACCEL_OK, "this machine %s", err.text);
    tap_ok(t.cores >= 1 && t.pus >= t.cores && t.cpuset[0] && t.cpu_model[0],
           "%d cores, %d threads, cpus %s, %s", t.cores, t.pus, t.cpuset, t.cpu_model);
    tap_is_int(topo_discover(&t, 63, 64, &err), ACCEL_OK, "as rank 63 of 64");
    tap_ok(t.cores >= 1, "at least one core");
    tap_is_int(topo_discover(&t, 2, 2, &err), ACCEL_EINVAL, "rank 2 of 2 is refused");
    snprintf(path, sizeof(path), "%s/numa2-core4-pu2.xml", DATA_DIR);
    setenv("HWLOC_XMLFILE", path, 1);
    tap_is_int(topo_discover(&t, 1, 2, &err), ACCEL_OK, "HWLOC_XMLFILE is honoured");
    tap_ok(t.cores == 4 && t.numa_node == 1, "the recorded machine is described");
    unsetenv("HWLOC_XMLFILE");
}

static const struct {
    const char *visible;
    int on_node, local_rank, local_size, first, count;
    accel_status_t status;
} gpus[] = {
    { NULL, 0, 0, 1, 0, 0, ACCEL_OK },
    { "", 0, 1, 2, 0, 0, ACCEL_OK },
    { "", 2, 0, 2, 0, 0, ACCEL_EUNAVAIL },
    { "-1", 2, 0, 2, 0, 0, ACCEL_EUNAVAIL },
    { "NoDevFiles", 0, 0, 1, 0, 0, ACCEL_OK },
    { "NoDevFiles", 1, 0, 1, 0, 0, ACCEL_EUNAVAIL },
    { "3", 1, 0, 1, 0, 1, ACCEL_OK },
    { "1", 1, 3, 4, 0, 1, ACCEL_OK }, /* one each, renumbered: --gpus-per-task=1 */
    { "0,1", 2, 0, 2, 0, 1, ACCEL_OK },
    { "0,1", 2, 1, 2, 1, 1, ACCEL_OK },
    { "1,2", 2, 1, 2, 1, 1, ACCEL_OK }, /* by place, never by the number itself */
    { "0,1,2,3", 4, 1, 2, 2, 2, ACCEL_OK },
    { "0,1,2,3", 4, 0, 1, 0, 4, ACCEL_OK },
    { "0,1,-1,3", 4, 1, 2, 1, 1, ACCEL_OK }, /* CUDA stops at -1 */
    { "GPU-5ebe9f43,GPU-8a3ac9e0", 2, 1, 2, 1, 1, ACCEL_OK },
    { "MIG-a/0,MIG-b/0", 2, 0, 2, 0, 1, ACCEL_OK },
    { "0,1,2", 3, 0, 2, 0, 0, ACCEL_EMISMATCH },
    { "0,1", 2, 0, 4, 0, 0, ACCEL_EMISMATCH },
    { NULL, 4, 3, 4, 3, 1, ACCEL_OK },
    { "0", 1, 1, 1, 0, 0, ACCEL_EINVAL },
    { "0", 1, 0, 0, 0, 0, ACCEL_EINVAL },
};

static void test_gpus(void)
{
    accel_error_t err;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(gpus); i++) {
        int first = -7, count = -7;

        tap_is_int(topo_gpu_map(gpus[i].visible, gpus[i].on_node, gpus[i].local_rank,
                                gpus[i].local_size, &first, &count, &err),
                   gpus[i].status, "GPUs %s, %d on node, rank %d of %d",
                   gpus[i].visible ? gpus[i].visible : "unset", gpus[i].on_node,
                   gpus[i].local_rank, gpus[i].local_size);
        if (gpus[i].status == ACCEL_OK)
            tap_ok(first == gpus[i].first && count == gpus[i].count,
                   "  devices from %d, %d of them", first, count);
        else
            tap_ok(first == -7 && count == -7, "  outputs untouched");
    }
    topo_gpu_map("0,1,2", 3, 0, 2, &(int){ 0 }, &(int){ 0 }, &err);
    tap_ok(strstr(err.text, "3 GPUs") && strstr(err.text, "2 ranks"), "%s", err.text);
    topo_gpu_map("", 2, 0, 2, &(int){ 0 }, &(int){ 0 }, &err);
    tap_ok(strstr(err.hint, "gpu-bind=none") != NULL, "%s", err.hint);
}

int main(void)
{
    test_machines();
    test_discover();
    test_gpus();
    return tap_done();
}
