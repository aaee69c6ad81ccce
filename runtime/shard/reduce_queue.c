/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue on which gradients are reduced, concurrently with the compute queue.
 */
#include "shard/shard_impl.h"

void shard_begin_reduce(struct shard *s)
{
    s->be->settle(s->be);
    s->be->record(s->be, s->computed, QUEUE_COMPUTE);
    s->be->wait(s->be, QUEUE_REDUCE, s->computed);
    s->be->use(s->be, QUEUE_REDUCE);
}

/* The reduction overlaps with the backward of the next unit until that needs the
 * buffer. */
void shard_end_reduce(struct shard *s)
{
    s->be->record(s->be, s->reduced, QUEUE_REDUCE);
    s->be->use(s->be, QUEUE_COMPUTE);
    s->reducing = true;
}

void shard_wait_reduced(struct shard *s)
{
    if (s->reducing)
        s->be->wait(s->be, QUEUE_COMPUTE, s->reduced);
    s->reducing = false;
}
