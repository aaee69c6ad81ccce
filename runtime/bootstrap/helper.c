/* SPDX-License-Identifier: Apache-2.0
 *
 * The helper thread (helper.h). Two threads share a struct helper_thread: the owner
 * frees it after joining the thread, or, when a call was abandoned, the thread does if
 * the call returns after all. Otherwise it is leaked with the call.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "bootstrap/helper.h"

struct helper_thread {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock: the call to be made or under way; nobody waits for it any more;
     * the thread is to end. */
    struct helper_call *call;
    bool abandoned, quit;
};

static void helper_free(struct helper_thread *h)
{
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

/* An abandoned call has nobody to take its results: the thread frees them. */
static void *helper_thread(void *arg)
{
    struct helper_thread *h = arg;
    struct helper_call *call = NULL;

    pthread_mutex_lock(&h->lock);
    while (!h->abandoned) {
        while (!h->call && !h->quit)
            pthread_cond_wait(&h->changed, &h->lock);
        if (!h->call)
            break;
        call = h->call;
        pthread_mutex_unlock(&h->lock);
        call->run(call);
        pthread_mutex_lock(&h->lock);
        h->call = NULL;
        pthread_cond_broadcast(&h->changed);
    }
    pthread_mutex_unlock(&h->lock);
    if (h->abandoned) {
        call->drop(call);
        helper_free(h);
    }
    return NULL;
}

/* The condition uses CLOCK_MONOTONIC, like deadlines: a clock that is set must not end
 * or prolong the wait. */
static int helper_start(struct helper_thread **h_out)
{
    struct helper_thread *h = calloc(1, sizeof(*h));
    pthread_condattr_t attr;
    int rc;

    if (!h)
        return ENOMEM;
    pthread_mutex_init(&h->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&h->changed, &attr);
    pthread_condattr_destroy(&attr);
    rc = pthread_create(&h->thread, NULL, helper_thread, h);
    if (rc != 0) {
        helper_free(h);
        return rc;
    }
    *h_out = h;
    return 0;
}

int helper_run(struct helper *h, struct helper_call *call, int64_t deadline_ns)
{
    const struct timespec until = { deadline_ns / 1000000000,
                                    deadline_ns % 1000000000 };
    int rc = h->thread ? 0 : helper_start(&h->thread);
    struct helper_thread *own = h->thread;
    pthread_t thread;

    if (rc != 0)
        return rc;
    thread = own->thread;
    pthread_mutex_lock(&own->lock);
    own->call = call;
    pthread_cond_broadcast(&own->changed);
    while (own->call && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&own->changed, &own->lock, &until);
    own->abandoned = own->call != NULL;
    rc = own->abandoned ? ETIMEDOUT : 0;
    pthread_mutex_unlock(&own->lock);
    if (rc != 0) { /* from here on the thread may free `own` */
        pthread_detach(thread);
        h->thread = NULL;
    }
    return rc;
}

void helper_stop(struct helper *h)
{
    struct helper_thread *own = h->thread;

    if (!own)
        return;
    pthread_mutex_lock(&own->lock);
    own->quit = true;
    pthread_cond_broadcast(&own->changed);
    pthread_mutex_unlock(&own->lock);
    pthread_join(own->thread, NULL);
    helper_free(own);
    h->thread = NULL;
}
