/* SPDX-License-Identifier: Apache-2.0
 *
 * The record of a step, as people, log.jsonl and trackers get it. In: what a step
 * brought. Out: a progress line; a line of JSON, written in one piece, so that a killed
 * run leaves at most one torn line, which the next start removes; items. Never an error
 * once the log is open (lines.c).
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

    ACCEL_CHECK(st, lines_trim(path, step_stays, &steps_done, err));
    return lines_open(&o->file, path, &o->writer, err);
}

/* ---- what it looks like ---------------------------------------------------------- */

const char *json_number(double v, char *buf, size_t len)
{
    text_format(buf, len, isfinite(v) ? "%.17g" : "null", v);
    return buf;
}

static size_t step_line(const struct step_record *r, char *line, size_t len)
{
    char loss[32], norm[32], eval[32], more[96] = "", device[48] = "";

    if (r->device_peak_bytes >= 0)
        snprintf(device, sizeof(device), ",\"gpu_peak_bytes\":%lld",
                 (long long)r->device_peak_bytes);
    if (!isnan(r->eval_loss))
        snprintf(more, sizeof(more), ",\"eval_loss\":%s",
                 json_number(r->eval_loss, eval, sizeof(eval)));
    text_format(line, len,
                "{\"step\":%lld,\"loss\":%s,\"lr\":%.9g,\"step_ms\":%.3f,"
                "\"%s_per_s\":%.1f,\"grad_norm\":%s,\"mem_peak_bytes\":%lld%s%s}\n",
                (long long)r->info.step, json_number(r->info.loss, loss, sizeof(loss)),
                r->info.lr[0], r->info.total_ms, r->tokens ? "tokens" : "samples",
                r->info.rate, json_number(r->grad_norm, norm, sizeof(norm)),
                (long long)r->info.memory, device, more);
    return strlen(line);
}

int step_items(const struct step_record *r, accel_item_t items_out[STEP_ITEMS])
{
    const accel_item_t always[] = {
        { .name = "train/loss", .value = r->info.loss },
        { .name = "train/lr", .value = r->info.lr[0] },
        { .name = "train/grad_norm", .value = r->grad_norm },
        { .name = "train/step_ms", .value = r->info.total_ms },
        { .name = r->tokens ? "train/tokens_per_s" : "train/samples_per_s",
          .value = r->info.rate },
        { .name = "train/mem_peak_bytes", .value = (double)r->info.memory },
    };
    int n = ACCEL_ARRAY_SIZE(always);

    memcpy(items_out, always, sizeof(always));
    if (r->device_peak_bytes >= 0)
        items_out[n++] = (accel_item_t){ .name = "train/gpu_peak_bytes",
                                         .value = (double)r->device_peak_bytes };
    if (!isnan(r->eval_loss))
        items_out[n++] = (accel_item_t){ .name = "eval/loss", .value = r->eval_loss };
    return n;
}

/* The progress line, and a second one with the held-out loss after an evaluation. */
static void print_record(const struct observe *o, const struct step_record *r)
{
    char count[32], mem[32], size[32], device[48] = "";

    if (r->device_peak_bytes >= 0)
        snprintf(device, sizeof(device), " gpu %s",
                 format_bytes((double)r->device_peak_bytes, size, sizeof(size)));

    accel_logf(o->writer.log, ACCEL_LOG_INFO,
               "step %lld/%lld loss %.4f lr %.1e %.*f ms %s %s/s norm %.2f mem %s%s",
               (long long)r->info.step, (long long)o->total_steps, r->info.loss,
               r->info.lr[0], r->info.total_ms < 10 ? 1 : 0, r->info.total_ms,
               format_count(r->info.rate, count, sizeof(count)),
               r->tokens ? "tok" : "samples", r->grad_norm,
               format_bytes((double)r->info.memory, mem, sizeof(mem)), device);
    if (!isnan(r->eval_loss))
        accel_logf(o->writer.log, ACCEL_LOG_INFO, "step %lld/%lld held-out loss %.4f",
                   (long long)r->info.step, (long long)o->total_steps, r->eval_loss);
}

/* ---- the end of a step ----------------------------------------------------------- */

/* The first three steps show at once that the run works. */
bool observe_due(const struct observe *o, int64_t step)
{
    return step % o->every == 0 || step == o->total_steps || step <= 3;
}

/* Memory is sampled only when a line is due: the kernel walks all pages for it. */
void observe_step(struct observe *o, struct step_record *r)
{
    const bool due = observe_due(o, r->info.step) || !isnan(r->eval_loss);
    char line[512];
    int64_t peak;

    if (due) {
        observe_memory(&peak);
        if (peak > o->peak_bytes)
            o->peak_bytes = peak;
        if (o->device_peak)
            o->device_peak_bytes = o->device_peak(o->device_user);
    }
    r->info.memory = o->peak_bytes;
    r->device_peak_bytes = o->device_peak ? o->device_peak_bytes : -1;
    if (due)
        print_record(o, r);
    if (o->file.fd >= 0)
        lines_add(&o->file, line, step_line(r, line, sizeof(line)), "\"eval_loss\":");
}
