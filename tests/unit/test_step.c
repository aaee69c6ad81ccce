/* SPDX-License-Identifier: Apache-2.0
 *
 * Slurm's lists of task counts, good and broken ones.
 */
#include <stddef.h>

#include "cli/task_counts.h"
#include "tests/tap.h"

int main(void)
{
    static const struct {
        const char *list;
        int node, want;
    } c[] = {
        { "4", 0, 4 },       { "4", 1, 0 },
        { "2(x3),1", 0, 2 }, { "2(x3),1", 2, 2 },
        { "2(x3),1", 3, 1 }, { "2(x3),1", 4, 0 },
        { "1,2,3", 1, 2 },   { "1,2,3", 2, 3 },
        { "", 0, 0 },        { "x", 0, 0 },
        { "0", 0, 0 },       { "-1", 0, 0 },
        { "2(x", 0, 0 },     { "2(x3", 0, 0 },
        { "2(x0)", 0, 0 },   { "2(x3)1", 0, 0 },
        { "2;3", 0, 0 },     { "2(x3);1", 3, 0 },
        { "2,", 1, 0 },      { "99999999999999999999", 0, 0 },
        { "2", -1, 0 },      { "2(x2147483647)", 2147483646, 2 },
        { "2(x3],1", 0, 0 },
    };

    for (unsigned i = 0; i < sizeof(c) / sizeof(c[0]); i++)
        tap_is_int(step_tasks_on_node(c[i].list, c[i].node), c[i].want,
                   "node %d of '%s'", c[i].node, c[i].list);
    tap_is_int(step_tasks_on_node(NULL, 0), 0, "no list");
    return tap_done();
}
