/* SPDX-License-Identifier: Apache-2.0
 *
 * The sizes of the CPU kernels' scratch, apart from the kernels: who only plans needs no
 * BLAS. Shapes in, bytes out.
 */
#include <stdlib.h>

#include "backend/cpu/cpu.h"

/* Whole-head matrices [time, head_width] and blocks of 64 rows. */
size_t attention_thread_floats(const struct attention *p, bool backward)
{
    size_t head = (size_t)p->time * (size_t)p->head_width;
    size_t scores = ATTN_QUERY_BLOCK * (size_t)p->time;
    size_t block = ATTN_QUERY_BLOCK * (size_t)p->head_width;

    /* forward: k, v; q and out of a block; scores
     * backward: k, v, dk, dv; q, out, dout, dq of a block; probabilities and their
     * gradient; one row sum per query */
    return backward ? 4 * head + 4 * block + 2 * scores + ATTN_QUERY_BLOCK
                    : 2 * head + 2 * block + scores;
}

size_t cpu_attention_scratch(const struct backend *be, const struct attention *p,
                             bool backward)
{
    return (size_t)be->threads * attention_thread_floats(p, backward) * sizeof(float);
}

static void sizes_close(struct backend *be)
{
    free(be);
}

accel_status_t backend_cpu_sizes_open(struct backend **out, int threads,
                                      accel_error_t *err)
{
    struct backend *be;

    if (threads < 1)
        return accel_fail(err, A0616, "use at least one thread (OMP_NUM_THREADS)",
                          "%d compute threads", threads);
    be = calloc(1, sizeof(*be));
    if (!be)
        return accel_fail_nomem(err, "the cpu backend's sizes", sizeof(*be));
    be->name = "cpu";
    be->isa = "none";
    be->threads = threads;
    be->close = sizes_close;
    be->attention_scratch = cpu_attention_scratch;
    *out = be;
    return ACCEL_OK;
}

void backend_close(struct backend *be)
{
    if (be)
        be->close(be);
}
