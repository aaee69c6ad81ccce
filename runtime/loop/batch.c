/* SPDX-License-Identifier: Apache-2.0
 *
 * The program's own values as tensors of the micro-batch. In: host memory. Out:
 * tensors, with float values in the compute dtype.
 */
#include "tensor/tape.h"
#include "data/host_batch.h"
#include "loop/loop.h"
#include "handle/run.h"

void batch_begin(accel_t *run, int64_t first, int64_t count)
{
    phase_end(run, PHASE_OTHER);
    /* data of the micro-batch before is freed */
    graph_reset(&run->graph);
    run->graph.micro = run->loop.micro + 1;
    run->graph.micros = run->loop.group.rule.every;
    run->graph.recording = run->graph.training = !run->graph.evaluating;
    run->graph.draws =
        (struct draws){ .seed = run->job.seed, .first_sample = first, .batch = count };
}

/* Inputs are also made inside a forward, even in the one that
 * accel_prepare runs for its plan. */
static bool input_possible(accel_t *run, accel_error_t *err)
{
    if (run_given(run, "accel_input", err) != ACCEL_OK)
        return false;
    return run->graph.depth > 0 || run_ready(run, "accel_input", err) == ACCEL_OK;
}

/* Float values become the compute dtype; integers stay what they are. */
accel_tensor_t *accel_input(accel_t *run, accel_dtype_t dtype, int ndim,
                            const int64_t *dims, const void *host, accel_error_t *err)
{
    struct graph *g = run ? &run->graph : NULL;
    accel_tensor_t *t = NULL;

    if (!input_possible(run, err))
        return NULL;
    g->op = "input";
    if (host && dims)
        t = host_tensor(g, dtype, ndim, dims, host);
    else
        graph_fail(g, A0601, g->op, "pass sizes and values",
                   "the %s of the tensor are NULL", host ? "sizes" : "values");
    if (!t && err)
        *err = g->error;
    return t;
}
