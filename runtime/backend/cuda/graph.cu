/* SPDX-License-Identifier: Apache-2.0
 *
 * The step as one CUDA graph. Between step_begin and step_end all queues are recorded
 * instead of run. At the end the recording updates the previous step's graph, which is
 * then launched. Whatever needs the device earlier ends the recording: what was
 * recorded is launched, the rest of the step runs call by call. Both ends of a
 * recording are barriers between the queues, so events from beyond one need no wait
 * (cuda_state.part).
 */
#include "backend/cuda/cuda.h"
#include "common/env_names.h"

#include <stdlib.h>

/* After this many unfinished recordings in a row, no more steps are recorded. */
enum { PATIENCE = 3 };

/* Scratch of recorded steps. It is kept, so that the next recording has the same
 * addresses and the graph can be updated instead of rebuilt. */
struct kept {
    struct kept *next;
    void *data;
    size_t bytes;
    cudaStream_t queue; /* runs in order, which makes reuse safe */
    bool busy;
};

struct cuda_graph {
    bool off;
    bool
        /* one step has run call by call: code is loaded, algorithms are chosen */
        warm;
    int early; /* recordings in a row that ended before their step did */
    /* of fork and join; one per queue, recorded anew each time */
    cudaEvent_t edge[QUEUE_COUNT];
    cudaGraphExec_t exec;
    struct kept *kept;
};

/* Later work in queue `to` starts after all work in `from`. */
static bool order(struct cuda_state *s, int from, int to)
{
    return CHECK(s, cudaEventRecord(s->graph->edge[from], s->stream[from])) &&
           CHECK(s, cudaStreamWaitEvent(s->stream[to], s->graph->edge[from], 0));
}

/* The compute queue waits for all others; fork_queues is the reverse. While
 * recording, fork is also what draws the other queues into the capture, and join what
 * ends them. */
static void join_queues(struct cuda_state *s)
{
    for (int q = 0; q < QUEUE_COUNT; q++)
        if (q != QUEUE_COMPUTE)
            order(s, q, QUEUE_COMPUTE);
}

static void fork_queues(struct cuda_state *s)
{
    for (int q = 0; q < QUEUE_COUNT; q++)
        if (q != QUEUE_COMPUTE)
            order(s, QUEUE_COMPUTE, q);
}

/* Launches the recording. An existing graph of the same shape takes over its arguments;
 * any other is built anew. */
static void graph_launch(struct cuda_state *s, cudaGraph_t graph)
{
    struct cuda_graph *g = s->graph;
    cudaGraphExecUpdateResultInfo info;

    /* an update is far cheaper than building the graph anew */
    if (g->exec && cudaGraphExecUpdate(g->exec, graph, &info) != cudaSuccess) {
        cudaGetLastError(); /* an answer, not a failure */
        cudaGraphExecDestroy(g->exec);
        g->exec = NULL;
    }
    if (g->exec || CHECK(s, cudaGraphInstantiate(&g->exec, graph, 0)))
        CHECK(s, cudaGraphLaunch(g->exec, s->stream[QUEUE_COMPUTE]));
}

/* Ends the recording and launches it. Runs after a failure too, so that no queue is
 * left recording. */
static void end_recording(struct cuda_state *s)
{
    cudaGraph_t graph = NULL;

    /* first: whatever is called below must not end it again */
    s->end_recording = NULL;
    join_queues(s);
    s->part++;
    cuda_ok(s, cudaStreamEndCapture(s->stream[QUEUE_COMPUTE], &graph),
            "cudaStreamEndCapture");
    if (!graph)
        return;
    if (!s->failed)
        graph_launch(s, graph);
    cudaGraphDestroy(graph);
    fork_queues(s);
}

/* Somebody needed the device in mid-step. If that happens step after step, recording
 * only costs time. */
static void end_early(struct cuda_state *s)
{
    if (++s->graph->early == PATIENCE)
        s->graph->off = true;
    end_recording(s);
}

/* The first step is never recorded: it loads code and chooses algorithms, which a
 * recording cannot hold. */
void cuda_step_begin(const struct backend *be)
{
    struct cuda_state *s = cuda_state_of(be);
    struct cuda_graph *g = s->graph;

    /* a second begin without an end belongs to the recording of the first */
    if (!g || g->off || s->failed || s->end_recording)
        return;
    if (!g->warm) {
        g->warm = true;
        return;
    }
    join_queues(s);
    /* relaxed: other threads of the process may call CUDA meanwhile */
    if (!CHECK(s, cudaStreamBeginCapture(s->stream[QUEUE_COMPUTE],
                                         cudaStreamCaptureModeRelaxed)))
        return;
    s->part++;
    s->end_recording = end_early;
    fork_queues(s);
}

void cuda_step_end(const struct backend *be)
{
    const struct backend_mark rest = { "gradients and optimizer step", NULL, false };
    struct cuda_state *s = cuda_state_of(be);

    if (s->end_recording) {
        s->graph->early = 0;
        end_recording(s);
    }
    cuda_mark(be, &rest);
}

void cuda_graph_never(struct cuda_state *s)
{
    if (s->end_recording)
        s->end_recording(s);
    if (s->graph)
        s->graph->off = true;
}

/* cudaMalloc, as pool allocations would become part of the graph. */
static struct kept *new_scratch(struct cuda_state *s, size_t bytes)
{
    struct kept *k = (struct kept *)calloc(1, sizeof(*k));
    cudaError_t code;

    if (!k) {
        cuda_fails(s, "scratch of a recorded step", "out of host memory");
        return NULL;
    }
    code = cudaMalloc(&k->data, bytes);
    if (code == cudaErrorMemoryAllocation)
        cuda_lacks(s, MEMORY_WORK, bytes);
    /* cuda_lacks has kept an out-of-memory with its size; this keeps any other
     * failure */
    if (cuda_ok(s, code, "cudaMalloc"))
        return k;
    free(k);
    return NULL;
}

/* The smallest free piece of this queue that is large enough, else a new one. */
void *cuda_graph_scratch(struct cuda_state *s, size_t bytes)
{
    struct kept *best = NULL, *k;

    for (k = s->graph->kept; k; k = k->next)
        /* the same requests in the same order find the same pieces: same addresses in
         * every recording */
        if (!k->busy && k->queue == s->now && k->bytes >= bytes &&
            (!best || k->bytes < best->bytes))
            best = k;
    if (!best) {
        best = new_scratch(s, bytes);
        if (!best)
            return NULL;
        best->bytes = bytes;
        best->queue = s->now;
        best->next = s->graph->kept;
        s->graph->kept = best;
        s->held[MEMORY_WORK] += bytes;
    }
    best->busy = true;
    return best->data;
}

bool cuda_graph_scratch_free(struct cuda_state *s, void *p)
{
    struct kept *k = s->graph ? s->graph->kept : NULL;

    while (k && k->data != p)
        k = k->next;
    if (k)
        k->busy = false;
    return k != NULL;
}

bool cuda_graph_open(struct cuda_state *s)
{
    const char *wanted = getenv(ENV_CUDA_GRAPHS);
    struct cuda_graph *g = (struct cuda_graph *)calloc(1, sizeof(*g));

    if (!g)
        return cuda_fails(s, "open", "cannot allocate the state of the graphs");
    s->graph = g;
    g->off = wanted && !strcmp(wanted, "0");
    for (int q = 0; q < QUEUE_COUNT; q++)
        if (!CHECK(s, cudaEventCreateWithFlags(&g->edge[q], cudaEventDisableTiming)))
            return false;
    return true;
}

void cuda_graph_close(struct cuda_state *s)
{
    struct cuda_graph *g = s->graph;

    if (!g)
        return;
    if (s->end_recording)
        s->end_recording(s);
    if (g->exec)
        cudaGraphExecDestroy(g->exec);
    for (struct kept *k = g->kept, *next; k; k = next) {
        next = k->next;
        cudaFree(k->data);
        free(k);
    }
    for (int q = 0; q < QUEUE_COUNT; q++)
        if (g->edge[q])
            cudaEventDestroy(g->edge[q]);
    free(g);
    s->graph = NULL;
}
