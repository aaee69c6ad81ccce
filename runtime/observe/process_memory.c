/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of this process as the kernel sees it. Proportional, not resident, set size:
 * ranks of one node map each other's windows, and RSS would count those pages in each
 * of them.
 */
#include <stdio.h>
#include <string.h>

#include "observe/observe.h"

/* Bytes of each of the lines "KEY: N kB" of a /proc file; 0 where it has none. */
static void read_kib(const char *path, size_t count, const char *const keys[],
                     int64_t bytes_out[])
{
    FILE *f = fopen(path, "re");
    char line[256];

    memset(bytes_out, 0, count * sizeof(*bytes_out));
    if (!f)
        return;
    while (fgets(line, sizeof(line), f)) {
        const char *colon = strchr(line, ':');
        long long kib;

        for (size_t i = 0; colon && i < count; i++)
            if (strlen(keys[i]) == (size_t)(colon - line) &&
                strncmp(line, keys[i], strlen(keys[i])) == 0 &&
                sscanf(colon + 1, "%lld", &kib) == 1)
                bytes_out[i] = (int64_t)kib * 1024;
    }
    fclose(f);
}

int64_t observe_memory(int64_t *peak_out)
{
    /* One reading for both: the kernel walks all pages for it. */
    int64_t set[2], highest;

    read_kib("/proc/self/smaps_rollup", 2, (const char *const[]){ "Pss", "Rss" }, set);
    /* The kernel keeps the peak of the resident size only. What is shared now is taken
     * to have been shared then. */
    if (peak_out) {
        read_kib("/proc/self/status", 1, (const char *const[]){ "VmHWM" }, &highest);
        highest -= set[1] - set[0];
        *peak_out = highest > set[0] ? highest : set[0];
    }
    return set[0];
}
