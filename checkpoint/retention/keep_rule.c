/* SPDX-License-Identifier: Apache-2.0
 *
 * Which checkpoints stay. In: the step directories of a root, and a rule: n of
 * the newest, multiples of a number of steps, the best by a metric. Out: for each the
 * reason why it stays, or that it goes. The run that deletes, the command that prunes
 * and the lists that tell why all ask here. Changes nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "retention/ckpt_retention.h"
#include "load/ckpt_load.h"
#include "ckpt_internal.h"
#include "ckpt_tools.h"

/* ---- the directories ------------------------------------------------------------- */

/* for qsort */
static int newest_first(const void *pa, const void *pb)
{
    const struct ckpt_kept *a = pa, *b = pb;

    return (a->step < b->step) - (a->step > b->step);
}

/* Names of steps, newest first, and nothing known about them yet. */
static accel_status_t list_steps(struct ckpt_survey *s, int rootfd, accel_error_t *err)
{
    char(*names)[CKPT_DIR_MAX] = NULL;
    size_t n = 0;
    accel_status_t st = ckpt_list_names(rootfd, "step_", &names, &n, err);

    if (st)
        return st;
    s->list = calloc(n + 1, sizeof(*s->list));
    for (size_t i = 0; s->list && i < n; i++) {
        const int64_t step = ckpt_step_of_name(names[i]);

        if (step < 0)
            continue;
        s->list[s->count].step = step;
        s->list[s->count].value = NAN;
        snprintf(s->list[s->count++].name, sizeof(s->list->name), "%.63s", names[i]);
    }
    free(names);
    if (!s->list)
        return accel_fail_nomem(err, "the list of checkpoints", n * sizeof(*s->list));
    if (s->count)
        qsort(s->list, s->count, sizeof(*s->list), newest_first);
    return ACCEL_OK;
}

/* Looks at one; the newest complete one names the run where the caller does not. Ours:
 * its manifest names this run, and the step that the directory is named after. */
static void look(struct ckpt_survey *s, struct ckpt_kept *k, int rootfd)
{
    struct ckpt_identity id;

    ckpt_identify(&id, rootfd, k->name);
    k->status = id.status;
    if (id.status == ACCEL_OK && !s->run_id[0])
        memcpy(s->run_id, id.run_id, sizeof(s->run_id));
    k->ours = id.step == k->step && s->run_id[0] && strcmp(id.run_id, s->run_id) == 0;
}

/* What a run at work has removed since the names were read is left out: it looks
 * damaged, as long as some of its files are there. */
static void look_at_all(struct ckpt_survey *s, int rootfd)
{
    size_t there = 0;

    for (size_t i = 0; i < s->count; i++) {
        struct ckpt_kept k = s->list[i];

        look(s, &k, rootfd);
        if (k.status == ACCEL_OK ||
            faccessat(rootfd, k.name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
            errno != ENOENT)
            s->list[there++] = k;
    }
    s->count = there;
}

/* A later value of a step replaces an earlier one. */
static void take_value(void *user, int64_t step, double value)
{
    struct ckpt_survey *s = user;
    size_t low = 0, high = s->count;

    while (low < high) {
        const size_t mid = low + (high - low) / 2;

        if (s->list[mid].step > step)
            low = mid + 1;
        else
            high = mid;
    }
    if (low < s->count && s->list[low].step == step)
        s->list[low].value = value;
}

/* The rule, and the values that it goes by. */
static accel_status_t read_rule(struct ckpt_survey *s, int rootfd,
                                const struct ckpt_rule *rule, accel_error_t *err)
{
    char *text;
    accel_status_t st = ckpt_keep_read(rootfd, &text, err);

    if (st)
        return st;
    if (rule)
        s->rule = *rule;
    else
        (void)ckpt_keep_rule(text, s->run_id, &s->rule);
    ckpt_keep_values(text, s->run_id, s->rule.also.metric, take_value, s);
    free(text);
    return ACCEL_OK;
}

/* Is it one that the rule may count and delete? */
static bool counts(const struct ckpt_kept *k, int64_t newest)
{
    return k->status == ACCEL_OK && k->ours && k->step <= newest;
}

static void add_reason(struct ckpt_kept *k, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void add_reason(struct ckpt_kept *k, const char *fmt, ...)
{
    size_t used = strlen(k->why);
    va_list ap;

    if (used && used + 2 < sizeof(k->why)) {
        memcpy(k->why + used, ", ", 3);
        used += 2;
    }
    va_start(ap, fmt);
    text_vformat(k->why + used, sizeof(k->why) - used, fmt, ap);
    va_end(ap);
}

/* The best by its value of those without a place, of equal ones the newest; NULL: none
 * has a value. */
static struct ckpt_kept *best_left(struct ckpt_survey *s, int64_t newest)
{
    struct ckpt_kept *best = NULL;

    for (size_t i = 0; i < s->count; i++) {
        struct ckpt_kept *k = &s->list[i];

        if (!counts(k, newest) || isnan(k->value) || k->place > 0)
            continue;
        if (!best ||
            (s->rule.also.larger ? k->value > best->value : k->value < best->value))
            best = k;
    }
    return best;
}

/* The best, one after the other. */
static void keep_best(struct ckpt_survey *s, int64_t newest)
{
    const accel_ckpt_rule_t *r = &s->rule.also;
    struct ckpt_kept *best = NULL;

    for (int place = 1; place <= r->best && (place == 1 || best); place++) {
        best = best_left(s, newest);
        if (!best)
            continue;
        best->place = place;
        add_reason(best, "best %d by %s (%.6g)", place, r->metric, best->value);
    }
}

/* Why one stays that is no complete checkpoint of this run. */
static const char *why_not_ours(const struct ckpt_kept *k, int64_t newest)
{
    return k->status == ACCEL_ECORRUPT ? "damaged: see accel ckpt repair"
           : k->status != ACCEL_OK     ? "cannot be read"
           : !k->ours                  ? "of another run"
           : k->step > newest          ? "newer than the last save"
                                       : NULL;
}

/* The reasons but for the metric. A damaged one goes too, once it is older than enough
 * complete ones. */
static void judge_by_step(struct ckpt_survey *s, int64_t newest)
{
    const struct ckpt_rule *r = &s->rule;
    int newer = 0;

    for (size_t i = 0; i < s->count; i++) {
        struct ckpt_kept *k = &s->list[i];
        const char *other = why_not_ours(k, newest);
        const bool multiple = r->also.every > 0 && k->step % r->also.every == 0;

        if (other) {
            add_reason(k, "%s", other);
            k->goes = newer >= r->keep && k->ours && !multiple && k->step <= newest &&
                      !ckpt_may_pass(k->status);
            continue;
        }
        if (newer < r->keep)
            add_reason(k, "newest %d of %d", newer + 1, r->keep);
        if (multiple)
            add_reason(k, "every %" PRId64 " steps", r->also.every);
        newer++;
    }
}

/* Without a rule everything stays. */
static void decide(struct ckpt_survey *s, int64_t newest)
{
    if (s->rule.keep > 0) {
        judge_by_step(s, newest);
        keep_best(s, newest);
    }
    for (size_t i = 0; i < s->count; i++) {
        struct ckpt_kept *k = &s->list[i];
        const char *other = why_not_ours(k, newest);

        if (s->rule.keep == 0)
            add_reason(k, "%s", other ? other : "no rule is noted");
        k->goes = k->goes || !k->why[0];
    }
}

accel_status_t ckpt_survey(struct ckpt_survey *s_out, int rootfd, const char *run_id,
                           const struct ckpt_rule *rule, int64_t newest,
                           accel_error_t *err)
{
    struct ckpt_survey *s = s_out;
    accel_status_t st;

    memset(s, 0, sizeof(*s));
    if (run_id)
        snprintf(s->run_id, sizeof(s->run_id), "%s", run_id);
    st = list_steps(s, rootfd, err);
    look_at_all(s, rootfd);
    ACCEL_TRY(st, read_rule(s, rootfd, rule, err));
    if (!st)
        decide(s, newest);
    else
        ckpt_survey_free(s);
    return st;
}

accel_status_t ckpt_why_kept(const char *root,
                             void (*found)(void *user, const char *name,
                                           const char *why),
                             void *user, accel_error_t *err)
{
    struct ckpt_survey s;
    int rootfd = TEMP_FAILURE_RETRY(open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    accel_status_t st;

    if (rootfd < 0)
        return errno == ENOENT ? ACCEL_OK
                               : ckpt_fail_root(err, root, "cannot open", errno);
    st = ckpt_survey(&s, rootfd, NULL, NULL, INT64_MAX, err);
    for (size_t i = 0; !st && i < s.count; i++)
        found(user, s.list[i].name, s.list[i].why);
    ckpt_survey_free(&s);
    close(rootfd);
    return st;
}

accel_status_t accel_ckpt_best(const char *root, char *dir_out, size_t len,
                               double *value_out, accel_error_t *err)
{
    const int rootfd =
        TEMP_FAILURE_RETRY(open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const struct ckpt_kept *best = NULL;
    struct ckpt_survey s = { 0 };
    accel_status_t st = ACCEL_OK;

    if (rootfd >= 0) {
        st = ckpt_survey(&s, rootfd, NULL, NULL, INT64_MAX, err);
        close(rootfd);
    } else if (errno != ENOENT) {
        st = ckpt_fail_root(err, root, "cannot open", errno);
    }
    if (st)
        return st;
    for (size_t i = 0; i < s.count; i++)
        s.list[i].place = 0;
    best = best_left(&s, INT64_MAX);
    if (!best)
        st = accel_fail_at(err, A0837, root,
                           "evaluate in the job (eval_every), or call "
                           "accel_note_metric; accel ckpt ls DIR lists what is there",
                           "no checkpoint has a value of %s, so none is the best",
                           s.rule.also.metric[0] ? s.rule.also.metric : "a metric");
    else if (strlen(root) + strlen(best->name) + 2 > len)
        st = accel_fail(err, A0815, "pass a larger buffer",
                        "accel_ckpt_best: the path does not fit %zu bytes", len);
    else
        snprintf(dir_out, len, "%s/%s", root, best->name);
    if (!st && value_out)
        *value_out = best->value;
    ckpt_survey_free(&s);
    return st;
}

void ckpt_survey_free(struct ckpt_survey *s)
{
    free(s->list);
    memset(s, 0, sizeof(*s));
}
