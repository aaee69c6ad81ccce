/* SPDX-License-Identifier: Apache-2.0
 *
 * Does a checkpoint fit into the time that this site gives? In:
 * $ACCEL_PREEMPTION_NOTICE (what srun knows about the partition), the lead time from
 * the config, and the measured time of a checkpoint. Out: warnings with the numbers,
 * once. Rank 0 only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preemption/preemption.h"
#include "common/env_names.h"

/* Between the notice of a preemption and the kill there is GraceTime or, without
 * one, KillWait. The warning comes once the time of a checkpoint is known, not when
 * it is too late. */
static void warn_short(const struct preemption *p, const struct notice *n,
                       double seconds)
{
    const char *cure = "a preempted run may have to resume from an older checkpoint; "
                       "ask the site for a longer grace time, save more often "
                       "(accel.checkpoint.every_minutes), or write with more nodes";

    if (n->grace > 0 && seconds > (double)n->grace)
        accel_logf(
            p->log, ACCEL_LOG_WARN,
            "a checkpoint takes %.1f s, but partition %s has GraceTime %lld s: %s",
            seconds, n->partition, n->grace, cure);
    else if (n->grace == 0 && seconds > (double)n->kill_wait)
        accel_logf(p->log, ACCEL_LOG_WARN,
                   "a checkpoint takes %.1f s, but partition %s has no GraceTime and "
                   "the cluster's KillWait is %lld s: %s",
                   seconds, n->partition, n->kill_wait, cure);
}

/* Two limits: the partition's, unless preemption is off there, and the lead time, which
 * must cover a checkpoint before the job's time limit. */
void notice_check(struct preemption *p, double seconds)
{
    struct notice *n = &p->notice;

    if (p->rank != 0 || n->checked || !p->rules.enabled || seconds <= 0)
        return;
    n->checked = true;
    if (n->known && strcmp(n->mode, "OFF") != 0)
        warn_short(p, n, seconds);
    if (n->known && seconds > (double)p->rules.lead_seconds)
        accel_logf(
            p->log, ACCEL_LOG_WARN,
            "a checkpoint takes %.1f s, but accel.preemption.lead_seconds is %lld: the "
            "time limit will end the run before it is saved; use a larger lead_seconds",
            seconds, (long long)p->rules.lead_seconds);
}

/* "PARTITION MODE GRACE KILLWAIT", as the plugin in srun wrote it; times in seconds. */
void notice_read(struct preemption *p)
{
    struct notice *n = &p->notice;
    const char *text = getenv(ENV_NOTICE);

    n->known = text && sscanf(text, "%63s %15s %lld %lld", n->partition, n->mode,
                              &n->grace, &n->kill_wait) == 4;
    if (!n->known)
        n->grace = -1;
}
