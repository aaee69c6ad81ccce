/* SPDX-License-Identifier: Apache-2.0
 *
 * A save that is written while training goes on. In: what save.c has collected. A copy
 * of the tensors goes to memory that is there since the start (background_pool.c); a
 * thread writes it; the commit follows at the end of a later step, once all ranks have
 * written. Out: the same checkpoint that a save at once would have made.
 *
 * The thread never communicates. Everything collective is called by the run's own
 * thread, in the same order on every rank.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/device.h"
#include "run/run.h"

/* what a thread copies at a time */
#define PIECE ((size_t)4 << 20)

/* ---- the copy -------------------------------------------------------------------- */

/* One thread does not use all of a node's memory bandwidth. */
static void copy_all(char *dst, const char *src, size_t bytes)
{
    const int64_t pieces = (int64_t)((bytes + PIECE - 1) / PIECE);

#pragma omp parallel for schedule(static) if (pieces > 1)
    for (int64_t i = 0; i < pieces; i++) {
        const size_t at = (size_t)i * PIECE;

        memcpy(dst + at, src + at, bytes - at < PIECE ? bytes - at : PIECE);
    }
}

accel_status_t background_snapshot(accel_t *run, struct run_boxes *boxes,
                                   accel_error_t *err)
{
    const struct backend *be = run->backend;
    accel_status_t st = pool_make(run, pool_bytes(boxes), err);
    size_t at = 0;

    for (size_t i = 0; i < boxes->count && st == ACCEL_OK; i++) {
        accel_ckpt_box_t *box = &boxes->all[i];
        const size_t bytes = run_box_bytes(box);
        char *to = run->background.pool + (at = pool_place(at, bytes));

        if (bytes > 0 && run_box_on_device(run, boxes, i))
            be->to_host_bytes(be, to, box->data, bytes);
        else if (bytes > 0)
            copy_all(to, box->data, bytes);
        box->data = to;
        at += bytes;
    }
    return st == ACCEL_OK ? be->check(be, err) : st;
}

/* ---- the thread ------------------------------------------------------------------ */

/* Processor and disk belong to the training. A wish: where it is refused the save is no
 * less right. Threads that this one starts inherit both. */
static void step_back(void)
{
    const int self = 1, best_effort_lowest = 2 << 13 | 7;

    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19);
    (void)syscall(SYS_ioprio_set, self, 0, best_effort_lowest);
}

static void *write_main(void *user)
{
    struct background *b = user;

    step_back();
    if (accel_ckpt_save_write(b->saving, NULL))
        atomic_store(&b->failed, true);
    atomic_store(&b->ended, clock_ns());
    atomic_store(&b->written, true);
    return NULL;
}

static void *retain_main(void *user)
{
    struct background *b = user;

    step_back();
    accel_ckpt_save_retain(b->saving);
    return NULL;
}

static void *work_main(void *user)
{
    struct background *b = user;

    step_back();
    b->work(b->run);
    return NULL;
}

/* Without a thread the work is done at once: later than the user wished, and right.
 * Signals go to the program's threads, where its handlers expect them. */
static void start_thread(struct background *b, void *(*work)(void *))
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    b->running = pthread_create(&b->thread, NULL, work, b) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!b->running)
        work(b);
}

void background_hurry(struct background *b)
{
    if (b->saving)
        accel_ckpt_save_hurry(b->saving);
}

static void end_thread(struct background *b)
{
    background_hurry(b);
    if (b->running)
        pthread_join(b->thread, NULL);
    b->running = false;
}

static void free_texts(struct background *b)
{
    free(b->state);
    free(b->objects);
    b->state = b->objects = NULL;
}

/* Older checkpoints are deleted, or another work done: the save is over. */
static void end_retaining(struct background *b)
{
    end_thread(b);
    accel_ckpt_save_free(b->saving);
    b->saving = NULL;
}

/* ---- a save ---------------------------------------------------------------------- */

accel_status_t background_begin(accel_t *run, const accel_ckpt_save_t *s,
                                const accel_ckpt_coll_t *coll, accel_error_t *err)
{
    struct background *b = &run->background;
    accel_status_t st;

    end_retaining(b);
    st = accel_ckpt_save_begin(&b->saving, s, coll, err);
    if (st != ACCEL_OK)
        return st;
    b->skipped = 0;
    background_write(b, s->step);
    return ACCEL_OK;
}

void background_write(struct background *b, int64_t step)
{
    b->in_flight = true;
    b->step = step;
    b->begun = clock_ns();
    atomic_store(&b->ended, 0);
    atomic_store(&b->failed, false);
    atomic_store(&b->written, false);
    start_thread(b, write_main);
}

bool background_failed(const struct background *b)
{
    return b->in_flight && atomic_load(&b->failed);
}

bool background_writes(const struct background *b)
{
    return b->running && !atomic_load(&b->written);
}

int64_t background_ns(const struct background *b)
{
    const int64_t ended = atomic_load(&b->ended);

    return b->begun ? (ended ? ended : clock_ns()) - b->begun : 0;
}

/* The commit of what this rank has written, or failed to. */
static accel_status_t publish(struct background *b, const accel_ckpt_coll_t *coll,
                              accel_ckpt_stats_t *stats_out, accel_error_t *err)
{
    const accel_status_t st = accel_ckpt_save_publish(b->saving, coll, stats_out, err);

    atomic_store(&b->written, true);
    /* the other ranks delete nothing */
    if (st == ACCEL_OK && coll->rank == 0)
        start_thread(b, retain_main);
    else
        end_retaining(b);
    return st;
}

accel_status_t background_publish(struct background *b, const accel_ckpt_coll_t *coll,
                                  accel_ckpt_stats_t *stats_out, accel_error_t *err)
{
    accel_status_t st;

    end_thread(b);
    st = publish(b, coll, stats_out, err);
    b->in_flight = false;
    free_texts(b);
    return st;
}

accel_status_t background_save_now(accel_t *run, const accel_ckpt_save_t *s,
                                   const accel_ckpt_coll_t *coll,
                                   accel_ckpt_stats_t *stats_out, accel_error_t *err)
{
    struct background *b = &run->background;
    accel_status_t st;

    end_retaining(b);
    st = accel_ckpt_save_begin(&b->saving, s, coll, err);
    if (st != ACCEL_OK)
        return st;
    (void)accel_ckpt_save_write(b->saving, NULL);
    return publish(b, coll, stats_out, err);
}

void background_do(struct background *b, accel_t *run, void (*work)(accel_t *run))
{
    end_retaining(b);
    b->run = run;
    b->work = work;
    atomic_store(&b->written, true);
    start_thread(b, work_main);
}

void background_settle(struct background *b)
{
    if (!b->in_flight)
        end_retaining(b);
}

/* Freed at the end, when its thread has left: until then it may still write. */
void background_give_up(struct background *b)
{
    accel_ckpt_save_cancel(b->saving);
    b->in_flight = false;
}

void background_close(accel_t *run)
{
    struct background *b = &run->background;

    if (b->in_flight)
        background_give_up(b);
    end_retaining(b);
    free_texts(b);
    pool_free(run);
}
