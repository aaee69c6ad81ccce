/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading ahead: see prefetch.h.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "preemption/preemption.h"
#include "loader/prefetch.h"
#include "handle/run.h"

/* A signal wakes no thread from its wait: each looks this often. */
#define LOOK_NS 50000000

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

static void *reader(void *arg)
{
    struct prefetch *p = arg;

    pthread_mutex_lock(&p->lock);
    while (!p->closing) {
        if (p->running && !p->ended && p->planned - p->released < p->slots)
            fill_next(p);
        else
            pthread_cond_wait(&p->freed, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Signals that stop a run are for the thread that owns it. A command that the program's
 * function starts inherits what is blocked: it outlives a stop that goes to all
 * processes, so that the step can be finished, and ends by SIGPIPE when nobody reads it
 * any more. */
static int start_reader(struct prefetch *p)
{
    sigset_t stops, before;
    int failed;

    sigemptyset(&stops);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGUSR1);
    sigaddset(&stops, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &stops, &before);
    failed = pthread_create(&p->thread[p->started], NULL, reader, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    p->started += failed == 0;
    return failed;
}

/* For step `filled`, or a moment. */
static void wait_filled(struct prefetch *p)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&p->filled, &p->lock, &until);
}

accel_status_t prefetch_open(struct prefetch *p, int slots, int threads,
                             const struct prefetch_ops *ops, void *user,
                             accel_error_t *err)
{
    pthread_condattr_t monotonic;

    *p = (struct prefetch){
        .ops = ops, .user = user, .slots = slots, .threads = threads
    };
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p->filled, &monotonic);
    pthread_condattr_destroy(&monotonic);
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
    p->ended = p->given_up = false;
    p->running = true;
    memset(p->ready, 0, (size_t)p->slots * sizeof(*p->ready));
    pthread_cond_broadcast(&p->freed);
    pthread_mutex_unlock(&p->lock);
}

/* The thread that owns the run reads where there is no other. False: its wait was over,
 * and what it got after its system calls began to fail may be less than it seems. */
static bool fill_here(struct prefetch *p)
{
    const int64_t begun = sample_wait_begin();

    fill_next(p);
    sample_wait_end();
    return !sample_wait_over(begun);
}

/* Nothing is planned past the end: the last slot that was says what came. Steps may
 * become ready in another order than they were planned. */
int prefetch_take(struct prefetch *p, int64_t step)
{
    const int64_t begun = clock_ns();
    int slot = -1;

    pthread_mutex_lock(&p->lock);
    while (!p->given_up) {
        bool over = p->ended && p->planned <= step;
        int64_t want = over ? p->planned - 1 : step;

        slot = slot_of(p, want);
        if (want < p->planned && p->ready[slot])
            break;
        p->given_up = p->started == 0 ? !fill_here(p) : sample_wait_over(begun);
        if (p->started > 0 && !p->given_up)
            wait_filled(p);
    }
    slot = p->given_up ? -1 : slot;
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

/* Nobody waits any longer for what is being read. */
static bool unwanted(const struct prefetch *p, int64_t begun)
{
    return p->given_up || sample_wait_over(begun) ||
           (p->closing && clock_ns() - begun >= SAMPLE_PATIENCE_NS);
}

/* Until no function of the program is at work. The lock is held. */
static void settle(struct prefetch *p)
{
    const int64_t begun = clock_ns();

    p->running = false;
    while (p->busy > 0) {
        for (int i = 0; i < p->started && unwanted(p, begun); i++)
            sample_wait_break(p->thread[i]);
        wait_filled(p);
    }
}

void prefetch_stop(struct prefetch *p)
{
    pthread_mutex_lock(&p->lock);
    settle(p);
    pthread_mutex_unlock(&p->lock);
}

void prefetch_close(struct prefetch *p)
{
    if (!p->ops)
        return;
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    settle(p);
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
