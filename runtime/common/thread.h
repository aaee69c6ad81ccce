/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of the library in a program that knows nothing of them.
 */
#ifndef ACCEL_COMMON_THREAD_H
#define ACCEL_COMMON_THREAD_H

#include <pthread.h>

/* pthread_create for a thread that takes no signals: they go to the caller's threads,
 * where its handlers expect them. `attr` may be NULL. 0, or an error number. */
int thread_start(pthread_t *thread_out, const pthread_attr_t *attr,
                 void *(*work)(void *), void *arg);

#endif
