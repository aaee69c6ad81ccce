/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSONL log and the progress line. In: what a step brought. Out: one
 * record, written in one piece, so that a killed run leaves at most one torn
 * line, which the next start removes; and a line for people. Never an error
 * once it is open (lines.c).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/observe.h"

/* A whole line with a step that was done. */
static bool step_stays(const void *steps_done, const char *line, size_t n)
{
    const char *at = strstr(line, "\"step\":");

    return line[n - 1] == '\n' && at &&
           strtoll(at + 7, NULL, 10) <= *(const int64_t *)steps_done;
}

accel_status_t observe_open(struct observe *o, const char *path, int64_t steps_done,
                            accel_error_t *err)
{
    accel_status_t st;

    o->file = (struct lines){ .fd = -1 };
    if (!path)
        return ACCEL_OK;
    st = lines_trim(path, step_stays, &steps_done, err);
    ACCEL_TRY(st, lines_open(&o->file, path, &o->writer, err));
    return st;
}

/* JSON has neither NaN nor infinity: null stands for them. */
static const char *json_number(double v, char *buf, size_t len)
{
    if (isfinite(v))
        text_format(buf, len, "%.17g", v);
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

    accel_logf(o->writer.log, ACCEL_LOG_INFO,
               "step %lld/%lld loss %.4f lr %.1e %.*f ms %s %s/s norm %.2f mem %s%s",
               (long long)s->step, (long long)o->total_steps, s->loss, s->lr,
               s->step_ms < 10 ? 1 : 0, s->step_ms,
               format_count(rate, count, sizeof(count)), s->tokens ? "tok" : "samples",
               s->grad_norm, format_bytes((double)o->peak_bytes, mem, sizeof(mem)),
               device);
    if (!isnan(s->eval_loss))
        accel_logf(o->writer.log, ACCEL_LOG_INFO, "step %lld/%lld held-out loss %.4f",
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
    text_format(record, sizeof(record),
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
