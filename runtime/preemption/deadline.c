/* SPDX-License-Identifier: Apache-2.0
 *
 * Is there time for the last checkpoint of a stop? In: how long saves took, in this and
 * earlier attempts; when the signal came; what srun knows about the site; what the
 * controller says about the job. Out: one verdict for all ranks. A save that cannot be
 * finished is not begun: a run that is killed in the middle of a save has neither a new
 * checkpoint nor time to ask for its requeue.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "preemption/preemption.h"
#include "preemption/requeue.h"

/* A save may take so much longer than those before it. */
#define MARGIN 1.5
/* seconds to wait for the controller */
#define ASK_SECONDS 3

/* What may end a run. */
static const char *const limits[] = { "lead_seconds", "KillWait", "GraceTime",
                                      "the job's time" };
enum limit { LEAD_SECONDS, KILL_WAIT, GRACE_TIME, JOB_TIME };

void pace_add(struct pace *p, enum save_kind kind, double bytes, double seconds)
{
    double *mean = kind == SAVE_LOCAL        ? &p->local
                   : kind == SAVE_COPY       ? &p->copy
                   : kind == SAVE_BACKGROUND ? &p->background
                                             : &p->at_once;

    if (bytes <= 0 || seconds <= 0)
        return;
    *mean = *mean > 0 ? (*mean + seconds / bytes) / 2 : seconds / bytes;
}

/* A save in the background gives way to the training: its time needs no margin for one
 * at once. */
double pace_seconds(const struct pace *p, double bytes)
{
    return bytes * (p->at_once > 0 ? MARGIN * p->at_once : p->background);
}

/* Without a margin: a copy that is late costs nothing but the wait for it. */
double pace_copy_seconds(const struct pace *p, double bytes)
{
    return bytes * (p->copy > 0 ? p->copy : p->at_once);
}

static void at_most(struct time_left *t, double seconds, const char *of)
{
    if (!t->of || seconds < t->seconds)
        *t = (struct time_left){ seconds, of };
}

/* Nobody says why the signal came. */
static struct time_left shortest(const struct notice *n, int sig, int64_t lead_seconds)
{
    const bool preempts = n->known && strcmp(n->mode, "OFF") != 0;
    struct time_left t = { 0 };

    if (sig != SIGTERM)
        at_most(&t, (double)lead_seconds, limits[LEAD_SECONDS]);
    if (n->known && (sig == SIGTERM || (preempts && n->grace == 0)))
        at_most(&t, (double)n->kill_wait, limits[KILL_WAIT]);
    if (preempts && n->grace > 0)
        at_most(&t, (double)n->grace, limits[GRACE_TIME]);
    return t;
}

/* A job that is in its grace time runs on, and so does one that is warned. Whatever
 * else SIGTERM means, KillWait follows: the job is being killed, or srun was told to
 * end. The times count from the signal; the end of the job is a date. */
struct time_left stop_time_left(const struct notice *n, int sig, int64_t lead_seconds,
                                double age, int64_t now,
                                const struct requeue_job_facts *facts)
{
    struct time_left t = { 0 };

    if (sig == SIGINT) /* nobody kills it */
        return t;
    if (!facts)
        t = shortest(n, sig, lead_seconds);
    else if (n->known && facts->running && facts->preempt_time > 0 && n->grace > 0)
        at_most(&t, (double)n->grace, limits[GRACE_TIME]);
    else if (n->known && (sig == SIGTERM || !facts->running || facts->preempt_time > 0))
        at_most(&t, (double)n->kill_wait, limits[KILL_WAIT]);
    t.seconds -= age;
    if (facts && facts->running && facts->end_time > 0)
        at_most(&t, (double)(facts->end_time - now), limits[JOB_TIME]);
    return t;
}

/* Rank 0. *v is zero before. Where the nodes can have it, a save of unknown time to the
 * shared directory is not tried: the one on the nodes is the safer. */
static void judge(const struct preemption *p, int sig, double age,
                  const struct stop_save *save, struct stop_verdict *v)
{
    const double need = pace_seconds(&p->pace, save->bytes);
    const struct notice *n = &p->notice;
    const int64_t lead = p->rules.lead_seconds, begun = clock_ns();
    struct time_left t = stop_time_left(n, sig, lead, age, 0, NULL);
    struct requeue_job_facts facts;

    if (t.of && (need > t.seconds || save->in_flight)) {
        const bool told = requeue_facts(p->log, ASK_SECONDS, &facts);

        age += (double)(clock_ns() - begun) * 1e-9;
        t = stop_time_left(n, sig, lead, age, (int64_t)time(NULL),
                           told ? &facts : NULL);
    }
    v->limited = t.of != NULL;
    v->save = !v->limited || (need == 0 ? !save->local : need <= t.seconds);
    v->need_local = save->bytes * MARGIN * p->pace.local;
    v->local = !v->save && save->local && v->need_local <= t.seconds;
    v->need = need;
    v->left = t.seconds;
    snprintf(v->of, sizeof(v->of), "%s", t.of ? t.of : "");
}

/* Where `of` stands in `limits`; -1: it is empty. */
static int64_t limit_place(const char *of)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(limits); i++)
        if (strcmp(limits[i], of) == 0)
            return (int64_t)i;
    return -1;
}

/* Rank 0's verdict goes to the others as numbers, because that is what ranks agree on:
 * times in microseconds, and the place of `of` in `limits`. */
static accel_status_t spread_verdict(struct preemption *p, struct stop_verdict *v,
                                     accel_error_t *err)
{
    int64_t part[7];
    accel_status_t st;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(part); i++)
        part[i] = INT64_MIN;
    if (p->rank == 0) {
        part[0] = v->save;
        part[1] = v->local;
        part[2] = v->limited;
        part[3] = (int64_t)(v->need * 1e6);
        part[4] = (int64_t)(v->need_local * 1e6);
        part[5] = (int64_t)(v->left * 1e6);
        part[6] = limit_place(v->of);
    }
    ACCEL_CHECK(st, preemption_agree(p, part, ACCEL_ARRAY_SIZE(part), err));
    if (p->rank == 0)
        return ACCEL_OK;
    *v = (struct stop_verdict){ .save = part[0] > 0,
                                .local = part[1] > 0,
                                .limited = part[2] > 0,
                                .need = (double)part[3] * 1e-6,
                                .need_local = (double)part[4] * 1e-6,
                                .left = (double)part[5] * 1e-6 };
    if (part[6] >= 0)
        snprintf(v->of, sizeof(v->of), "%s", limits[part[6]]);
    return ACCEL_OK;
}

accel_status_t deadline_judge(struct preemption *p, int sig,
                              const struct stop_save *save,
                              struct stop_verdict *verdict_out, accel_error_t *err)
{
    int64_t age = signals_age_ns();
    accel_status_t st;

    memset(verdict_out, 0, sizeof(*verdict_out));
    ACCEL_CHECK(st, preemption_agree(p, &age, 1, err));
    if (p->rank == 0)
        judge(p, sig, (double)age * 1e-9, save, verdict_out);
    return spread_verdict(p, verdict_out, err);
}
