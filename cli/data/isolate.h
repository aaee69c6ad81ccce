/* SPDX-License-Identifier: Apache-2.0
 *
 * Work that may crash or never end, in a process of its own with limits.
 */
#ifndef ACCEL_ISOLATE_H
#define ACCEL_ISOLATE_H

#include <stddef.h>

#include "common/common.h"

struct isolate_limits {
    int cpu_seconds, wall_seconds;
    size_t more_memory; /* beyond what this process has mapped */
};

enum isolate_end { ISOLATE_DONE, ISOLATE_CRASHED, ISOLATE_TOO_LONG };

/* Says a line to the parent; what is not printable becomes '?'. `user`: of isolate_work. */
typedef void isolate_say(void *user, const char *line);
/* Runs in the child. */
typedef accel_status_t isolate_work(void *arg, isolate_say *say, void *user,
                                    accel_error_t *err);

/* Forks, runs work(arg, ...) in the child and hands each of its lines to say(user, line), at
 * most 1000. The caller has no other threads. ISOLATE_DONE: *status_out and `err` are the
 * work's. ISOLATE_CRASHED: it ended otherwise; TOO_LONG: it was ended by a limit of time.
 * The result is an error (ACCEL_EOS) when there is no child. */
accel_status_t isolate_run(isolate_work *work, void *arg,
                           const struct isolate_limits *limits, isolate_say *say,
                           void *user, enum isolate_end *end_out,
                           accel_status_t *status_out, accel_error_t *err);

#endif
