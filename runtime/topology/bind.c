/* SPDX-License-Identifier: Apache-2.0
 *
 * Binds the threads of this process to its rank's cores. In: the mask they have and the
 * mask they are to get. Threads that the program bound elsewhere stay there; threads
 * started later inherit the mask. Memory follows by first touch, so this comes before
 * the first large allocation.
 */
#include <dirent.h>
#include <errno.h>
#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "topology/topo.h"

enum { MAX_CPUS = 8192 }; /* hardware threads; as many as TOPO_MASK has room for */

/* A mask's text as the set that the kernel takes. False: out of memory, or
 * not a mask. */
static bool read_mask(const char *text, cpu_set_t *set_out)
{
    hwloc_bitmap_t bits = hwloc_bitmap_alloc();
    unsigned cpu;
    bool good = bits && hwloc_bitmap_sscanf(bits, text) == 0;

    CPU_ZERO_S(CPU_ALLOC_SIZE(MAX_CPUS), set_out);
    if (good) {
        hwloc_bitmap_foreach_begin(cpu, bits)
        {
            if (cpu < MAX_CPUS)
                CPU_SET_S(cpu, CPU_ALLOC_SIZE(MAX_CPUS), set_out);
        }
        hwloc_bitmap_foreach_end();
    }
    hwloc_bitmap_free(bits);
    return good;
}

/* Moves every thread with the affinity `from`. `has` is scratch: sets of this size are
 * allocated by the caller, which can fail. */
static void move_threads(const cpu_set_t *from, const cpu_set_t *to, cpu_set_t *has)
{
    size_t bytes = CPU_ALLOC_SIZE(MAX_CPUS);
    DIR *dir = opendir("/proc/self/task");
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

        CPU_ZERO_S(bytes, has);
        if (tid > 0 && sched_getaffinity(tid, bytes, has) == 0 &&
            CPU_EQUAL_S(bytes, has, from))
            sched_setaffinity(tid, bytes, to); /* a thread may have ended meanwhile */
    }
    if (dir)
        closedir(dir);
}

accel_status_t topo_bind(const char *from, const char *to, accel_error_t *err)
{
    size_t bytes = CPU_ALLOC_SIZE(MAX_CPUS);
    cpu_set_t *old = CPU_ALLOC(MAX_CPUS), *new = CPU_ALLOC(MAX_CPUS);
    cpu_set_t *has = CPU_ALLOC(MAX_CPUS);
    accel_status_t st = ACCEL_OK;

    if (!old || !new || !has || !read_mask(from, old) || !read_mask(to, new))
        st = accel_fail_nomem(err, "cpu sets", 3 * bytes);
    /* The calling thread first: this shows whether binding is allowed at all. */
    else if (sched_setaffinity(0, bytes, new) != 0)
        st =
            accel_fail(err, A0432,
                       "set accel.topology.bind: false, or find what forbids "
                       "sched_setaffinity (for example, a container's seccomp profile)",
                       "cannot bind this process to its cores: %s", strerror(errno));
    else
        move_threads(old, new, has);
    CPU_FREE(old);
    CPU_FREE(new);
    CPU_FREE(has);
    return st;
}
