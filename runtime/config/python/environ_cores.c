/* SPDX-License-Identifier: Apache-2.0
 *
 * Physical cores for one of several tasks of a node: from this process's affinity mask,
 * the kernel's list of hyper-threads, and what Slurm granted. Needs libc only; hwloc
 * would be too much for slurmstepd.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/python/environ.h"

/* As large as the largest kernels support; a smaller mask makes
 * sched_getaffinity fail. */
enum { MAX_CPUS = 8192 };

/* Does CPU `cpu` share its core with a lower one of the mask? Then the core was counted
 * already. A list that cannot be read counts as a core without hyper-threads. */
static bool is_second_thread(int cpu, const cpu_set_t *mask, size_t bytes)
{
    char path[96], line[256];
    bool second = false;
    char *at = line;
    FILE *f;

    snprintf(path, sizeof(path),
             "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    f = fopen(path, "re");
    if (!f)
        return false;
    if (!fgets(line, sizeof(line), f))
        line[0] = '\0';
    /* "0,64" or "0-1". */
    while (*at >= '0' && *at <= '9') {
        long first = strtol(at, &at, 10), last = first;

        if (*at == '-')
            last = strtol(at + 1, &at, 10);
        for (long c = first; c <= last && c < cpu; c++)
            second |= c >= 0 && CPU_ISSET_S((size_t)c, bytes, mask);
        at += *at == ',';
    }
    fclose(f);
    return second;
}

/* With cgroups the mask is the task's own; without them all tasks of the node see the
 * same mask. So the mask only gives the ratio of cores to CPUs, and Slurm's numbers
 * give the share; without those the tasks share the mask evenly. */
int64_t environ_cores(int64_t local_tasks, long cpus_per_task, long cpus_on_node)
{
    size_t bytes = CPU_ALLOC_SIZE(MAX_CPUS);
    cpu_set_t *mask = CPU_ALLOC(MAX_CPUS);
    int64_t cpus = 0, cores = 0, share;

    if (mask && sched_getaffinity(0, bytes, mask) == 0)
        for (int c = 0; c < MAX_CPUS; c++) {
            if (!CPU_ISSET_S((size_t)c, bytes, mask))
                continue;
            cpus++;
            cores += !is_second_thread(c, mask, bytes);
        }
    CPU_FREE(mask);
    if (cores < 1)
        return 1;
    if (cpus_per_task > 0)
        share = cpus_per_task * cores / cpus;
    else if (cpus_on_node > 0)
        share = cpus_on_node * cores / cpus / local_tasks;
    else
        share = cores / local_tasks;
    return share < 1 ? 1 : share < cores ? share : cores;
}
