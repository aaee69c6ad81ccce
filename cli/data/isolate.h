/* SPDX-License-Identifier: Apache-2.0
 *
 * Work that may crash or never end, in a process of its own with limits.
 */
#ifndef ACCEL_ISOLATE_H
#define ACCEL_ISOLATE_H

#include <stddef.h>

#include "common/common.h"

struct isolate_limits {
    /* Processor time, and time by the clock. */
    int cpu_seconds, wall_seconds;
    /* Bytes of address space beyond what this process has mapped. */
    size_t more_memory;
};

/* DONE: the work returned. CRASHED: it ended in any other way. TOO_LONG: a limit of
 * time, or of lines, ended it. */
enum isolate_end { ISOLATE_DONE, ISOLATE_CRASHED, ISOLATE_TOO_LONG };

/* Sends a line to the parent, and what kind of finding it is; what is not printable
 * becomes '?'. `user` is isolate_work's. */
typedef void isolate_say(void *user, accel_status_t what, const char *line);
/* The work, run in the child. It inherits the parent's memory as a
 * copy and its files. */
typedef accel_status_t isolate_work(void *arg, isolate_say *say, void *user,
                                    accel_error_t *err);

/* Forks, runs work(arg, ...) in the child and hands each of its lines to say(user,
 * what, line), at most 1000. The caller must have no other threads. With ISOLATE_DONE
 * *status_out and `err` are the work's own. The result is an error (ACCEL_ESYSTEM) only
 * when there is no child. */
accel_status_t isolate_run(isolate_work *work, void *arg,
                           const struct isolate_limits *limits, isolate_say *say,
                           void *user, enum isolate_end *end_out,
                           accel_status_t *status_out, accel_error_t *err);

#endif
