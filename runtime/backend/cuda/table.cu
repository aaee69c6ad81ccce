/* SPDX-License-Identifier: Apache-2.0
 *
 * The vtable of the CUDA backend, one line per function, grouped by part; and what the
 * parts open and close.
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
    be->check = cuda_check;
    be->sync = cuda_sync;
    be->alloc = cuda_alloc;
    be->free = cuda_free;
    be->count = cuda_count;
    be->reserve_workspace = cuda_reserve_workspace;
    be->usage = cuda_usage;
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
    be->mark = cuda_mark;
}

static void put_elements(struct backend *be)
{
    be->fill = cuda_fill;
    be->narrow = cuda_narrow;
    be->narrow_parts = cuda_narrow_parts;
    be->widen = cuda_widen;
    be->scale = cuda_scale;
    be->sumsq = cuda_sumsq;
    be->sum_parts = cuda_sum_parts;
    be->adamw = cuda_adamw;
    be->sgd = cuda_sgd;
    be->lion = cuda_lion;
    be->add = cuda_add;
    be->column_sum = cuda_column_sum;
    be->act = cuda_act;
    be->act_grad = cuda_act_grad;
    be->gated = cuda_gated;
    be->gated_grad = cuda_gated_grad;
    be->dropout = cuda_dropout;
    be->copy_rows = cuda_copy_rows;
    be->transpose = cuda_transpose;
    be->cast = cuda_cast;
    be->softmax = cuda_softmax;
}

static void put_rows(struct backend *be)
{
    be->softmax_grad = cuda_softmax_grad;
    be->reduce = cuda_reduce;
    be->reduce_grad = cuda_reduce_grad;
    be->mse = cuda_mse;
    be->mse_grad = cuda_mse_grad;
    be->embed = cuda_embed;
    be->embed_grad = cuda_embed_grad;
    be->norm = cuda_norm;
    be->norm_grad = cuda_norm_grad;
    be->norm_param_grad = cuda_norm_param_grad;
    be->rope = cuda_rope;
    be->copy_heads = cuda_copy_heads;
    be->xent = cuda_xent;
    be->xent_mean = cuda_xent_mean;
    be->xent_grad = cuda_xent_grad;
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
    be->attention_scratch = cuda_attention_scratch;
    be->attention = cuda_attention;
    be->attention_grad = cuda_attention_grad;
}

void cuda_fill_table(struct backend *be)
{
    put_core(be);
    put_graph(be);
    put_elements(be);
    put_rows(be);
    put_gemm(be);
    put_attention(be);
}

/* The graph comes last: opening the others must not be recorded. Close goes the other
 * way. */
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
