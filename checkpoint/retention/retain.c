/* SPDX-License-Identifier: Apache-2.0
 *
 * Retention: which step directories are deleted after a commit. Never touches the one
 * just saved, newer ones, what cannot be read, and what nothing proves to be a
 * checkpoint of this run: a copy under another name, another run's, a directory that
 * somebody made. What fails, or is not allowed now, is left to the next save.
 */
#include "retention/ckpt_retention.h"
#include "ckpt_internal.h"

/* The oldest first, so that a stop in the middle leaves the newest. Deletes by rename
 * first. Errors are not reported; the save succeeded. */
void ckpt_retain(int rootfd, int64_t saved, const char *run_id,
                 const struct ckpt_rule *r, int (*may_delete)(void))
{
    struct ckpt_survey s;

    if (ckpt_survey(&s, rootfd, run_id, r, saved, NULL) != ACCEL_OK)
        return;
    for (size_t i = s.count; i-- > 0 && (!may_delete || may_delete());)
        if (s.list[i].goes)
            ckpt_trash(rootfd, s.list[i].name);
    ckpt_survey_free(&s);
}
