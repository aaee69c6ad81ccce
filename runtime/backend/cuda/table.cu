/* SPDX-License-Identifier: Apache-2.0
 *
 * The vtable of the CUDA backend: one line for every function, by the parts they belong to,
 * and what the parts open and close.
 */
#include "backend/cuda/cuda.h"

static enum backend_queue queue_in_use(const struct backend *be)
{
    const struct cuda_state *s = cuda_state_of(be);
    int q = 0;

    while (q < QUEUE_COUNT - 1 && s->stream[q] != s->now)
        q++;
    return (enum backend_queue)q;
}

static void put_core(struct backend *be)
{
    be->close = cuda_close;
    be->use = cuda_use;
    be->queue = queue_in_use;
    be->event_new = cuda_event_new;
    be->event_free = cuda_event_free;
    be->record = cuda_record;
    be->wait = cuda_wait;
    be->native = cuda_native;
    be->check = cuda_check;
    be->sync = cuda_sync;
    be->alloc = cuda_alloc;
    be->free = cuda_free;
    be->reserve = cuda_reserve;
    be->commit = cuda_commit;
    be->release = cuda_release;
    be->host_alloc = cuda_host_alloc;
    be->host_free = cuda_host_free;
    be->copy = cuda_copy;
    be->to_host = cuda_to_host;
    be->to_host_bytes = cuda_to_host_bytes;
    be->from_host = cuda_from_host;
    be->zero = cuda_zero;
}

static void put_graph(struct backend *be)
{
    be->step_begin = cuda_step_begin;
    be->step_end = cuda_step_end;
}

static void put_kernels(struct backend *be)
{
    (void)be;
}

static void put_gemm(struct backend *be)
{
    be->gemm = cuda_gemm;
    be->conv_scratch = cuda_conv_scratch;
    be->conv = cuda_conv;
    be->conv_grad = cuda_conv_grad;
    be->maxpool = cuda_maxpool;
    be->maxpool_scratch = cuda_maxpool_scratch;
    be->maxpool_grad = cuda_maxpool_grad;
}

static void put_attention(struct backend *be)
{
    (void)be;
}

void cuda_fill_table(struct backend *be)
{
    put_core(be);
    put_graph(be);
    put_kernels(be);
    put_gemm(be);
    put_attention(be);
}

bool cuda_open_parts(struct cuda_state *s)
{
    return !s->failed && cuda_gemm_open(s) && cuda_graph_open(s);
}

void cuda_close_parts(struct cuda_state *s)
{
    cuda_graph_close(s);
    cuda_gemm_close(s);
}
