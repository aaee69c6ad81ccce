/* SPDX-License-Identifier: Apache-2.0
 *
 * observe/: the record of a step, one progress line every N steps, one line per step in
 * log.jsonl, and the memory of this process. Written by rank 0; the other ranks only
 * measure memory.
 */
#ifndef ACCEL_OBSERVE_OBSERVE_H
#define ACCEL_OBSERVE_OBSERVE_H

#include "common/common.h"
#include "observe/lines.h"

/* What is written about a run. The caller fills in all but `file`, peak_bytes and
 * device_peak_bytes before observe_open. */
struct observe {
    /* the JSONL log; not open on other ranks */
    struct lines file;
    int64_t total_steps;
    /* steps between progress lines */
    int every;
    /* largest memory sample of this process */
    int64_t peak_bytes;
    /* Peak bytes of the device, asked with `device_user`; NULL: no device. */
    int64_t (*device_peak)(const void *device_user);
    const void *device_user;
    int64_t device_peak_bytes;
    /* of the JSONL log; its `log` also gets the progress line */
    struct lines_writer writer;
};

/* The record of a step, for the progress line, log.jsonl and the trackers. */
struct step_record {
    /* What accel_last_step gives. `memory` is set by observe_step; the learning rate is
     * that of the first optimizer. */
    accel_step_info_t info;
    /* of all optimizers together */
    double grad_norm;
    /* info.rate counts tokens, not samples */
    bool tokens;
    /* NaN: not evaluated */
    double eval_loss;
    /* set by observe_step; -1: no device */
    int64_t device_peak_bytes;
};

/* Opens `path` to append to it. Records after `steps_done` and a torn last line are
 * removed first, so that after a resume the file holds no step twice, but for tries
 * that were skipped. The old file stays whole until the new one is in place. */
accel_status_t observe_open(struct observe *o, const char *path, int64_t steps_done,
                            accel_error_t *err);
/* Is a progress line due for that step? After an evaluation observe_step prints
 * one anyway. */
bool observe_due(const struct observe *o, int64_t step);
/* Completes the record, prints the line when due and writes the log's. A file that
 * cannot be written does not end the run: see lines_add. */
void observe_step(struct observe *o, struct step_record *r);
#define STEP_ITEMS 8
/* The record as trackers get it. Returns the number of items; names are static. */
int step_items(const struct step_record *r, accel_item_t items_out[STEP_ITEMS]);
/* `v` with all its digits; JSON has neither NaN nor infinity: null stands for them.
 * Returns buf. */
const char *json_number(double v, char *buf, size_t len);

/* Proportional set size of this process in bytes: pages shared with other ranks count
 * in parts. Its largest value so far goes to *peak_out (NULL is fine). 0 when the
 * kernel does not tell. */
int64_t observe_memory(int64_t *peak_out);

/* ---- memory_left.c --------------------------------------------------------------- */

/* Bytes that may still be had. `of`: the limit that leaves the least, in words; NULL:
 * none is known, and bytes is INT64_MAX. */
struct memory_left {
    int64_t bytes;
    const char *of;
};
/* Of the node or of a control group around this process: other processes use it, too.
 * `root` comes before /proc and /sys; "" for the system's own. A limit that cannot be
 * read does not count. Not collective, any thread. */
struct memory_left observe_node_left(const char *root);
/* Of this process's own limits. The same rules. */
struct memory_left observe_process_left(const char *root);

#endif
