/* SPDX-License-Identifier: Apache-2.0
 *
 * Retention: which step directories are deleted after a commit. Counts only whole
 * checkpoints of this run, and deletes by rename first. Never touches the one just
 * saved, newer ones, what cannot be read, and what nothing proves to be a checkpoint of
 * this run: a copy under another name, another run's, a directory that somebody made.
 * What fails is left to the next save.
 */
#include <stdlib.h>
#include <string.h>

#include "ckpt_internal.h"

/* for qsort; names that are not steps go last */
static int newest_first(const void *pa, const void *pb)
{
    int64_t a = ckpt_step_of_name(pa), b = ckpt_step_of_name(pb);

    return (a < b) - (a > b);
}

/* Its manifest names this run, and the step that the directory is named after. */
static bool is_ours(const struct ckpt_identity *id, int64_t step, const char *run_id)
{
    return id->step == step && strcmp(id->run_id, run_id) == 0;
}

/* Walks from new to old: keeps whole ones until `keep` is reached, deletes those
 * behind. Errors are not reported; the save succeeded. */
void ckpt_retain(int rootfd, int64_t saved, const char *run_id, int keep)
{
    char(*list)[CKPT_DIR_MAX] = NULL;
    size_t n = 0;
    int kept = 1; /* the one just saved */

    if (ckpt_list_names(rootfd, "step_", &list, &n, NULL) != ACCEL_OK)
        return;
    if (n)
        qsort(list, n, sizeof(*list), newest_first);
    for (size_t i = 0; i < n; i++) {
        int64_t step = ckpt_step_of_name(list[i]);
        struct ckpt_identity id;

        if (step < 0 || step >= saved)
            continue;
        ckpt_identify(&id, rootfd, list[i]);
        if (!is_ours(&id, step, run_id) || ckpt_may_pass(id.status))
            continue;
        /* Damaged ones older than everything kept are deleted as well; they
         * do not count as kept. */
        if (kept >= keep)
            ckpt_trash(rootfd, list[i]);
        else
            kept += id.status == ACCEL_OK;
    }
    free(list);
}
