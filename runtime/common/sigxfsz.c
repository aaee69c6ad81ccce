/* SPDX-License-Identifier: Apache-2.0
 *
 * A write beyond the file size limit (ulimit -f) raises SIGXFSZ, which ends the
 * process. While the signal is blocked in the calling thread, the write fails with
 * EFBIG and the caller can say so. In and out: the thread's signal mask, nothing else.
 */
#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "common/common.h"

void file_limit_hold(sigset_t *before_out)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &set, before_out);
}

/* A signal that arrived meanwhile is pending and would strike when it is unblocked, so
 * it is taken first; unless the caller had it blocked, too: then it is the caller's. */
void file_limit_release(const sigset_t *before)
{
    const struct timespec at_once = { 0 };
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    if (!sigismember(before, SIGXFSZ))
        while (TEMP_FAILURE_RETRY(sigtimedwait(&set, NULL, &at_once)) == SIGXFSZ)
            ;
    pthread_sigmask(SIG_SETMASK, before, NULL);
}
