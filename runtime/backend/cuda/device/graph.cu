/* SPDX-License-Identifier: Apache-2.0
 *
 * The step as CUDA graphs. Between step_begin and step_end kernels are recorded instead
 * of run, in segments: each is launched as soon as it is recorded. A recording updates
 * the graph that the previous step launched in its place, which is launched again.
 * Alone, a device records all queues, and a segment's ends are barriers between them
 * (cuda_state.part). Where queues are lent to collectives, only the compute queue is
 * recorded: a segment also ends where another queue gets work or is waited for, so the
 * device is given all work in the order of the program. Whatever needs the device
 * earlier ends the recording, too: what was recorded is launched, the rest of the step
 * runs call by call.
 */
#include "backend/cuda/cuda.h"
#include "common/env_names.h"

#include <stdlib.h>

enum {
    /* After this many steps in a row that were interrupted, no more are recorded; after
     * as many small recordings in a row, a segment runs call by call. */
    PATIENCE = 3,
    /* Fewer nodes than this make a small one: beginning, updating and launching it
     * costs as much as launching its kernels. */
    WORTH = 8,
    /* Ops of a step's first segment, hardly more nodes: the device has work while the
     * rest is recorded. A later one is as long as all before it, up to MOST_OPS. */
    FIRST_OPS = 32,
    MOST_OPS = 512,
    /* Graphs that a segment keeps. The micro-batches of a step may differ, as where
     * only the first one gathers. */
    GRAPHS = 2
};

/* Scratch of recorded steps. It is kept, so that the next recording has the same
 * addresses and the graph can be updated instead of rebuilt. */
struct kept {
    struct kept *next;
    void *data;
    size_t bytes;
    cudaStream_t queue; /* runs in order, which makes reuse safe */
    bool busy;
};

/* A graph that can be launched; NULL: not built yet. */
struct built {
    cudaGraphExec_t exec;
    size_t nodes;
    uint64_t launched; /* number of its last launch */
};

/* What a step puts on the device at once, by its place in the step. */
struct segment {
    struct built built[GRAPHS];
    int small; /* recordings in a row that were */
};

struct cuda_graph {
    bool off;
    /* one step has run call by call: code is loaded, algorithms are chosen */
    bool warm;
    bool shared;  /* queues are lent to collectives: segments of compute only */
    bool step;    /* in a step that is recorded, or on from its next segment */
    bool plain;   /* the segment at hand is a small one and is not recorded */
    int first_op; /* at the beginning of that segment */
    int step_op;  /* at that of the step */
    int early;    /* steps in a row that were interrupted */
    /* of fork and join; one per queue, recorded again each time */
    cudaEvent_t edge[QUEUE_COUNT];
    struct segment *segment;
    int space, at; /* of segment[]; the one at hand */
    uint64_t launches;
    struct kept *kept;
};

/* Later work in queue `to` starts after all work in `from`. */
static bool order(struct cuda_state *s, int from, int to)
{
    return CHECK(s, cudaEventRecord(s->graph->edge[from], s->stream[from])) &&
           CHECK(s, cudaStreamWaitEvent(s->stream[to], s->graph->edge[from], 0));
}

/* The copies of a checkpoint last longer than a step, which must not wait for them. */
bool cuda_graph_holds(const struct cuda_state *s, enum backend_queue q)
{
    return q != QUEUE_SAVE && (!s->graph || !s->graph->shared || q == QUEUE_COMPUTE);
}

/* The compute queue waits for all others; fork_queues is the reverse. While
 * recording, fork is also what draws the other queues into the capture, and join what
 * ends them. Queues outside of recordings are never drawn in. */
static void join_queues(struct cuda_state *s)
{
    for (int q = 0; q < QUEUE_COUNT; q++)
        if (q != QUEUE_COMPUTE && cuda_graph_holds(s, (enum backend_queue)q))
            order(s, q, QUEUE_COMPUTE);
}

static void fork_queues(struct cuda_state *s)
{
    for (int q = 0; q < QUEUE_COUNT; q++)
        if (q != QUEUE_COMPUTE && cuda_graph_holds(s, (enum backend_queue)q))
            order(s, QUEUE_COMPUTE, q);
}

/* ---- segments -------------------------------------------------------------------- */

/* The segment at hand; NULL without memory for it. */
static struct segment *segment_here(struct cuda_graph *g)
{
    const int space = g->space ? 2 * g->space : 32;
    struct segment *more;

    if (g->at < g->space)
        return &g->segment[g->at];
    more = (struct segment *)realloc(g->segment, (size_t)space * sizeof(*more));
    if (!more)
        return NULL;
    memset(more + g->space, 0, (size_t)(space - g->space) * sizeof(*more));
    g->segment = more;
    g->space = space;
    return &more[g->at];
}

/* The graph of this segment with as many nodes; else its place is the one that was
 * launched longest ago. */
static struct built *built_for(struct segment *seg, size_t nodes)
{
    struct built *oldest = &seg->built[0];

    for (int i = 0; i < GRAPHS; i++) {
        if (seg->built[i].exec && seg->built[i].nodes == nodes)
            return &seg->built[i];
        if (seg->built[i].launched < oldest->launched)
            oldest = &seg->built[i];
    }
    if (oldest->exec)
        cudaGraphExecDestroy(oldest->exec);
    oldest->exec = NULL;
    oldest->nodes = nodes;
    return oldest;
}

/* Launches the recording. An existing graph of the same shape takes over its arguments;
 * any other is built again. */
static void graph_launch(struct cuda_state *s, cudaGraph_t graph)
{
    struct cuda_graph *g = s->graph;
    struct segment *seg = &g->segment[g->at];
    cudaGraphExecUpdateResultInfo info;
    struct built *b;
    size_t nodes = 0;

    if (!CHECK(s, cudaGraphGetNodes(graph, NULL, &nodes)))
        return;
    seg->small = nodes < WORTH ? seg->small + 1 : 0;
    if (!nodes)
        return;
    b = built_for(seg, nodes);
    b->launched = ++g->launches;
    /* an update is far cheaper than building the graph again */
    if (b->exec && cudaGraphExecUpdate(b->exec, graph, &info) != cudaSuccess) {
        cudaGetLastError(); /* an answer, not a failure */
        cudaGraphExecDestroy(b->exec);
        b->exec = NULL;
    }
    /* nodes of the gather and reduce queues keep their priority */
    if (b->exec ||
        CHECK(s, cudaGraphInstantiate(&b->exec, graph,
                                      cudaGraphInstantiateFlagUseNodePriority)))
        CHECK(s, cudaGraphLaunch(b->exec, s->stream[QUEUE_COMPUTE]));
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
    if (graph && !s->failed)
        graph_launch(s, graph);
    if (graph)
        cudaGraphDestroy(graph);
    fork_queues(s);
    cuda_events_settle(s);
}

/* Somebody needed the device in mid-step. If that happens step after step, recording
 * only costs time. */
static void end_early(struct cuda_state *s)
{
    if (++s->graph->early == PATIENCE)
        s->graph->off = true;
    s->graph->step = false;
    end_recording(s);
}

static void begin_recording(struct cuda_state *s)
{
    join_queues(s);
    /* relaxed: other threads of the process may call CUDA meanwhile */
    if (!CHECK(s, cudaStreamBeginCapture(s->stream[QUEUE_COMPUTE],
                                         cudaStreamCaptureModeRelaxed)))
        return;
    s->part++;
    s->end_recording = end_early;
    fork_queues(s);
}

void cuda_graph_resume(struct cuda_state *s)
{
    struct cuda_graph *g = s->graph;
    struct segment *seg;

    if (!g || !g->step || g->plain || s->failed || s->end_recording ||
        (g->shared && s->now != s->stream[QUEUE_COMPUTE]))
        return;
    seg = segment_here(g);
    if (!seg)
        return;
    g->plain = g->shared && seg->small >= PATIENCE;
    g->first_op = cuda_mark_now(s);
    if (!g->plain)
        begin_recording(s);
}

void cuda_graph_pause(struct cuda_state *s)
{
    struct cuda_graph *g = s->graph;

    if (!s->end_recording && !(g && g->plain))
        return;
    if (s->end_recording)
        end_recording(s);
    else if (cuda_mark_now(s) - g->first_op >= WORTH)
        g->segment[g->at].small = 0; /* it has grown: an op has a kernel at least */
    g->plain = false;
    g->at++;
}

/* Where an op begins, nothing of another one is half done. */
void cuda_graph_op(struct cuda_state *s)
{
    const struct cuda_graph *g = s->graph;
    int ops;

    if (!s->end_recording)
        return;
    ops = cuda_mark_now(s) - g->first_op;
    if (ops < FIRST_OPS || (ops < MOST_OPS && ops < g->first_op - g->step_op))
        return;
    cuda_graph_pause(s);
    cuda_graph_resume(s);
}

/* ---- steps ----------------------------------------------------------------------- */

/* The first step is never recorded: it loads code and chooses algorithms, which a
 * recording cannot hold. */
void cuda_step_begin(const struct backend *be)
{
    struct cuda_state *s = cuda_state_of(be);
    struct cuda_graph *g = s->graph;

    /* a second begin without an end belongs to the recording of the first */
    if (!g || g->off || s->failed || g->step)
        return;
    g->step = g->warm;
    g->warm = true;
    g->at = 0;
    g->step_op = cuda_mark_now(s);
    cuda_graph_resume(s);
}

void cuda_step_end(const struct backend *be)
{
    const struct backend_mark rest = { "gradients and optimizer step", NULL, false, 0,
                                       0 };
    struct cuda_state *s = cuda_state_of(be);
    struct cuda_graph *g = s->graph;

    if (g && g->step) {
        cuda_graph_pause(s);
        g->early = 0;
        g->step = false;
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

void cuda_graph_share(struct cuda_state *s)
{
    cuda_graph_pause(s);
    if (s->graph)
        s->graph->shared = true;
}

/* ---- scratch --------------------------------------------------------------------- */

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

void cuda_graph_abandon(struct cuda_state *s)
{
    struct cuda_graph *g = s->graph;

    if (s->end_recording)
        s->end_recording(s);
    if (!g)
        return;
    g->step = g->plain = false;
    for (struct kept *k = g->kept; k; k = k->next)
        k->busy = false;
}

/* ---- life ------------------------------------------------------------------------ */

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
    for (int i = 0; i < g->space * GRAPHS; i++) {
        struct built *b = &g->segment[i / GRAPHS].built[i % GRAPHS];

        if (b->exec)
            cudaGraphExecDestroy(b->exec);
    }
    free(g->segment);
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
