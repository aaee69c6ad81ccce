/* SPDX-License-Identifier: Apache-2.0
 *
 * Retention: which step directories go after a commit. Counts only complete ones, never
 * touches the one just saved, deletes by rename first. Failures wait for the next save.
 */
#include <stdlib.h>
#include <string.h>

#include "ckpt_internal.h"

static int newest_first(const void *pa, const void *pb)
{
    int64_t a = ckpt_step_of_name(pa), b = ckpt_step_of_name(pb);

    return (a < b) - (a > b);
}

void ckpt_retain(int rootfd, const char *just_saved, int keep)
{
    char(*list)[CKPT_DIR_MAX] = NULL;
    size_t n = 0;
    int kept = 1; /* the one just saved */

    if (ckpt_list_names(rootfd, "step_", &list, &n, NULL) != ACCEL_OK)
        return;
    if (n)
        qsort(list, n, sizeof(*list), newest_first);
    for (size_t i = 0; i < n; i++) {
        accel_ckpt_t *c = NULL;

        if (ckpt_step_of_name(list[i]) < 0 || strcmp(list[i], just_saved) == 0)
            continue;
        if (kept >= keep) {
            /* Damaged ones older than everything kept go as well. */
            ckpt_trash(rootfd, list[i]);
            continue;
        }
        if (ckpt_open_at(&c, rootfd, list[i], list[i], NULL) == ACCEL_OK)
            kept++;
        accel_ckpt_close(c);
    }
    free(list);
}
