/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel says of memory that is left, as made-up trees of /proc and /sys say
 * it: of a node, of control groups of both versions at any depth, of limits of a
 * process; and with files that are missing, unreadable or no numbers.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/path_dir.h"
#include "observe/observe.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"

#define KIB(N) ((int64_t)(N)*1024)

static char folder[] = "/tmp/accel-left.XXXXXX", root[64];

/* Begins a new tree. */
static void tree(void)
{
    static int number;

    snprintf(root, sizeof(root), "%s/%d", folder, ++number);
}

static const char *file_of(const char *path)
{
    static char name[512];

    snprintf(name, sizeof(name), "%s%s", root, path);
    return name;
}

static void put(const char *path, const char *text)
{
    char dir[512];
    size_t failed;

    snprintf(dir, sizeof(dir), "%s", file_of(path));
    *strrchr(dir, '/') = '\0';
    if (path_make_dirs(dir, &failed))
        tap_skip_all("no directory for temporary files");
    run_folder_write(file_of(path), text);
}

/* One group of version 2. */
static void group(const char *path, const char *max, const char *current,
                  const char *stat)
{
    char name[256];

    snprintf(name, sizeof(name), "/sys/fs/cgroup%s/memory.max", path);
    put(name, max);
    snprintf(name, sizeof(name), "/sys/fs/cgroup%s/memory.current", path);
    put(name, current);
    snprintf(name, sizeof(name), "/sys/fs/cgroup%s/memory.stat", path);
    put(name, stat);
}

static void node_is(int64_t bytes, const char *of, const char *what)
{
    const struct memory_left left = observe_node_left(root);

    tap_is_int(left.bytes, bytes, "%s", what);
    tap_is_str(left.of ? left.of : "nothing", of, "... by %s", of);
}

/* 1000 KiB of 4000. */
static void put_node(void)
{
    put("/proc/meminfo", "MemTotal:        4000 kB\nMemFree:          500 kB\n"
                         "MemAvailable:    1000 kB\nBuffers:           10 kB\n");
}

#define V2 "memory.max of its control group"
#define V1 "memory.limit_in_bytes of its control group"

static void test_node(void)
{
    tree();
    node_is(INT64_MAX, "nothing", "nothing can be read");
    put_node();
    node_is(KIB(1000), "MemAvailable of the node", "the node alone");
    put("/proc/meminfo", "MemTotal: 4000 kB\nMemAvailable: much\nMemAvailable: 1 kB\n");
    node_is(INT64_MAX, "nothing", "a word in place of a number");
    put("/proc/meminfo", "MemAvailable: 99999999999999999999 kB\n");
    node_is(INT64_MAX, "nothing", "more than any number");
}

static void test_version_2(void)
{
    tree();
    put_node();
    put("/proc/self/cgroup", "0::/slurm/job_7/step_0/task_3\n");
    group("/slurm/job_7/step_0/task_3", "max\n", "1000\n", "inactive_file 1\n");
    group("/slurm/job_7/step_0", "max\n", "2000\n", "");
    group("/slurm/job_7", "900000\n", "500000\n", "anon 7\ninactive_file 100000\n");
    node_is(500000, V2, "the job's limit, less what is used and no cache");
    group("/slurm", "450000\n", "200000\n", "");
    node_is(250000, V2, "a tighter one above it");
    put("/sys/fs/cgroup/slurm/job_7/step_0/memory.high", "60000\n");
    node_is(58000, "memory.high of its control group", "one that slows down");
    group("/slurm/job_7/step_0/task_3", "5000\n", "7000\n", "inactive_file 1000\n");
    node_is(0, V2, "more is used than may be");
    group("/slurm/job_7/step_0/task_3", "5000\n", "7000\n", "inactive_file 9000\n");
    node_is(5000, V2, "more cache than is used");
}

static void test_trouble(void)
{
    tree();
    put_node();
    put("/proc/self/cgroup", "12:cpu:/a\nnonsense\n0::/a\n");
    group("/a", "a lot\n", "1000\n", "");
    node_is(KIB(1000), "MemAvailable of the node", "a limit that is no number");
    group("/a", "2000\n", "-5\n", "");
    node_is(KIB(1000), "MemAvailable of the node", "a use that is no number");
    group("/a", "2000\n", "1000\n", "inactive_file none\n");
    node_is(1000, V2, "a cache that is no number");
    unlink(file_of("/sys/fs/cgroup/a/memory.current"));
    node_is(KIB(1000), "MemAvailable of the node", "a limit without a use");
    group("/a", "", "", "");
    node_is(KIB(1000), "MemAvailable of the node", "empty files");
    put("/proc/self/cgroup", "0::/../../b\n");
    group("/b", "1\n", "0\n", "");
    group("", "3000\n", "1000\n", "");
    node_is(2000, V2, "a group out of sight: the container's own");
    put("/proc/self/cgroup", "0::/of/the/node\n");
    node_is(2000, V2, "one that is not there: the same");
    if (geteuid() == 0) {
        tap_skip(1, "root may read everything");
        return;
    }
    chmod(file_of("/sys/fs/cgroup/memory.max"), 0);
    node_is(KIB(1000), "MemAvailable of the node", "no permission");
}

static void test_version_1(void)
{
    static const char limit[] = "/sys/fs/cgroup/memory/j/s/memory.limit_in_bytes";
    static const char used[] = "/sys/fs/cgroup/memory/j/s/memory.usage_in_bytes";

    tree();
    put_node();
    put("/proc/self/cgroup", "5:memoryless:/j\n4:cpu,memory:/j/s\n0::/\n");
    put(limit, "9223372036854771712\n");
    put(used, "70000\n");
    node_is(KIB(1000), "MemAvailable of the node", "version 1 without a limit");
    put(limit, "100000\n");
    put("/sys/fs/cgroup/memory/j/s/memory.stat",
        "inactive_file 9\ntotal_inactive_file 20000\n");
    node_is(50000, V1, "with one");
    put("/sys/fs/cgroup/memory/j/memory.limit_in_bytes", "80000\n");
    put("/sys/fs/cgroup/memory/j/memory.usage_in_bytes", "75000\n");
    node_is(5000, V1, "and one above it");
    put("/proc/self/cgroup", "5:memoryless:/j\n4:cpu,xmemory:/j/s\n0::/\n");
    node_is(KIB(1000), "MemAvailable of the node", "no controller of that name");
}

static void process_is(int64_t bytes, const char *of, const char *what)
{
    const struct memory_left left = observe_process_left(root);

    tap_is_int(left.bytes, bytes, "%s", what);
    tap_is_str(left.of ? left.of : "nothing", of, "... by %s", of);
}

/* So much that this process is not limited. */
static void test_process(void)
{
    const int64_t much = (int64_t)1 << 46;
    struct rlimit was[2];

    getrlimit(RLIMIT_AS, &was[0]);
    getrlimit(RLIMIT_DATA, &was[1]);
    if (was[0].rlim_cur != RLIM_INFINITY || was[1].rlim_cur != RLIM_INFINITY) {
        tap_skip(1, "ulimit -v or -d is set");
        return;
    }
    tree();
    put("/proc/self/status", "Name:\tx\nVmSize:\t    3000 kB\nVmData:\t    2000 kB\n");
    process_is(INT64_MAX, "nothing", "a process without limits");
    setrlimit(RLIMIT_AS, &(struct rlimit){ (rlim_t)much, was[0].rlim_max });
    process_is(much - KIB(3000), "ulimit -v", "with one for addresses");
    setrlimit(RLIMIT_DATA, &(struct rlimit){ (rlim_t)much / 2, was[1].rlim_max });
    process_is(much / 2 - KIB(2000), "ulimit -d", "and a tighter one for data");
    unlink(file_of("/proc/self/status"));
    process_is(INT64_MAX, "nothing", "limits whose use is not known");
    setrlimit(RLIMIT_AS, &was[0]);
    setrlimit(RLIMIT_DATA, &was[1]);
}

int main(void)
{
    run_folder_new(folder);
    test_node();
    test_version_2();
    test_trouble();
    test_version_1();
    test_process();
    strcpy(root, "");
    tap_ok(observe_node_left(root).bytes > 0, "this node has some");
    run_folder_remove(folder);
    return tap_done();
}
