/* SPDX-License-Identifier: Apache-2.0
 *
 * Reader of Slurm's compressed lists of task counts. Pure.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli/task_counts.h"

/* Reads a number from 1 up at *p and moves *p behind it. 0: there is none. */
static long parse_task_count(const char **p)
{
    char *end;
    long n;

    if (**p < '0' || **p > '9')
        return 0;
    n = strtol(*p, &end, 10);
    *p = end;
    return n > 0 && n <= INT_MAX ? n : 0;
}

/* Walks the list without expanding it: `left` counts the nodes still to skip. A list
 * that is broken behind the wanted entry is refused only where the entry itself
 * touches the damage. */
int step_tasks_on_node(const char *list, int node)
{
    const char *p = list;
    long left = node;

    while (p && node >= 0) {
        long tasks = parse_task_count(&p), times = 1;

        if (!tasks)
            return 0;
        if (!strncmp(p, "(x", 2)) {
            p += 2;
            times = parse_task_count(&p);
            if (!times || *p++ != ')')
                return 0;
        }
        if (left < times)
            return *p == '\0' || *p == ',' ? (int)tasks : 0;
        left -= times;
        if (*p++ != ',')
            return 0;
    }
    return 0;
}
