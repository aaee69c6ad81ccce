/* SPDX-License-Identifier: Apache-2.0
 *
 * topology/: cores of the ranks on recorded machines and on this one, words of the list
 * of visible devices, binding, the GPU rule.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "topology/machine.h"

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
    /* a part of the machine, more ranks than cores in it */
    { "numa2-core4-pu2", "0-3", 0, 4, 1, 2, 0, "0-1" },
    { "numa2-core4-pu2", "12-15", 3, 4, 1, 2, 1, "14-15" },
    /* threads, not whole cores: a core each */
    { "numa2-core4-pu2", "8,10", 1, 2, 1, 1, 1, "10" },
    { "numa2-core4-pu2", "8-15", 3, 4, 1, 2, 1, "14-15" },
    { "flat-core6", NULL, 0, 1, 6, 6, 0, "0-5" },
    { "flat-core6", NULL, 3, 4, 2, 2, 0, "4-5" },
    { "flat-core6", "5", 5, 6, 1, 1, 0, "5" },
    { "pack2-numa4-core8", NULL, 7, 8, 8, 8, 7, "56-63" },
    { "pack2-numa4-core8", NULL, 1, 2, 32, 32, 4, "32-63" },
};

static struct topo_machine *open_machine(const char *name)
{
    struct topo_machine *m = NULL;
    accel_error_t err = { 0 };
    char path[512];

    snprintf(path, sizeof(path), "%s/%s.xml", DATA_DIR, name);
    if (topo_machine_open(&m, path, TOPO_GPUS_TOO, &err) != ACCEL_OK)
        tap_ok(false, "%s: %s", path, err.text);
    return m;
}

static void set_mask(const struct topo_machine *m, const char *list,
                     struct topo_rank *rank)
{
    hwloc_bitmap_t bits = hwloc_bitmap_alloc();

    if (list)
        hwloc_bitmap_list_sscanf(bits, list);
    else
        hwloc_bitmap_copy(bits, hwloc_topology_get_allowed_cpuset(m->tree));
    hwloc_bitmap_snprintf(rank->mask, sizeof(rank->mask), bits);
    hwloc_bitmap_free(bits);
}

/* All ranks of a node with one mask. */
static void test_machines(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(machines); i++) {
        static struct topo_rank rank[16];
        static struct topo_place place[16];
        struct topo_machine *m = open_machine(machines[i].file);
        int l = machines[i].local_rank, n = machines[i].local_size;

        if (!m)
            return;
        memset(rank, 0, sizeof(rank));
        for (int r = 0; r < n; r++)
            set_mask(m, machines[i].mask, &rank[r]);
        tap_is_int(topo_map(m, rank, n, place, NULL), ACCEL_OK,
                   "%s mask %s rank %d of %d", machines[i].file,
                   machines[i].mask ? machines[i].mask : "all", l, n);
        tap_is_int(place[l].cores, machines[i].cores, "  cores");
        tap_is_int(place[l].pus, machines[i].pus, "  hardware threads");
        tap_is_int(place[l].numa_node, machines[i].numa, "  NUMA node");
        tap_is_str(place[l].cpuset, machines[i].cpuset, "  cpuset");
        topo_machine_close(m);
    }
}

/* Masks that differ, as Slurm's task/affinity and users give them: NULL ends. */
static const struct {
    const char *file, *mask[5], *cpuset[5], *why;
} mixed[] = {
    { "numa2-core4-pu2", { "0-3", "4-7", "8-11" }, { "0-3", "4-7", "8-11" }, "apart" },
    { "numa2-core4-pu2",
      { "0-7", "8-15", "8-15", "0-7" },
      { "0-3", "8-11", "12-15", "4-7" },
      "bound to sockets" },
    { "numa2-core4-pu2", { "0-15", "0-1" }, { "2-15", "0-1" }, "the narrow one first" },
    { "numa2-core4-pu2",
      { "0,2,4,6", "1,3,5,7" },
      { "0,2,4,6", "1,3,5,7" },
      "threads of the same cores" },
    { "flat-core6", { "0-3", "2-5" }, { "0-1", "2-5" }, "overlapping" },
    { "flat-core6", { "0-1", "0", "1" }, { "0", "0", "1" }, "nothing left for one" },
};

static void test_mixed(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(mixed); i++) {
        static struct topo_rank rank[4];
        static struct topo_place place[4];
        struct topo_machine *m = open_machine(mixed[i].file);
        hwloc_bitmap_t own = hwloc_bitmap_alloc(), mask = hwloc_bitmap_alloc();
        int n = 0;

        memset(rank, 0, sizeof(rank));
        for (; m && mixed[i].mask[n]; n++)
            set_mask(m, mixed[i].mask[n], &rank[n]);
        tap_is_int(topo_map(m, rank, n, place, NULL), ACCEL_OK, "masks: %s",
                   mixed[i].why);
        for (int r = 0; r < n; r++) {
            hwloc_bitmap_sscanf(own, place[r].mask);
            hwloc_bitmap_sscanf(mask, rank[r].mask);
            tap_is_str(place[r].cpuset, mixed[i].cpuset[r], "  rank %d", r);
            tap_ok(hwloc_bitmap_isincluded(own, mask) && place[r].cores >= 1,
                   "  never outside its mask");
        }
        hwloc_bitmap_free(own);
        hwloc_bitmap_free(mask);
        topo_machine_close(m);
    }
}

static void test_refused(void)
{
    struct topo_machine *m = open_machine("nvswitch8");
    static struct topo_rank rank[2];
    static struct topo_place place[2];
    accel_error_t err = { 0 };

    memset(rank, 0, sizeof(rank));
    set_mask(m, "64-71", &rank[0]);
    set_mask(m, NULL, &rank[1]);
    tap_is_int(topo_map(m, rank, 2, place, &err), ACCEL_EMISMATCH,
               "a mask without a core of the machine");
    tap_is_int(err.message, 431, "%s", err.text);
    set_mask(m, NULL, &rank[0]);
    for (int r = 0; r < 2; r++) {
        rank[r].devices = 1;
        tap_is_int(topo_visible_device(topo_machine_gpus(m), r ? "5" : "0,5", !r,
                                       &rank[r].device[0], &err),
                   ACCEL_OK, "GPU 5 for rank %d", r);
    }
    tap_is_int(topo_map(m, rank, 2, place, &err), ACCEL_EMISMATCH,
               "one GPU under two numbers");
    tap_is_int(err.message, 425, "%s", err.text);
    topo_machine_close(m);
    tap_is_int(topo_machine_open(&m, DATA_DIR "/nothing.xml", TOPO_GPUS_TOO, &err),
               ACCEL_ENOENT, "no such record: %s", err.text);
    tap_is_int(topo_machine_open(&m, DATA_DIR "/mig2.nvml", TOPO_GPUS_TOO, &err),
               ACCEL_ENOENT, "no record: %s", err.text);
}

static const struct {
    const char *visible;
    int at, index;
    const char *bus_id;
    accel_status_t status;
} words[] = {
    { "3,1", 0, 3, "0000:61:00.0", ACCEL_OK },
    { "3, 1", 1, 1, "0000:21:00.0", ACCEL_OK },
    { NULL, 2, 2, "0000:41:00.0", ACCEL_OK },
    { "GPU-95cd0a69-0b1c-4d2e-9f30-415263740002", 0, 2, "0000:41:00.0", ACCEL_OK },
    { "0,GPU-b15", 1, 3, "0000:61:00.0", ACCEL_OK }, /* CUDA takes a beginning, too */
    { "GPU-", 0, -1, "", ACCEL_EUNAVAIL },           /* all of them begin so */
    { "4", 0, -1, "", ACCEL_EUNAVAIL },
    { "GPU-00000000", 0, -1, "", ACCEL_EUNAVAIL },
    { "MIG-4b1c7f0e", 0, -1, "", ACCEL_EUNAVAIL },
    { "gpu0", 0, -1, "", ACCEL_EUNAVAIL },
};

static void test_visible(void)
{
    struct topo_machine *m = open_machine("pcie4");
    const struct topo_gpus nothing = { .why = "no driver" };
    struct topo_device d;
    accel_error_t err = { 0 };

    for (size_t i = 0; m && i < ACCEL_ARRAY_SIZE(words); i++) {
        tap_is_int(topo_visible_device(topo_machine_gpus(m), words[i].visible,
                                       words[i].at, &d, &err),
                   words[i].status, "word %d of %s", words[i].at,
                   words[i].visible ? words[i].visible : "an unset list");
        tap_is_int(d.index, words[i].index, "  index");
        tap_is_str(d.bus_id, words[i].bus_id, "  bus id");
    }
    tap_is_int(topo_visible_device(&nothing, "0,7", 1, &d, &err), ACCEL_OK,
               "where nothing is known of GPUs the word is kept");
    tap_ok(d.index == -1 && !d.bus_id[0] && !strcmp(d.id, "7"), "  as it stands");
    topo_machine_close(m);
}

/* Which devices of a node are the same, and which cannot be taken. */
static void test_devices(void)
{
    static struct topo_rank rank[3];
    static struct topo_gpus gpus = { .known = true, .count = 1 };
    struct topo_device d;
    accel_error_t err = { 0 };
    int a = -1, b = -1;

    for (int r = 0; r < 3; r++) {
        rank[r].devices = 1;
        strcpy(rank[r].device[0].bus_id, "0000:17:00.0");
        snprintf(rank[r].device[0].id, TOPO_ID, "MIG-%d", r);
    }
    tap_is_int(topo_check_devices(rank, 3, &a, &b, &err), ACCEL_OK,
               "three slices of one GPU are three devices");
    strcpy(rank[2].device[0].id, "MIG-0");
    tap_is_int(topo_check_devices(rank, 3, &a, &b, &err), ACCEL_EMISMATCH,
               "the same slice for the first rank and the last");
    tap_ok(a == 0 && b == 2, "  which are named");
    strcpy(gpus.gpu[0].bus_id, "0000:17:00.0");
    tap_is_int(topo_visible_device(&gpus, "1", 0, &d, &err), ACCEL_EUNAVAIL,
               "the GPU behind the last");
    tap_is_int(err.message, 422, "  is none: %s", err.text);
    gpus.gpu[0].mig = true;
    tap_is_int(topo_visible_device(&gpus, "0", 0, &d, &err), ACCEL_EUNAVAIL,
               "MIG mode without a slice");
    tap_is_int(err.message, 427, "  %s", err.text);
}

static pthread_mutex_t ends = PTHREAD_MUTEX_INITIALIZER;

static void *until_the_end(void *arg)
{
    pthread_mutex_lock(&ends);
    pthread_mutex_unlock(&ends);
    return arg;
}

/* The calling thread is bound, one that was put elsewhere is not, and it can be
 * undone. */
static void test_bind(void)
{
    struct topo_machine *m = NULL;
    static char before[TOPO_MASK], now[TOPO_MASK];
    static struct topo_rank rank[2];
    static struct topo_place place[2];
    accel_error_t err = { 0 };
    cpu_set_t first, has;
    pthread_t other;
    int cpu = 0;

    if (topo_machine_open(&m, NULL, TOPO_DEVICES, &err) != ACCEL_OK ||
        topo_own_mask(m, before, &err) != ACCEL_OK) {
        tap_ok(false, "this machine: %s", err.text);
        return;
    }
    memcpy(rank[0].mask, before, sizeof(before));
    rank[1] = rank[0];
    tap_is_int(topo_map(m, rank, 2, place, &err), ACCEL_OK, "two ranks here %s",
               err.text);
    CPU_ZERO(&first);
    pthread_getaffinity_np(pthread_self(), sizeof(has), &has);
    while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &has))
        cpu++;
    CPU_SET(cpu, &first);
    pthread_mutex_lock(&ends);
    pthread_create(&other, NULL, until_the_end, NULL);
    pthread_setaffinity_np(other, sizeof(first), &first);
    tap_is_int(topo_bind(before, place[1].mask, &err), ACCEL_OK, "bind: %s", err.text);
    topo_own_mask(m, now, &err);
    tap_is_str(now, place[1].mask, "the mask is that of the place");
    pthread_getaffinity_np(other, sizeof(has), &has);
    tap_ok(CPU_EQUAL(&has, &first), "a thread that was put elsewhere stays there");
    pthread_mutex_unlock(&ends);
    pthread_join(other, NULL);
    topo_bind(place[1].mask, before, &err);
    topo_own_mask(m, now, &err);
    tap_is_str(now, before, "and back");
    topo_machine_close(m);
}

static void test_live(void)
{
    char path[512];
    struct topo_machine *m = NULL;
    static char mask[TOPO_MASK];
    accel_error_t err = { 0 };

    unsetenv("HWLOC_XMLFILE");
    tap_is_int(topo_machine_open(&m, NULL, TOPO_DEVICES, &err), ACCEL_OK,
               "this machine %s", err.text);
    tap_is_int(topo_own_mask(m, mask, &err), ACCEL_OK, "has a mask %s", mask);
    tap_ok(topo_machine_cpu(m)[0] != '\0', "of %s", topo_machine_cpu(m));
    topo_machine_close(m);
    snprintf(path, sizeof(path), "%s/numa2-core4-pu2.xml", DATA_DIR);
    setenv("HWLOC_XMLFILE", path, 1);
    tap_is_int(topo_machine_open(&m, NULL, TOPO_DEVICES, &err), ACCEL_OK,
               "HWLOC_XMLFILE is honoured");
    topo_own_mask(m, mask, &err);
    tap_is_str(mask, "0x0000ffff", "the recorded machine is described");
    tap_ok(topo_masks_common(m, "0x0000ffff", 2) && topo_masks_common(m, "0xf", 5) &&
               !topo_masks_common(m, "0xf", 4) && !topo_masks_common(m, "0xffff", 1),
           "masks are common where they would not all fit");
    topo_machine_close(m);
    unsetenv("HWLOC_XMLFILE");
}

/* Buses are read for those who want devices only. */
static void test_wanted(void)
{
    static const enum topo_want want[] = { TOPO_CORES, TOPO_DEVICES, TOPO_GPUS_TOO };
    accel_error_t err = { 0 };

    for (int i = 0; i < 3; i++) {
        struct topo_machine *m = NULL;

        if (topo_machine_open(&m, DATA_DIR "/mig2.xml", want[i], &err) != ACCEL_OK)
            tap_ok(false, "mig2: %s", err.text);
        else
            tap_is_int(topo_machine_gpus_present(m) > 0, want[i] != TOPO_CORES,
                       "%d GPUs on the buses", topo_machine_gpus_present(m));
        topo_machine_close(m);
    }
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
    test_mixed();
    test_refused();
    test_visible();
    test_devices();
    test_live();
    test_wanted();
    test_bind();
    test_gpus();
    return tap_done();
}
