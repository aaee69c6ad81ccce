/* SPDX-License-Identifier: Apache-2.0
 *
 * Which cores each rank of a node computes on. In: the machine, and what every rank was
 * given. Out: disjoint sets of cores, near the rank's GPU if it has one. A rank gets
 * nothing outside its mask; ranks with overlapping masks divide the cores among them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/machine.h"

/* The cores of a node while they are dealt out. Sets are of hardware threads. */
struct deal {
    const struct topo_machine *m;
    int ranks;
    hwloc_cpuset_t *pool; /* [ranks] what a rank may get */
    hwloc_cpuset_t *own;  /* [ranks] what it gets; empty: not served yet */
    hwloc_cpuset_t free;  /* not dealt out yet */

    hwloc_cpuset_t scratch;
};

/* Core number `i`, or hardware thread number `i` in a tree without cores ; NULL beyond
 * the last one. */
static hwloc_obj_t core_at(const struct topo_machine *m, int i)
{
    bool cores = hwloc_get_nbobjs_by_type(m->tree, HWLOC_OBJ_CORE) > 0;

    return hwloc_get_obj_by_type(m->tree, cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU,
                                 (unsigned)i);
}

/* Cores that have at least one hardware thread in the set. */
static int count_cores(const struct topo_machine *m, hwloc_const_cpuset_t set)
{
    hwloc_obj_t core;
    int n = 0;

    for (int i = 0; (core = core_at(m, i)); i++)
        n += hwloc_bitmap_intersects(core->cpuset, set);
    return n;
}

/* Adds core number `at` of those in the set to `out`, with those of its threads that
 * are in the set. */
static void add_core(const struct topo_machine *m, hwloc_const_cpuset_t set, int at,
                     hwloc_cpuset_t out)
{
    hwloc_obj_t core;
    unsigned pu;

    for (int i = 0; (core = core_at(m, i)); i++) {
        if (!hwloc_bitmap_intersects(core->cpuset, set) || at-- > 0)
            continue;
        hwloc_bitmap_foreach_begin(pu, core->cpuset)
        {
            if (hwloc_bitmap_isset(set, pu))
                hwloc_bitmap_set(out, pu);
        }
        hwloc_bitmap_foreach_end();
        return;
    }
}

/* The NUMA node of the set's first hardware thread, as the system numbers
 * it; -1: none. */
static int numa_of_first(const struct topo_machine *m, hwloc_const_cpuset_t set)
{
    int pu = hwloc_bitmap_first(set);
    hwloc_obj_t node = NULL;

    while (pu >= 0 &&
           (node = hwloc_get_next_obj_by_type(m->tree, HWLOC_OBJ_NUMANODE, node)))
        if (node->cpuset && hwloc_bitmap_isset(node->cpuset, (unsigned)pu))
            return (int)node->os_index;
    return -1;
}

/* ---- what each may get ----------------------------------------------------------- */

/* A rank's pool: its mask, or the part of it near the rank's GPU if there is any. Also
 * says in words why, in place[i].why. */
static accel_status_t find_pool(struct deal *d, const struct topo_rank *rank, int i,
                                struct topo_place *place, accel_error_t *err)
{
    hwloc_obj_t gpu = topo_gpu_object(d->m, &rank[i]);
    hwloc_obj_t near = gpu ? hwloc_get_non_io_ancestor_obj(d->m->tree, gpu) : NULL;
    bool part;

    if (hwloc_bitmap_sscanf(d->pool[i], rank[i].mask) == 0)
        hwloc_bitmap_and(d->pool[i], d->pool[i],
                         hwloc_topology_get_topology_cpuset(d->m->tree));
    else
        hwloc_bitmap_zero(d->pool[i]);
    if (hwloc_bitmap_iszero(d->pool[i]))
        return accel_fail(
            err, A0431,
            "check --cpu-bind and the cpuset of the job; unset "
            "HWLOC_XMLFILE if it describes another machine",
            "local rank %d is restricted to CPUs %s, but this machine has none of them",
            i, rank[i].mask);
    part = !hwloc_bitmap_isincluded(hwloc_topology_get_topology_cpuset(d->m->tree),
                                    d->pool[i]);
    snprintf(place[i].why, sizeof(place[i].why), "%s",
             part ? "its mask" : "the machine");
    if (!near)
        return ACCEL_OK;
    if (!hwloc_bitmap_intersects(near->cpuset, d->pool[i])) {
        snprintf(place[i].why, sizeof(place[i].why),
                 "its mask, which has no core near its GPU");
        return ACCEL_OK;
    }
    if (!hwloc_bitmap_isincluded(d->pool[i], near->cpuset))
        snprintf(place[i].why, sizeof(place[i].why), "cores near its GPU");
    hwloc_bitmap_and(d->pool[i], d->pool[i], near->cpuset);
    return ACCEL_OK;
}

/* ---- dealing out ----------------------------------------------------------------- */

/* How many ranks have the same pool as rank `i`, itself included; *before_out: how many
 * of them come before it. */
static int count_equals(const struct deal *d, int i, int *before_out)
{
    int n = 0;

    *before_out = 0;
    for (int k = 0; k < d->ranks; k++) {
        if (!hwloc_bitmap_isequal(d->pool[k], d->pool[i]))
            continue;
        n++;
        *before_out += k < i;
    }
    return n;
}

/* The next rank to serve: the one with the smallest pool, because it has the least
 * choice; -1: all are served. */
static int next_rank(const struct deal *d)
{
    int best = -1, least = 0;

    for (int i = 0; i < d->ranks; i++) {
        int n = hwloc_bitmap_weight(d->pool[i]);

        if (!hwloc_bitmap_iszero(d->own[i]) || (best >= 0 && n >= least))
            continue;
        best = i;
        least = n;
    }
    return best;
}

/* Gives rank `i` an even share of the free cores in its pool: those divided by
 * the ranks that still want some of them, at least one. Returns how many; 0:
 * none is free. */
static int take_share(struct deal *d, int i)
{
    int cores, rivals = 0;

    hwloc_bitmap_and(d->scratch, d->pool[i], d->free);
    cores = count_cores(d->m, d->scratch);
    for (int k = 0; k < d->ranks; k++)
        rivals += hwloc_bitmap_iszero(d->own[k]) &&
                  hwloc_bitmap_intersects(d->pool[k], d->scratch);
    if (cores == 0)
        return 0;
    cores = cores < rivals ? 1 : cores / rivals;
    for (int c = 0; c < cores; c++)
        add_core(d->m, d->scratch, c, d->own[i]);
    hwloc_bitmap_andnot(d->free, d->free, d->own[i]);
    return cores;
}

/* Serves rank `i`: cores of its own, or, if that is impossible, a core
 * shared with others. */
static void serve(struct deal *d, int i, struct topo_place *p)
{
    int before, equals = count_equals(d, i, &before);
    int cores = count_cores(d->m, d->pool[i]);
    char why[sizeof(p->why)];

    if (equals <= cores && take_share(d, i) > 0) {
        if (equals > 1) {
            memcpy(why, p->why, sizeof(why));
            snprintf(p->why, sizeof(p->why), "1/%d of %.72s", equals, why);
        }
        return;
    }
    /* More ranks than cores, or ranks with fewer left nothing over. */
    p->shared = true;
    snprintf(p->why, sizeof(p->why), "shared: %d ranks on %d core%s", equals, cores,
             cores == 1 ? "" : "s");
    add_core(d->m, d->pool[i], (int)((long)before * cores / equals), d->own[i]);
}

static void deal_close(struct deal *d)
{
    for (int i = 0; i < d->ranks; i++) {
        if (d->pool)
            hwloc_bitmap_free(d->pool[i]);
        if (d->own)
            hwloc_bitmap_free(d->own[i]);
    }
    free(d->pool);
    free(d->own);
    hwloc_bitmap_free(d->free);
    hwloc_bitmap_free(d->scratch);
}

/* After an error deal_close frees what there is; hwloc_bitmap_free takes NULL. */
static accel_status_t deal_open(struct deal *d, accel_error_t *err)
{
    size_t n = (size_t)d->ranks;
    bool failed;

    d->pool = calloc(n, sizeof(*d->pool));
    d->own = calloc(n, sizeof(*d->own));
    d->free = hwloc_bitmap_alloc_full();
    d->scratch = hwloc_bitmap_alloc();
    failed = !d->pool || !d->own || !d->free || !d->scratch;
    for (size_t i = 0; !failed && i < n; i++) {
        d->pool[i] = hwloc_bitmap_alloc();
        d->own[i] = hwloc_bitmap_alloc();
        failed = !d->pool[i] || !d->own[i];
    }
    return failed ? accel_fail_nomem(err, "cpu sets", n * 256) : ACCEL_OK;
}

accel_status_t topo_map_cores(const struct topo_machine *m,
                              const struct topo_rank *rank, int ranks,
                              struct topo_place *place, accel_error_t *err)
{
    struct deal d = { .m = m, .ranks = ranks };
    accel_status_t st = deal_open(&d, err);

    for (int i = 0; st == ACCEL_OK && i < ranks; i++)
        st = find_pool(&d, rank, i, place, err);
    for (int i; st == ACCEL_OK && (i = next_rank(&d)) >= 0;)
        serve(&d, i, &place[i]);
    for (int i = 0; st == ACCEL_OK && i < ranks; i++) {
        struct topo_place *p = &place[i];

        p->cores = count_cores(m, d.own[i]);
        p->pus = hwloc_bitmap_weight(d.own[i]);
        p->numa_node = numa_of_first(m, d.own[i]);
        hwloc_bitmap_list_snprintf(p->cpuset, sizeof(p->cpuset), d.own[i]);
        hwloc_bitmap_snprintf(p->mask, sizeof(p->mask), d.own[i]);
    }
    deal_close(&d);
    return st;
}

/* Counts only cores that the cgroup allows. */
bool topo_masks_common(const struct topo_machine *m, const char *mask, int ranks)
{
    hwloc_cpuset_t set = hwloc_bitmap_alloc();
    bool common = false;

    if (set && hwloc_bitmap_sscanf(set, mask) == 0)
        common = (long)count_cores(m, set) * ranks >
                 count_cores(m, hwloc_topology_get_allowed_cpuset(m->tree));
    hwloc_bitmap_free(set);
    return common;
}
