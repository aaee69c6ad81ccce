/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches on their way to a device: see upload_stage.h.
 */
#include "loader/upload_stage.h"

accel_status_t stage_open(struct stage *s, const struct backend *be, size_t bytes,
                          accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    *s = (struct stage){ .be = be };
    for (int i = 0; i < 2 && st == ACCEL_OK; i++) {
        void *memory = NULL;

        s->copied[i] = be->event_new(be);
        s->taken[i] = be->event_new(be);
        st = be->alloc(be, MEMORY_WORK, bytes, &memory, err);
        s->memory[i] = memory;
    }
    return st;
}

void stage_begin(struct stage *s)
{
    s->turn = 1 - s->turn;
    s->be->wait(s->be, QUEUE_COPY, s->taken[s->turn]);
}

/* Only this copy is waited for, if any: its queue has nothing else. */
void stage_put(struct stage *s, size_t offset, const void *host, size_t bytes)
{
    enum backend_queue before = s->be->queue(s->be);

    s->be->use(s->be, QUEUE_COPY);
    s->be->from_host(s->be, s->memory[s->turn] + offset, host, bytes);
    s->be->use(s->be, before);
}

void stage_filled(struct stage *s)
{
    s->be->record(s->be, s->copied[s->turn], QUEUE_COPY);
    s->be->wait(s->be, QUEUE_COMPUTE, s->copied[s->turn]);
}

void stage_get(struct stage *s, void *dst, size_t offset, size_t bytes)
{
    s->be->copy(s->be, dst, s->memory[s->turn] + offset, bytes);
}

void stage_end(struct stage *s)
{
    s->be->record(s->be, s->taken[s->turn], QUEUE_COMPUTE);
}

void stage_close(struct stage *s)
{
    for (int i = 0; i < 2 && s->be; i++) {
        s->be->event_free(s->be, s->copied[i]);
        s->be->event_free(s->be, s->taken[i]);
        s->be->free(s->be, s->memory[i]);
    }
    *s = (struct stage){ 0 };
}
