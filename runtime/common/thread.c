/* SPDX-License-Identifier: Apache-2.0 */
#include "common/thread.h"

#include <signal.h>
#include <stddef.h>

/* A thread inherits what its maker blocks. */
int thread_start(pthread_t *thread_out, const pthread_attr_t *attr,
                 void *(*work)(void *), void *arg)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(thread_out, attr, work, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
