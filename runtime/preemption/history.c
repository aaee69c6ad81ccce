/* SPDX-License-Identifier: Apache-2.0
 *
 * The history of a job, kept beside its checkpoints and not in Slurm: CKPTDIR/history,
 * one line per event (start, first save, stop). In: the events. Out: how often this job
 * was restarted, why it last stopped, how long a checkpoint takes. Rank 0 only. If the
 * file cannot be written, the counters are lost, but the run continues.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "preemption/preemption.h"
#include "common/env_names.h"
#include "common/plain_file.h"
#include "common/whole_io.h"

#define HISTORY_FILE "history"
#define LINE_MAX_LEN 256
/* of a longer file the end is read, which has the lines of the last attempts */
#define HISTORY_MOST ((size_t)16 << 20)

/* The plugin's variables come first: when srun asks for a new allocation, Slurm's count
 * starts again at 0. Values that make no sense mean a first attempt. */
struct incarnation incarnation_read(void)
{
    struct incarnation i = { .job = env_long("SLURM_JOB_ID", 0) };

    i.restart = env_long(ENV_RESTART_COUNT, env_long("SLURM_RESTART_COUNT", 0));
    i.first_job = env_long(ENV_FIRST_JOB, i.job);
    if (i.restart < 0 || i.first_job <= 0) {
        i.restart = i.restart < 0 ? 0 : i.restart;
        i.first_job = i.job;
    }
    return i;
}

static void path_of(const struct preemption *p, char *buf, size_t len)
{
    snprintf(buf, len, "%s/" HISTORY_FILE, p->directory);
}

/* The number after `name` (" restart=") in `line`; `otherwise` if there is none. */
static double word(const char *line, const char *name, double otherwise)
{
    const char *at = strstr(line, name);
    char *end;
    double v;

    if (!at)
        return otherwise;
    v = text_number(at + strlen(name), &end);
    return end == at + strlen(name) ? otherwise : v;
}

/* Keeps the reason of a stop line: the rest of the line, because reasons contain
 * blanks. Others may write to the file, so only letters, blanks and hyphens are
 * accepted: the reason goes to the log. */
static void keep_reason(struct history *h, const char *line)
{
    static const char name[] = " reason=";
    const char *at = strstr(line, name);
    size_t n;

    h->reason[0] = '\0';
    if (!at)
        return;
    at += strlen(name);
    n = strcspn(at, "\n");
    if (n > 0 && n < sizeof(h->reason) &&
        strspn(at, "abcdefghijklmnopqrstuvwxyz -") == n)
        snprintf(h->reason, sizeof(h->reason), "%.*s", (int)n, at);
}

/* How long a save took, and of how many bytes. */
static void take_save(struct history *h, struct pace *p, const char *line)
{
    const double seconds = word(line, " seconds=", -1);
    const enum save_kind kind = strstr(line, " local")        ? SAVE_LOCAL
                                : strstr(line, " copy")       ? SAVE_COPY
                                : strstr(line, " background") ? SAVE_BACKGROUND
                                                              : SAVE_AT_ONCE;

    if (seconds >= 0 && kind != SAVE_LOCAL && kind != SAVE_COPY)
        h->save_seconds = seconds;
    if (strstr(line, " save "))
        pace_add(p, kind, word(line, " bytes=", 0), seconds);
}

/* Takes one line of the file into account. Every change of this job's incarnation
 * number is a restart, whoever asked for it; an attempt that was stopped before it
 * began has no start line. *incarnation: the number of the last attempt so far, -1 at
 * first. Times of checkpoints count from other jobs, too. */
static void take_line(struct history *h, const struct incarnation *us, const char *line,
                      double *incarnation)
{
    const double number = word(line, " restart=", 0);

    if (us->job == 0 || (long)word(line, " of=", 0) != us->first_job)
        return;
    if (strstr(line, " save "))
        h->barren = 0;
    if (strstr(line, " start ")) {
        h->reason[0] = '\0';
        h->barren++;
    } else if (strstr(line, " stop "))
        keep_reason(h, line);
    else
        return;
    h->restarts += *incarnation >= 0 && number != *incarnation;
    *incarnation = number;
}

/* A line is appended in one piece, so that lines of two processes do not mix. */
void history_add(struct preemption *p, const char *fmt, ...)
{
    char path[DIRECTORY_MOST + 16], line[LINE_MAX_LEN], when[32] = "?";
    const struct incarnation *us = &p->incarnation;
    time_t now = time(NULL);
    struct tm tm;
    va_list ap;
    int64_t torn_at;
    int n, fd, error;

    if (p->rank != 0)
        return;
    if (gmtime_r(&now, &tm))
        strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
    n = snprintf(line, sizeof(line), "%s job=%ld of=%ld restart=%ld ", when, us->job,
                 us->first_job, us->restart);
    va_start(ap, fmt);
    n += text_vformat(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
    va_end(ap);
    if (n > (int)sizeof(line) - 2)
        n = (int)sizeof(line) - 2;
    line[n++] = '\n';
    path_of(p, path, sizeof(path));
    fd = plain_open(AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT);
    error = fd < 0 ? errno : line_append(fd, line, (size_t)n, &torn_at);
    if (error && !p->history.broken) {
        p->history.broken = true;
        accel_logf(p->log, ACCEL_LOG_WARN,
                   "%s: cannot write (%s): restarts are not counted", path,
                   plain_error(error));
    }
    if (fd >= 0)
        close(fd);
}

/* Removes the marker of the last incarnation's requeue (requeue.c): it has served. */
static void forget_marker(const struct preemption *p)
{
    char path[DIRECTORY_MOST + 64];

    if (p->incarnation.restart < 1)
        return;
    snprintf(path, sizeof(path), "%s/requeue.%ld.%ld", p->directory, p->incarnation.job,
             p->incarnation.restart - 1);
    unlink(path);
}

/* Guards against a run that is requeued for ever, also by others than accel. Counts
 * from the file, not from Slurm, whose count starts again with a new allocation. */
static accel_status_t check_limit(const struct preemption *p, accel_error_t *err)
{
    const struct history *h = &p->history;
    long long max = p->rules.max_restarts;

    if (!p->rules.enabled || h->restarts <= max)
        return ACCEL_OK;
    return accel_fail_at(
        err, A0921, p->directory,
        "submit the job again (a new job counts from 0), or raise "
        "accel.preemption.max_restarts",
        "this is restart %lld of job %ld, but accel.preemption.max_restarts is %lld",
        (long long)h->restarts, p->incarnation.first_job, max);
}

/* Takes all of `text` into account; of a longer line its begin. Returns the incarnation
 * number of the last attempt, -1 without one. */
static double take_text(struct preemption *p, const char *text, size_t len)
{
    double incarnation = -1;
    char line[LINE_MAX_LEN];

    for (const char *end = text + len; text < end;) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const size_t all = (size_t)((newline ? newline + 1 : end) - text),
                     n = all < sizeof(line) ? all : sizeof(line) - 1;

        memcpy(line, text, n);
        line[n] = '\0';
        take_save(&p->history, &p->pace, line);
        take_line(&p->history, &p->incarnation, line, &incarnation);
        text += all;
    }
    return incarnation;
}

/* A missing file is a first attempt. So is one that cannot be read: history_add says
 * why. */
accel_status_t history_start(struct preemption *p, accel_error_t *err)
{
    char path[DIRECTORY_MOST + 16], *text;
    struct history *h = &p->history;
    double incarnation;
    size_t len;

    path_of(p, path, sizeof(path));
    if (plain_tail(AT_FDCWD, path, HISTORY_MOST, &text, &len) == 0) {
        incarnation = take_text(p, text, len);
        h->restarts +=
            incarnation >= 0 && (double)p->incarnation.restart != incarnation;
        free(text);
    }
    forget_marker(p);
    return check_limit(p, err);
}

void history_pace(struct preemption *p, double bytes)
{
    struct pace *pace = &p->pace;

    if (pace->at_once == 0 && pace->background == 0)
        pace_add(pace, SAVE_AT_ONCE, bytes, p->history.save_seconds);
}

void history_say(const struct preemption *p)
{
    const struct history *h = &p->history;

    if (p->rank == 0 && h->restarts > 0)
        accel_logf(p->log, ACCEL_LOG_INFO,
                   "restart %lld of at most %lld of job %ld (%s)",
                   (long long)h->restarts, (long long)p->rules.max_restarts,
                   p->incarnation.first_job,
                   h->reason[0] ? h->reason : "the last run ended without a record");
}
