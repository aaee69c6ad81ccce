/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading ahead: see prefetch.h.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "loader/prefetch.h"

static int slot_of(const struct prefetch *p, int64_t step)
{
    return (int)(step % p->slots);
}

/* Plans the next step and fills its slot. The lock is held, but not while it fills. */
static void fill_next(struct prefetch *p)
{
    int64_t step = p->planned;
    int slot = slot_of(p, step);
    bool more = p->ops->plan(p->user, slot, step);

    p->planned++;
    if (!more)
        p->ended = true;
    if (more) {
        p->busy++;
        pthread_mutex_unlock(&p->lock);
        more = p->ops->fill(p->user, slot, step);
        pthread_mutex_lock(&p->lock);
        p->busy--;
        p->ended = p->ended || !more;
    }
    p->ready[slot] = true;
    pthread_cond_broadcast(&p->filled);
}

static bool may_plan(const struct prefetch *p)
{
    return p->running && !p->ended && p->planned - p->released < p->slots;
}

static void *reader(void *arg)
{
    struct prefetch *p = arg;

    pthread_mutex_lock(&p->lock);
    while (!p->closing) {
        if (may_plan(p))
            fill_next(p);
        else
            pthread_cond_wait(&p->freed, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Signals are for the thread that owns the run. */
static int start_reader(struct prefetch *p)
{
    sigset_t all, before;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&p->thread[p->started], NULL, reader, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    p->started += failed == 0;
    return failed;
}

accel_status_t prefetch_open(struct prefetch *p, int slots, int threads,
                             const struct prefetch_ops *ops, void *user,
                             accel_error_t *err)
{
    *p = (struct prefetch){
        .ops = ops, .user = user, .slots = slots, .threads = threads
    };
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->filled, NULL);
    pthread_cond_init(&p->freed, NULL);
    p->ready = calloc((size_t)slots, sizeof(*p->ready));
    p->thread = calloc((size_t)threads + 1, sizeof(*p->thread));
    if (!p->ready || !p->thread)
        return accel_fail_nomem(err, "slots of a loader", (size_t)slots);
    for (int i = 0; i < threads; i++)
        if (start_reader(p) != 0)
            return accel_fail(err, A0002, "use fewer threads",
                              "cannot start thread %d of a loader", i + 1);
    return ACCEL_OK;
}

void prefetch_begin(struct prefetch *p)
{
    pthread_mutex_lock(&p->lock);
    p->planned = p->released = 0;
    p->ended = false;
    p->running = true;
    memset(p->ready, 0, (size_t)p->slots * sizeof(*p->ready));
    pthread_cond_broadcast(&p->freed);
    pthread_mutex_unlock(&p->lock);
}

/* Nothing is planned behind the end: the last slot that was says what came. Steps may
 * become ready in another order than they were planned. */
int prefetch_take(struct prefetch *p, int64_t step)
{
    int slot;

    pthread_mutex_lock(&p->lock);
    for (;;) {
        bool over = p->ended && p->planned <= step;
        int64_t want = over ? p->planned - 1 : step;

        slot = slot_of(p, want);
        if (want < p->planned && p->ready[slot])
            break;
        if (p->started == 0)
            fill_next(p);
        else
            pthread_cond_wait(&p->filled, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return slot;
}

void prefetch_release(struct prefetch *p, int64_t step)
{
    pthread_mutex_lock(&p->lock);
    for (; p->released < step; p->released++)
        p->ready[slot_of(p, p->released)] = false;
    pthread_cond_broadcast(&p->freed);
    pthread_mutex_unlock(&p->lock);
}

void prefetch_stop(struct prefetch *p)
{
    pthread_mutex_lock(&p->lock);
    p->running = false;
    while (p->busy > 0)
        pthread_cond_wait(&p->filled, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

void prefetch_close(struct prefetch *p)
{
    if (!p->ops)
        return;
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_cond_broadcast(&p->freed);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->started; i++)
        pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->filled);
    pthread_cond_destroy(&p->freed);
    pthread_mutex_destroy(&p->lock);
    free(p->ready);
    free(p->thread);
    *p = (struct prefetch){ 0 };
}
