/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the vtable that only a device needs (queues, events, late errors), for
 * backends that have finished when a call returns. In and out: a vtable whose other
 * functions the caller fills.
 */
#include "backend/device.h"

/* Most arguments are unused by design. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Selecting a queue changes nothing: the calling thread is the only one. */
static void no_use(const struct backend *be, enum backend_queue q)
{
}

static enum backend_queue no_queue(const struct backend *be)
{
    return QUEUE_COMPUTE;
}

/* NULL is the event that was never recorded, so waiting for it is no wait. */
static struct backend_event *no_event_new(const struct backend *be)
{
    return NULL;
}

static void no_event_free(const struct backend *be, struct backend_event *e)
{
}

static void no_record(const struct backend *be, struct backend_event *e,
                      enum backend_queue q)
{
}

static void no_wait(const struct backend *be, enum backend_queue q,
                    struct backend_event *e)
{
}

/* Collectives of the host need no handle. */
static void *no_native(const struct backend *be, enum backend_queue q)
{
    return NULL;
}

/* check and sync: the caller has seen every failure already. */
static accel_status_t no_failure(const struct backend *be, accel_error_t *err)
{
    return ACCEL_OK;
}

static void no_step(const struct backend *be)
{
}

static void no_count(const struct backend *be, enum backend_memory kind, int64_t bytes)
{
}

static void no_region(const struct backend *be, const char *name)
{
}

static void no_mark(const struct backend *be, const struct backend_mark *mark)
{
}

void backend_no_queues(struct backend *be)
{
    be->use = no_use;
    be->queue = no_queue;
    be->event_new = no_event_new;
    be->event_free = no_event_free;
    be->record = no_record;
    be->wait = no_wait;
    be->native = be->lend = no_native;
    be->check = be->sync = be->recover = no_failure;
    be->step_begin = be->step_end = be->settle = be->region_end = no_step;
    be->region_begin = no_region;
    be->count = no_count;
    be->mark = no_mark;
}
