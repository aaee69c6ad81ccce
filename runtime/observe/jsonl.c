/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSONL log and the progress line. In: what a step brought. Out: one
 * record, written in one piece, so that a killed run leaves at most one torn
 * line, which the next start removes; and a line for people. Never an error
 * once it is open (lines.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "observe/observe.h"

/* Keeps errno: callers look at it to tell a full disk from other failures. */
static accel_status_t io_error(accel_error_t *err, const char *path, const char *what)
{
    int why = errno;
    accel_status_t st =
        accel_fail_at(err, A0711, path, "check free space and permissions",
                      "cannot %s the log: %s", what, strerror(why));

    errno = why;
    return st;
}

/* Which part of a log stays. */
struct trim {
    int64_t steps_done;
    /* where the part to remove begins; -1: nothing is removed */
    int64_t tail;
    /* a line behind `tail` stays */
    bool scattered;
    /* no room for another file beside it */
    bool no_room;
};

/* A full disk, a quota, or a limit of file sizes. */
static bool is_no_room(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

/* A whole line with a step that was done; n > 0. */
static bool stays(const char *line, ssize_t n, int64_t steps_done)
{
    const char *at = strstr(line, "\"step\":");

    return line[n - 1] == '\n' && at && strtoll(at + 7, NULL, 10) <= steps_done;
}

/* Looks at every line; those that stay go to `out_fd` unless it is -1. */
static accel_status_t walk(FILE *in, struct trim *t, int out_fd, const char *path,
                           accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;
    char *line = NULL;
    size_t cap = 0;
    int64_t at = 0;
    ssize_t n;

    while (st == ACCEL_OK && (n = getline(&line, &cap, in)) > 0) {
        bool kept = stays(line, n, t->steps_done);

        if (!kept && t->tail < 0)
            t->tail = at;
        t->scattered |= kept && t->tail >= 0;
        if (kept && out_fd >= 0 && (errno = line_write(out_fd, line, (size_t)n)) != 0)
            st = io_error(err, path, "write");
        at += n;
    }
    if (st == ACCEL_OK && ferror(in))
        st = io_error(err, path, "read");
    free(line);
    return st;
}

/* Replaces the log by the lines that stay: a new file, synced, then renamed. */
static accel_status_t rewrite(FILE *in, struct trim *t, const char *path,
                              accel_error_t *err)
{
    struct trim again = { .steps_done = t->steps_done, .tail = -1 };
    char part[2060];
    accel_status_t st;
    sigset_t before;
    int fd, why;

    snprintf(part, sizeof(part), "%s.part", path);
    fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    t->no_room = fd < 0 && is_no_room(errno);
    if (fd < 0)
        return io_error(err, part, "create");
    rewind(in);
    file_limit_hold(&before);
    st = walk(in, &again, fd, part, err);
    if (st == ACCEL_OK && fsync(fd) != 0)
        st = io_error(err, part, "flush");
    if (st == ACCEL_OK && rename(part, path) != 0)
        st = io_error(err, path, "replace");
    why = errno;
    file_limit_release(&before);
    /* all is on disk, or given up */
    close(fd);
    t->no_room = st != ACCEL_OK && is_no_room(why);
    if (st != ACCEL_OK)
        unlink(part);
    return st;
}

/* Removes the records after steps_done. A new file takes the place of the old one, so
 * that an earlier life of the job that still runs goes on writing the old one. On a
 * full disk the end of the old file is cut off instead, which needs no room, unless
 * lines that stay lie behind it. */
static accel_status_t trim(const char *path, int64_t steps_done, accel_error_t *err)
{
    struct trim t = { .steps_done = steps_done, .tail = -1 };
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    FILE *in = fd >= 0 ? fdopen(fd, "r") : NULL;
    accel_status_t st;

    if (!in) {
        st = fd < 0 && errno == ENOENT ? ACCEL_OK : io_error(err, path, "read");
        if (fd >= 0)
            close(fd);
        return st;
    }
    st = walk(in, &t, -1, path, err);
    if (st == ACCEL_OK)
        st = rewrite(in, &t, path, err);
    if (st != ACCEL_OK && t.no_room && !t.scattered)
        st = t.tail >= 0 && ftruncate(fd, t.tail) != 0 ? io_error(err, path, "shorten")
                                                       : ACCEL_OK;
    fclose(in);
    return st;
}

accel_status_t observe_open(struct observe *o, const char *path, int64_t steps_done,
                            accel_error_t *err)
{
    accel_status_t st;

    o->file = (struct lines){ .fd = -1 };
    if (!path)
        return ACCEL_OK;
    st = trim(path, steps_done, err);
    if (st == ACCEL_OK)
        st = lines_open(&o->file, path, o->log, err);
    o->file.ours = o->ours;
    o->file.ours_user = o->ours_user;
    return st;
}

/* JSON has neither NaN nor infinity: null stands for them. */
static const char *json_number(double v, char *buf, size_t len)
{
    if (isfinite(v))
        snprintf(buf, len, "%.17g", v);
    else
        snprintf(buf, len, "null");
    return buf;
}

/* The progress line, and a second one with the held-out loss after an evaluation. */
static void observe_print_line(const struct observe *o, const struct observe_step *s,
                               double rate)
{
    char count[32], mem[32], size[32], device[48] = "";

    if (o->device_peak)
        snprintf(device, sizeof(device), " gpu %s",
                 format_bytes((double)o->device_peak_bytes, size, sizeof(size)));

    accel_logf(o->log, ACCEL_LOG_INFO,
               "step %lld/%lld loss %.4f lr %.1e %.*f ms %s %s/s norm %.2f mem %s%s",
               (long long)s->step, (long long)o->total_steps, s->loss, s->lr,
               s->step_ms < 10 ? 1 : 0, s->step_ms,
               format_count(rate, count, sizeof(count)), s->tokens ? "tok" : "samples",
               s->grad_norm, format_bytes((double)o->peak_bytes, mem, sizeof(mem)),
               device);
    if (!isnan(s->eval_loss))
        accel_logf(o->log, ACCEL_LOG_INFO, "step %lld/%lld held-out loss %.4f",
                   (long long)s->step, (long long)o->total_steps, s->eval_loss);
}

/* The first three steps show at once that the run works. */
bool observe_due(const struct observe *o, int64_t step)
{
    return step % o->every == 0 || step == o->total_steps || step <= 3;
}

/* Memory is sampled only when a line is due: the kernel walks all pages for it. */
void observe_step(struct observe *o, const struct observe_step *s)
{
    double rate = s->step_ms > 0 ? (double)s->items / (s->step_ms * 1e-3) : 0;
    bool due = observe_due(o, s->step) || !isnan(s->eval_loss);
    char loss[40], norm[40], eval[64] = "", value[40], record[512];
    char device[48] = "";

    if (due) {
        int64_t peak = 0;

        observe_memory(&peak);
        if (peak > o->peak_bytes)
            o->peak_bytes = peak;
        if (o->device_peak)
            o->device_peak_bytes = o->device_peak(o->device_user);
        observe_print_line(o, s, rate);
    }
    if (o->file.fd < 0)
        return;
    if (!isnan(s->eval_loss))
        snprintf(eval, sizeof(eval), ",\"eval_loss\":%s",
                 json_number(s->eval_loss, value, sizeof(value)));
    if (o->device_peak)
        snprintf(device, sizeof(device), ",\"gpu_peak_bytes\":%lld",
                 (long long)o->device_peak_bytes);
    snprintf(record, sizeof(record),
             "{\"step\":%lld,\"loss\":%s,\"lr\":%.9g,\"step_ms\":%.3f,"
             "\"%s_per_s\":%.1f,\"grad_norm\":%s,\"mem_peak_bytes\":%lld%s%s}\n",
             (long long)s->step, json_number(s->loss, loss, sizeof(loss)), s->lr,
             s->step_ms, s->tokens ? "tokens" : "samples", rate,
             json_number(s->grad_norm, norm, sizeof(norm)), (long long)o->peak_bytes,
             device, eval);
    lines_add(&o->file, record, strlen(record), "\"eval_loss\":");
}

void observe_sync(struct observe *o)
{
    lines_sync(&o->file);
}

void observe_close(struct observe *o)
{
    lines_close(&o->file);
}
