/* SPDX-License-Identifier: Apache-2.0
 *
 * A save that is written while training continues. In: what save.c has collected. The
 * tensors are copied to memory allocated at the start (background_pool.c); from a
 * device, the copy overlaps with its next step. A thread writes the copy. The commit
 * follows at the end of a later step, once all ranks have written. Out: the same
 * checkpoint that a blocking save would have made.
 *
 * The thread never communicates. The run's own thread makes all collective calls, in
 * the same order on every rank.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state/run_boxes.h"
#include "state/save/background.h"
#include "backend/device.h"
#include "common/thread.h"
#include "handle/run.h"

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

/* Copies boxes [from, to), whose places begin behind `at`. Returns their end. */
static size_t copy_boxes(accel_t *run, struct run_boxes *boxes, size_t from, size_t to,
                         size_t at)
{
    const struct backend *be = run->backend;

    for (size_t i = from; i < to; i++) {
        accel_ckpt_box_t *box = &boxes->all[i];
        const size_t bytes = run_box_bytes(box);
        char *place = run->background.pool + (at = pool_place(at, bytes));

        if (bytes > 0 && !run_box_on_device(run, boxes, i))
            copy_all(place, box->data, bytes);
        else if (bytes > 0 && i < boxes->shard_count)
            be->copy(be, place, box->data, bytes);
        else if (bytes > 0)
            be->to_host_bytes(be, place, box->data, bytes);
        box->data = place;
        at += bytes;
    }
    return at;
}

/* Shards of a device change in an update, which waits for these copies; buffers in the
 * next forward, and so they are copied at once. */
accel_status_t background_snapshot(accel_t *run, struct run_boxes *boxes,
                                   accel_error_t *err)
{
    accel_status_t st;
    size_t at;

    ACCEL_CHECK(st, background_copied(run, err));
    ACCEL_CHECK(st, pool_make(run, pool_bytes(boxes), err));
    shard_read_begin(run->shard);
    at = copy_boxes(run, boxes, 0, boxes->shard_count, 0);
    shard_read_end(run->shard);
    run->background.copying = run_home(run)->device;
    copy_boxes(run, boxes, boxes->shard_count, boxes->count, at);
    return run->backend->check(run->backend, err);
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

/* Without a thread the work is done at once: later than the user wished, and right. */
static void start_thread(struct background *b, void *(*work)(void *))
{
    b->running = thread_start(&b->thread, NULL, work, b) == 0;
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
    ACCEL_CHECK(st, accel_ckpt_save_begin(&b->saving, s, coll, err));
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
    if (!b->copying)
        start_thread(b, write_main);
}

/* Waits for the whole device: in a step, which has waited for it before its update, the
 * copies are all that may be left. */
accel_status_t background_copied(accel_t *run, accel_error_t *err)
{
    struct background *b = &run->background;
    accel_status_t st;

    if (!b->copying)
        return ACCEL_OK;
    st = run->backend->sync(run->backend, err);
    b->copying = false;
    if (st == ACCEL_OK && b->in_flight)
        start_thread(b, write_main);
    return st;
}

bool background_failed(const struct background *b)
{
    return b->in_flight && atomic_load(&b->failed);
}

bool background_writes(const struct background *b)
{
    return (b->in_flight && b->copying) || (b->running && !atomic_load(&b->written));
}

int64_t background_ns(const struct background *b)
{
    const int64_t ended = atomic_load(&b->ended);

    return b->begun ? (ended ? ended : clock_ns()) - b->begun : 0;
}

accel_status_t background_all_copied(accel_t *run, accel_error_t *err)
{
    return run->background.copying ? run_agree(run, background_copied(run, err), err)
                                   : ACCEL_OK;
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
    accel_status_t st = background_all_copied(run, err);

    end_retaining(b);
    ACCEL_TRY(st, accel_ckpt_save_begin(&b->saving, s, coll, err));
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
    accel_error_t kept;

    if (b->in_flight)
        background_give_up(b);
    (void)background_copied(run, &kept);
    end_retaining(b);
    free_texts(b);
    pool_free(run);
}
