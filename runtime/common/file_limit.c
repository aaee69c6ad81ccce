/* SPDX-License-Identifier: Apache-2.0
 *
 * Beyond the file size limit (ulimit -f) a write sends SIGXFSZ, which ends the process.
 * Held back in the calling thread, the write fails with EFBIG and its caller says so.
 * In and out: the thread's signal mask, nothing else.
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
