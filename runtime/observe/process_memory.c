/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of this process as the kernel sees it. Proportional, not resident, set size:
 * ranks of one node map each other's windows, and RSS would count those pages in each
 * of them.
 */
#include <stdio.h>
#include <string.h>

#include "observe/observe.h"

/* Bytes of the line "KEY: N kB" of a /proc file; 0 when it is not there. */
static int64_t kib_line(const char *path, const char *key)
{
    FILE *f = fopen(path, "re");
    size_t len = strlen(key);
    char line[256];
    long long kib = 0;

    if (!f)
        return 0;
    while (fgets(line, sizeof(line), f))
        if (strncmp(line, key, len) == 0 && line[len] == ':' &&
            sscanf(line + len + 1, "%lld", &kib) == 1)
            break;
    fclose(f);
    return (int64_t)kib * 1024;
}

int64_t observe_memory(int64_t *peak_out)
{
    int64_t now = kib_line("/proc/self/smaps_rollup", "Pss");

    /* The kernel keeps the peak of the resident size only. What is shared now is taken
     * to have been shared then. */
    if (peak_out) {
        int64_t shared = kib_line("/proc/self/smaps_rollup", "Rss") - now;
        int64_t peak = kib_line("/proc/self/status", "VmHWM") - shared;

        *peak_out = peak > now ? peak : now;
    }
    return now;
}
