/* SPDX-License-Identifier: Apache-2.0
 *
 * How a run resumes.
 */
#ifndef ACCEL_STATE_LOAD_RESUME_H
#define ACCEL_STATE_LOAD_RESUME_H

#include "handle/run.h"

/* Resumes as ACCEL_RESUME says: from the newest intact checkpoint of this run, from
 * none, or from another one. ACCEL_OK with step 0 and `resumed` false when the run
 * starts from scratch. Falls back to an older checkpoint only after proven damage, and
 * moves the damaged one aside. A checkpoint that cannot be read now, or has another
 * format, is an error. Never deletes or overwrites a checkpoint. Collective. */
accel_status_t resume_run(accel_t *run, accel_error_t *err);
/* Loads checkpoint `dir`, which is a checkpoint itself and not a directory of them, on
 * all ranks, and notes the resume. Collective: all ranks return the same. */
accel_status_t resume_from(accel_t *run, const char *dir, accel_error_t *err);
/* Rank 0. Moves checkpoints of steps later than the run's aside, because the run went
 * back to an earlier one. */
accel_status_t resume_later_aside(accel_t *run, accel_error_t *err);

#endif
