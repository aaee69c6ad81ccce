/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread for calls that may never return. In: calls, one at a time, each with a
 * deadline. Out: the call has returned, or it was abandoned. One thread makes all calls
 * of its owner; a call that does not return takes the thread with it, and the next call
 * gets a new one. Never blocks beyond the deadline.
 */
#ifndef ACCEL_BOOTSTRAP_HELPER_H
#define ACCEL_BOOTSTRAP_HELPER_H

#include "common/common.h"

/* Zeroed: no thread yet. */
struct helper {
    struct helper_thread *thread;
};

/* Embedded in what a call works with. Whoever is the last to need that frees it: the
 * caller of helper_run, or `drop` on the helper's thread if the call was abandoned. */
struct helper_call {
    void (*run)(struct helper_call *call);
    void (*drop)(struct helper_call *call);
};

/* Makes the call on h's thread, which is started for the first one. Returns 0 once it
 * has returned; ETIMEDOUT if it has not by deadline_ns: the call is then no longer the
 * caller's, and h has no thread. Another errno: no thread could be started, and the
 * call was not made. */
int helper_run(struct helper *h, struct helper_call *call, int64_t deadline_ns);
/* Ends the thread, if there is one. */
void helper_stop(struct helper *h);

#endif
