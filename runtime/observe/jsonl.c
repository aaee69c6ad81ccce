/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSONL log and the progress line. One write(2) per record, so a killed run leaves at
 * most one torn line, which the next start removes.
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

static accel_status_t io_error(accel_error_t *err, const char *path, const char *what)
{
    return accel_fail_at(err, A0711, path, "check free space and permissions",
                         "cannot %s the log: %s", what, strerror(errno));
}

static accel_status_t write_all(int fd, const char *buf, size_t len, const char *path,
                                accel_error_t *err)
{
    while (len > 0) {
        ssize_t n = write(fd, buf, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return io_error(err, path, "write");
        buf += n;
        len -= (size_t)n;
    }
    return ACCEL_OK;
}

/* Copies the complete records up to `steps_done` from `in` to `out_fd`. */
static accel_status_t copy_kept(FILE *in, int out_fd, int64_t steps_done,
                                const char *path, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;

    while (st == ACCEL_OK && (n = getline(&line, &cap, in)) > 0) {
        const char *at = strstr(line, "\"step\":");
        bool torn = line[n - 1] != '\n';

        if (torn || !at || strtoll(at + 7, NULL, 10) > steps_done)
            continue;
        st = write_all(out_fd, line, (size_t)n, path, err);
    }
    free(line);
    return st;
}

/* Replaces the log by its records up to steps_done. */
static accel_status_t trim(const char *path, int64_t steps_done, accel_error_t *err)
{
    char part[2060];
    accel_status_t st;
    FILE *in = fopen(path, "re");
    int fd;

    if (!in)
        return errno == ENOENT ? ACCEL_OK : io_error(err, path, "read");
    snprintf(part, sizeof(part), "%s.part", path);
    fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) {
        fclose(in);
        return io_error(err, part, "create");
    }
    st = copy_kept(in, fd, steps_done, part, err);
    if (st == ACCEL_OK && fsync(fd) != 0)
        st = io_error(err, part, "flush");
    if (close(fd) != 0 && st == ACCEL_OK)
        st = io_error(err, part, "close");
    fclose(in);
    if (st == ACCEL_OK && rename(part, path) != 0)
        st = io_error(err, path, "replace");
    if (st != ACCEL_OK)
        unlink(part);
    return st;
}

accel_status_t observe_open(struct observe *o, const char *path, int64_t steps_done,
                            accel_error_t *err)
{
    o->fd = -1;
    o->path[0] = '\0';
    if (!path)
        return ACCEL_OK;
    if (strlen(path) >= sizeof(o->path))
        return accel_fail(err, A0712, "use a shorter output directory",
                          "path of the log is too long");
    accel_status_t st = trim(path, steps_done, err);

    if (st != ACCEL_OK)
        return st;
    strcpy(o->path, path);
    o->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (o->fd < 0)
        return accel_fail_at(err, A0712, path, "choose a writable --out",
                             "cannot create the log: %s", strerror(errno));
    return ACCEL_OK;
}

/* JSON has no NaN or infinity; null says the same. */
static const char *number(double v, char *buf, size_t len)
{
    if (isfinite(v))
        snprintf(buf, len, "%.17g", v);
    else
        snprintf(buf, len, "null");
    return buf;
}

static void print_line(const struct observe *o, const struct observe_step *s,
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

bool observe_due(const struct observe *o, int64_t step)
{
    return step % o->every == 0 || step == o->total_steps || step <= 3;
}

accel_status_t observe_step(struct observe *o, const struct observe_step *s,
                            accel_error_t *err)
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
        print_line(o, s, rate);
    }
    if (o->fd < 0)
        return ACCEL_OK;
    if (!isnan(s->eval_loss))
        snprintf(eval, sizeof(eval), ",\"eval_loss\":%s",
                 number(s->eval_loss, value, sizeof(value)));
    if (o->device_peak)
        snprintf(device, sizeof(device), ",\"gpu_peak_bytes\":%lld",
                 (long long)o->device_peak_bytes);
    snprintf(record, sizeof(record),
             "{\"step\":%lld,\"loss\":%s,\"lr\":%.9g,\"step_ms\":%.3f,"
             "\"%s_per_s\":%.1f,\"grad_norm\":%s,\"mem_peak_bytes\":%lld%s%s}\n",
             (long long)s->step, number(s->loss, loss, sizeof(loss)), s->lr, s->step_ms,
             s->tokens ? "tokens" : "samples", rate,
             number(s->grad_norm, norm, sizeof(norm)), (long long)o->peak_bytes, device,
             eval);
    return write_all(o->fd, record, strlen(record), o->path, err);
}

accel_status_t observe_sync(struct observe *o, accel_error_t *err)
{
    if (o->fd >= 0 && fsync(o->fd) != 0 && errno != EINVAL && errno != EROFS)
        return io_error(err, o->path, "flush");
    return ACCEL_OK;
}

void observe_close(struct observe *o)
{
    if (o->fd >= 0)
        close(o->fd);
    o->fd = -1;
}
