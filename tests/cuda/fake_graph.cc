/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs: work that is put on a capturing stream becomes a node with what it follows; a
 * launch is one piece of work of its stream that does all nodes, of those that may begin the
 * one captured last first.
 */
#include <algorithm>

#include "fakecuda.h"

/* ---- capture ---------------------------------------------------------------------------- */

cudaError_t fake_capture(CUstream_st *stream, enum cudaGraphNodeType kind,
                         std::function<bool()> run)
{
    CUgraph_st *graph = stream->into->graph;

    if (stream->into->invalid)
        return cudaErrorStreamCaptureInvalidated;
    graph->nodes.push_back(node{ kind, run, stream->frontier });
    stream->frontier.assign(1, graph->nodes.size() - 1);
    return cudaSuccess;
}

/* A wait for an event of the graph brings the stream into the capture. */
cudaError_t fake_capture_wait(CUstream_st *stream, const CUevent_st *event)
{
    auto at = std::find(fake.captures.begin(), fake.captures.end(), event->captured);

    if (!event->captured && !event->recorded)
        return cudaSuccess; /* never recorded: nothing to wait for */
    if (!event->captured) {
        stream->into->invalid = true;
        return cudaErrorStreamCaptureIsolation;
    }
    if (at == fake.captures.end())
        return cudaErrorCapturedEvent; /* of a capture that is over */
    if (stream->into && stream->into != *at)
        return cudaErrorStreamCaptureIsolation;
    if (!stream->into) {
        stream->into = *at;
        stream->frontier.clear();
        (*at)->streams.push_back(stream);
    }
    for (size_t i : event->frontier)
        if (std::find(stream->frontier.begin(), stream->frontier.end(), i) ==
            stream->frontier.end())
            stream->frontier.push_back(i);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    if (!error && !stream)
        error = cudaErrorStreamCaptureUnsupported; /* the default stream */
    if (!error && stream->into)
        error = cudaErrorIllegalAddress;
    if (!error) {
        stream->into = new capture{ new CUgraph_st(), stream, mode, false, { stream } };
        stream->frontier.clear();
        fake.captures.push_back(stream->into);
        fake.counts.captures++;
    }
    return fake_end(error);
}

/* All that `of` follows, marked. */
static void mark(const CUgraph_st *graph, const std::vector<size_t> &of,
                 std::vector<char> *seen)
{
    for (size_t i : of)
        if (!(*seen)[i]) {
            (*seen)[i] = 1;
            mark(graph, graph->nodes[i].after, seen);
        }
}

/* Everything captured on another stream was waited for by the first. */
static bool is_joined(const capture *c)
{
    std::vector<char> seen(c->graph->nodes.size());

    mark(c->graph, c->origin->frontier, &seen);
    return std::find(seen.begin(), seen.end(), 0) == seen.end();
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();
    capture *c = stream ? stream->into : NULL;

    *graph = NULL;
    if (!c || c->origin != stream)
        return fake_end(error ? error : cudaErrorStreamCaptureUnmatched);
    if (!error && c->invalid)
        error = cudaErrorStreamCaptureInvalidated;
    if (!error && !is_joined(c))
        error = cudaErrorStreamCaptureUnjoined;
    for (CUstream_st *s : c->streams) {
        s->into = NULL;
        s->frontier.clear();
    }
    if (error) {
        delete c->graph;
    } else {
        *graph = c->graph;
        fake.counts.alive++;
    }
    fake.captures.erase(std::find(fake.captures.begin(), fake.captures.end(), c));
    delete c;
    return fake_end(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  enum cudaStreamCaptureStatus *status)
{
    fake_lock hold(fake.lock);
    const capture *c = fake_stream(stream)->into;

    *status = !c           ? cudaStreamCaptureStatusNone
              : c->invalid ? cudaStreamCaptureStatusInvalidated
                           : cudaStreamCaptureStatusActive;
    return fake_end(fake_begin());
}

/* ---- graphs ----------------------------------------------------------------------------- */

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    size_t room = *count;

    *count = graph->nodes.size();
    for (size_t i = 0; nodes && i < room; i++)
        nodes[i] = i < *count ? (cudaGraphNode_t)&graph->nodes[i] : NULL;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                 unsigned long long flags)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    (void)flags;
    if (!error) {
        *out = new CUgraphExec_st();
        fake.counts.alive++;
        (*out)->nodes.reset(new std::vector<node>(graph->nodes));
        fake.counts.instantiations++;
    }
    return fake_end(error);
}

/* The same shape: only what the nodes do may differ. */
static enum cudaGraphExecUpdateResult compare(const std::vector<node> &a,
                                              const std::vector<node> &b)
{
    if (a.size() != b.size())
        return cudaGraphExecUpdateErrorTopologyChanged;
    for (size_t i = 0; i < a.size(); i++) {
        if (a[i].kind != b[i].kind)
            return cudaGraphExecUpdateErrorNodeTypeChanged;
        if (a[i].after != b[i].after)
            return cudaGraphExecUpdateErrorTopologyChanged;
    }
    return cudaGraphExecUpdateSuccess;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *info)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    if (error)
        return fake_end(error);
    info->errorNode = info->errorFromNode = NULL;
    info->result = compare(*exec->nodes, graph->nodes);
    if (info->result != cudaGraphExecUpdateSuccess)
        return fake_end(cudaErrorGraphExecUpdateFailure);
    exec->nodes.reset(new std::vector<node>(graph->nodes));
    fake.counts.graph_updates++;
    return cudaSuccess;
}

/* ---- launch ----------------------------------------------------------------------------- */

struct replay {
    std::shared_ptr<const std::vector<node>> nodes;
    std::vector<char> done;
    size_t left;
};

static bool is_free(const struct replay *r, size_t i)
{
    for (size_t dep : (*r->nodes)[i].after)
        if (!r->done[dep])
            return false;
    return !r->done[i];
}

/* Does nodes until all are done or those that are left are not ready. */
static bool go_on(struct replay *r)
{
    size_t count = r->nodes->size(), first = 0;

    while (r->left > 0) {
        size_t tried = 0;

        if (fake.order == ORDER_RANDOM)
            first = fake_random() % count;
        for (; tried < count; tried++) {
            size_t i = (first + count - 1 - tried) % count;

            if (is_free(r, i) && (*r->nodes)[i].run()) {
                r->done[i] = 1;
                r->left--;
                break;
            }
        }
        if (tried == count)
            return false;
    }
    return true;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();
    std::shared_ptr<struct replay> r;

    if (!error) {
        r.reset(new replay{ exec->nodes, std::vector<char>(exec->nodes->size()),
                            exec->nodes->size() });
        fake.counts.graph_launches++;
        error = fake_put(fake_stream(stream), cudaGraphNodeTypeGraph,
                         [r] { return go_on(r.get()); });
    }
    return fake_end(error);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    fake_lock hold(fake.lock);

    fake.counts.alive -= exec != NULL;
    delete exec;
    return fake_end(fake_begin());
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    fake_lock hold(fake.lock);

    fake.counts.alive -= graph != NULL;
    delete graph;
    return fake_end(fake_begin());
}
