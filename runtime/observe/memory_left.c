/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory may still be had. In: what the kernel says of the node, of the
 * control groups around this process and of its own limits. Out: the least of it, with
 * a name for messages. Limits that cannot be read are left out; never fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "observe/observe.h"

enum { LEFT_PATH = 4600, LEFT_GROUP = 4096 };

/* ---- reading --------------------------------------------------------------------- */

/* The number after `word` at the start of a line, in bytes where the line says kB.
 * word "": the file's first number. -1: no file, no such line, or no number. */
static int64_t left_number(const char *root, const char *path, const char *word)
{
    char name[LEFT_PATH], line[256];
    const size_t n = strlen(word);
    int64_t bytes = -1;
    FILE *f;

    if (snprintf(name, sizeof(name), "%s%s", root, path) >= (int)sizeof(name))
        return -1;
    f = fopen(name, "re");
    while (f && fgets(line, sizeof(line), f)) {
        const char *text;
        char *end;

        if (strncmp(line, word, n) != 0)
            continue;
        text = line + n + (n ? strspn(line + n, " \t") : 0);
        if (strspn(text, "0123456789") > 0)
            bytes = strtoll(text, &end, 10);
        if (bytes >= 0 && strncmp(end, " kB", 3) == 0)
            bytes = bytes < INT64_MAX / 1024 ? bytes * 1024 : INT64_MAX;
        break;
    }
    if (f)
        fclose(f);
    return bytes;
}

/* `limit` less `used`; -1 in either: not known. */
static void left_take(struct memory_left *left, int64_t limit, int64_t used,
                      const char *of)
{
    const int64_t bytes = limit > used ? limit - used : 0;

    if (limit >= 0 && used >= 0 && bytes < left->bytes)
        *left = (struct memory_left){ bytes, of };
}

/* ---- control groups -------------------------------------------------------------- */

/* Where a version of control groups has its files. */
struct left_kind {
    /* in /proc/self/cgroup; NULL: the line without controllers */
    const char *controller;
    const char *mount, *limit, *used, *cache;
    const char *of;
};
static const struct left_kind kinds[] = {
    { NULL, "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file ",
      "memory.max of its control group" },
    /* above it the kernel slows a process down without end */
    { NULL, "/sys/fs/cgroup", "memory.high", "memory.current", "inactive_file ",
      "memory.high of its control group" },
    { "memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes",
      "memory.usage_in_bytes", "total_inactive_file ",
      "memory.limit_in_bytes of its control group" },
};

/* Is `controller` in the list "cpu,memory" of n bytes? */
static bool left_has(const char *list, size_t n, const char *controller)
{
    const size_t len = strlen(controller);

    for (size_t at = 0; at + len <= n; at++)
        if ((at == 0 || list[at - 1] == ',') && !strncmp(list + at, controller, len) &&
            (at + len == n || list[at + len] == ','))
            return true;
    return false;
}

/* The process's group, "/a/b", from a line "N:LIST:/a/b"; "" for the root and where it
 * is not told. A group outside of what the process may see counts as the root. */
static void left_group(const char *root, const char *controller, char group[LEFT_GROUP])
{
    char name[LEFT_PATH], line[LEFT_GROUP];
    FILE *f;

    group[0] = '\0';
    snprintf(name, sizeof(name), "%s/proc/self/cgroup", root);
    f = fopen(name, "re");
    while (f && fgets(line, sizeof(line), f)) {
        const char *list = strchr(line, ':');
        const char *path = list ? strchr(list + 1, ':') : NULL;
        const size_t n = path ? (size_t)(path - list - 1) : 0;

        if (!path || path[1] != '/' || strstr(path, "/.."))
            continue;
        if (controller ? left_has(list + 1, n, controller) : n == 0)
            snprintf(group, LEFT_GROUP, "%.*s", (int)strcspn(path + 1, "\n"), path + 1);
    }
    if (f)
        fclose(f);
}

/* One group's limit. Cached files that nobody has read lately are given back on demand.
 */
static void left_of_group(const char *root, const struct left_kind *k,
                          const char *group, struct memory_left *left)
{
    char path[LEFT_PATH];
    int64_t limit, used, cache;

    snprintf(path, sizeof(path), "%s%s/%s", k->mount, group, k->limit);
    limit = left_number(root, path, "");
    snprintf(path, sizeof(path), "%s%s/%s", k->mount, group, k->used);
    used = left_number(root, path, "");
    snprintf(path, sizeof(path), "%s%s/memory.stat", k->mount, group);
    cache = left_number(root, path, k->cache);
    if (used >= 0 && cache > 0)
        used = used > cache ? used - cache : 0;
    left_take(left, limit, used, k->of);
}

/* The group and all above it: the tightest counts. In a container the path may be that
 * of the node, which is not there; its own limit then stands at the root. */
static void left_of_groups(const char *root, const struct left_kind *k,
                           struct memory_left *left)
{
    char group[LEFT_GROUP];

    left_group(root, k->controller, group);
    for (;;) {
        char *slash = strrchr(group, '/');

        left_of_group(root, k, group, left);
        if (!slash)
            return;
        *slash = '\0';
    }
}

/* ---- */

struct memory_left observe_node_left(const char *root)
{
    struct memory_left left = { INT64_MAX, NULL };

    left_take(&left, left_number(root, "/proc/meminfo", "MemAvailable:"), 0,
              "MemAvailable of the node");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(kinds); i++)
        left_of_groups(root, &kinds[i], &left);
    return left;
}

struct memory_left observe_process_left(const char *root)
{
    static const struct {
        int resource;
        const char *used, *of;
    } own[] = { { RLIMIT_AS, "VmSize:", "ulimit -v" },
                { RLIMIT_DATA, "VmData:", "ulimit -d" } };
    struct memory_left left = { INT64_MAX, NULL };
    struct rlimit limit;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(own); i++)
        if (getrlimit(own[i].resource, &limit) == 0 &&
            limit.rlim_cur < (rlim_t)INT64_MAX)
            left_take(&left, (int64_t)limit.rlim_cur,
                      left_number(root, "/proc/self/status", own[i].used), own[i].of);
    return left;
}
