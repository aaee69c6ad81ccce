/* SPDX-License-Identifier: Apache-2.0
 *
 * observe/: one progress line per N steps, one JSONL record per step, and the memory of
 * this process. Written by rank 0; the other ranks only measure memory.
 */
#ifndef ACCEL_OBSERVE_OBSERVE_H
#define ACCEL_OBSERVE_OBSERVE_H

#include "common/common.h"
#include "observe/lines.h"

struct observe {
    struct lines file; /* JSONL */
    int64_t total_steps;
    int every;          /* steps between progress lines */
    int64_t peak_bytes; /* largest memory sample of this process */
    /* The device's, of `device_user`; NULL: no device. */
    int64_t (*device_peak)(const void *device_user);
    const void *device_user;
    int64_t device_peak_bytes;
    /* Asked when the log was replaced by somebody: is the new one still this run's? NULL: yes. */
    bool (*ours)(void *ours_user);
    void *ours_user;
    const struct accel_log *log;
};

struct observe_step {
    int64_t step; /* 1-based number of the finished step */
    double loss, lr, grad_norm;
    double step_ms;
    int64_t items;    /* of all ranks in this step */
    bool tokens;      /* items are tokens, not samples */
    double eval_loss; /* NaN: not evaluated */
};

/* Opens (appends to) `path` for rank 0, or just initialises (path NULL). Records of steps
 * after `steps_done` and a torn last line are removed first, so that after a resume the
 * file holds each step once; the old file stays whole until the new one is in place. */
accel_status_t observe_open(struct observe *o, const char *path, int64_t steps_done,
                            accel_error_t *err);
/* Is a line due for that step, whatever it brings? */
bool observe_due(const struct observe *o, int64_t step);
/* Writes the record; prints the line when due. A file that cannot be written ends no run:
 * see lines_add. */
void observe_step(struct observe *o, const struct observe_step *s);
/* The records that can be written are on disk when this returns (called before a checkpoint
 * commits). */
void observe_sync(struct observe *o);
/* Says how many records are lost, if some are. */
void observe_close(struct observe *o);

/* Proportional set size of this process in bytes (pages shared with other ranks count in
 * parts), and in *peak_out (NULL is fine) its largest value so far; 0 when the kernel does
 * not tell. */
int64_t observe_memory(int64_t *peak_out);

#endif
