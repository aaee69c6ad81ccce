/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills the CUDA backend's struct: what device.h lists by hand, kernels and sizes from
 * their rows. And what the parts open and close.
 */
#include "backend/cuda/cuda.h"

static void put_core(struct backend *be)
{
    be->close = cuda_close;
    be->use = cuda_use;
    be->queue = cuda_queue;
    be->event_new = cuda_event_new;
    be->event_free = cuda_event_free;
    be->record = cuda_record;
    be->wait = cuda_wait;
    be->native = cuda_native;
    be->lend = cuda_lend;
    be->check = cuda_check;
    be->sync = cuda_sync;
    be->recover = cuda_recover;
    be->settle = cuda_settle;
    be->alloc = cuda_alloc;
    be->free = cuda_free;
    be->count = cuda_count;
    be->reserve_workspace = cuda_reserve_workspace;
    be->usage = cuda_usage;
    be->reserve = cuda_reserve;
    be->commit = cuda_commit;
    be->uncommit = cuda_uncommit;
    be->release = cuda_release;
    be->host_alloc = cuda_host_alloc;
    be->host_free = cuda_host_free;
    be->copy = cuda_copy;
    be->to_host = cuda_to_host;
    be->to_host_bytes = cuda_to_host_bytes;
    be->from_host = cuda_from_host;
}

static void put_graph(struct backend *be)
{
    be->step_begin = cuda_step_begin;
    be->step_end = cuda_step_end;
    be->mark = cuda_mark;
    be->region_begin = cuda_region_begin;
    be->region_end = cuda_region_end;
}

/* A kernel without cuda_NAME does not compile: the table has no holes. */
void cuda_fill_table(struct backend *be)
{
    put_core(be);
    put_graph(be);
#define KERNEL(type, name, ...) be->name = cuda_##name;
#include "backend/kernels.h"
#define SCRATCH(name, ...) be->name = cuda_##name;
#include "backend/sizes.h"
}

/* The graph comes last: opening the others must not be recorded. Close goes the other
 * way. Each part opens only if those before it did; closing takes parts that never
 * opened. */
bool cuda_open_parts(struct cuda_state *s)
{
    return !s->failed && cuda_marks_open(s) && cuda_gemm_open(s) &&
           cuda_attention_open(s) && cuda_graph_open(s);
}

void cuda_close_parts(struct cuda_state *s)
{
    cuda_graph_close(s);
    cuda_attention_close(s);
    cuda_gemm_close(s);
    cuda_marks_close(s);
}
