/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in CUDA toolkit: streams that are ordered by nothing but what somebody waits for,
 * and graphs.
 */
#include "tests/unit/emulator.h"

static __global__ void increase(float *x, float by)
{
    x[0] += by;
}

/* ---- streams ---------------------------------------------------------------------------- */

/* Work that nobody waits for is not done. */
static void test_forgotten_wait(void)
{
    begin();
    cudaMemsetAsync(a, 0, sizeof(host), one);
    cudaStreamSynchronize(one);
    RUN(iota, 1, THREADS, 0, two, a, N);
    tap_is_close(fetch(a + 1), 0, 0, "without a wait the work is not seen");
}

static void test_waits(const char *order)
{
    cudaEvent_t event;

    setenv("FAKE_CUDA_ORDER", order, 1);
    begin();
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    tap_is_int(cudaStreamWaitEvent(one, event, 0), cudaSuccess,
               "%s: an event never recorded", order);
    RUN(iota, 1, THREADS, 0, two, a, N);
    cudaEventRecord(event, two);
    cudaStreamWaitEvent(one, event, 0);
    RUN(increase, 1, 1, 0, one, a + 1, 1.0f);
    tap_is_close(fetch(a + 1), 2, 0, "%s: after the other stream's work", order);
    tap_is_int(cudaEventQuery(event), cudaSuccess, "%s: the event has come", order);
    RUN(increase, 1, 1, 0, two, a + 1, 1.0f);
    while (cudaStreamQuery(two) == cudaErrorNotReady)
        ;
    tap_is_close(fetch(a + 1), 3, 0, "%s: who asks often enough sees the end", order);
    RUN(increase, 1, 1, 0, two, a + 1, 1.0f);
    cudaDeviceSynchronize();
    tap_is_close(fetch(a + 1), 4, 0, "%s: a wait for all streams", order);
    cudaEventDestroy(event);
    unsetenv("FAKE_CUDA_ORDER");
}

static void test_host_memory(void)
{
    float *pinned;

    begin();
    cudaMallocHost(&pinned, sizeof(float));
    *pinned = 5;
    cudaMemcpyAsync(a, pinned, sizeof(float), cudaMemcpyHostToDevice, one);
    *pinned = 6;
    tap_is_close(fetch(a), 6, 0,
                 "page-locked memory is read when the stream comes to it");
    host[0] = 7;
    cudaMemcpyAsync(a, host, sizeof(float), cudaMemcpyHostToDevice, one);
    host[0] = 8;
    tap_is_close(fetch(a), 7, 0, "other memory is held at once");
    cudaMemcpyAsync(pinned, a, sizeof(float), cudaMemcpyDeviceToHost, one);
    tap_is_close(*pinned, 6, 0, "page-locked memory is written late");
    cudaStreamSynchronize(one);
    tap_is_close(*pinned, 7, 0, "... but before the wait ends");
    tap_is_int(cudaMemcpyAsync(a, host, sizeof(host) + 1, cudaMemcpyHostToDevice, one),
               cudaErrorInvalidValue, "a copy behind the end");
    tap_is_int(cudaMemcpyAsync(a, b, 4, cudaMemcpyDeviceToHost, one),
               cudaErrorInvalidValue, "a copy of the wrong kind");
    cudaFreeHost(pinned);
}

static int is_ready(void *data)
{
    return *(int *)data;
}

static void set_ready(void *data)
{
    *(int *)data = 1;
}

/* Work that is not ready holds its own stream back and no other. */
static void test_enqueued(void)
{
    int ready = 0;

    begin();
    cudaMemsetAsync(a, 0, sizeof(host), one);
    fakecuda_enqueue(one, is_ready, &ready);
    RUN(increase, 1, 1, 0, one, a, 1.0f);
    tap_is_int(cudaStreamQuery(one), cudaErrorNotReady, "first the memset");
    for (int i = 0; i < 3; i++)
        tap_is_int(cudaStreamQuery(one), cudaErrorNotReady, "work that is not ready");
    cudaLaunchHostFunc(two, set_ready, &ready);
    tap_is_close(fetch(a), 1, 0, "another stream made it ready");
}

/* ---- graphs ----------------------------------------------------------------------------- */

static cudaGraph_t capture(float by, bool join)
{
    cudaEvent_t fork, back;
    cudaGraph_t graph;

    cudaEventCreate(&fork);
    cudaEventCreate(&back);
    cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal);
    cudaMemsetAsync(a, 0, sizeof(float), one);
    cudaEventRecord(fork, one);
    cudaStreamWaitEvent(two, fork, 0);
    RUN(increase, 1, 1, 0, two, a, by);
    cudaEventRecord(back, two);
    if (join)
        cudaStreamWaitEvent(one, back, 0);
    cudaMemcpyAsync(b, a, sizeof(float), cudaMemcpyDeviceToDevice, one);
    cudaStreamEndCapture(one, &graph);
    cudaEventDestroy(fork);
    cudaEventDestroy(back);
    return graph;
}

static void test_graphs(void)
{
    cudaGraphExecUpdateResultInfo info;
    cudaGraphExec_t exec;
    cudaGraph_t graph;
    size_t nodes = 0;

    begin();
    graph = capture(3, true);
    cudaGraphGetNodes(graph, NULL, &nodes);
    tap_is_int((int)nodes, 3, "three nodes");
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    tap_ok(isnan(fetch(b)), "nothing has run");
    for (int i = 0; i < 2; i++)
        cudaGraphLaunch(exec, one);
    tap_is_close(fetch(b), 3, 0, "replayed, across streams");
    graph = capture(4, true);
    tap_is_int(cudaGraphExecUpdate(exec, graph, &info), cudaSuccess, "same shape");
    cudaGraphLaunch(exec, one);
    tap_is_close(fetch(b), 4, 0, "updated");
    cudaGraphDestroy(graph);
    cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal);
    RUN(increase, 1, 1, 0, one, a, 1.0f);
    cudaStreamEndCapture(one, &graph);
    tap_is_int(cudaGraphExecUpdate(exec, graph, &info), cudaErrorGraphExecUpdateFailure,
               "another shape");
    cudaGraphDestroy(graph);
    cudaGraphExecDestroy(exec);
    tap_ok(!capture(1, false), "work that nobody joins");
    tap_is_int(cudaGetLastError(), cudaErrorStreamCaptureUnjoined, "... is unjoined");
    cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal);
    tap_is_int(cudaStreamSynchronize(one), cudaErrorStreamCaptureUnsupported,
               "no waits while capturing");
    tap_is_int(cudaStreamEndCapture(one, &graph), cudaErrorStreamCaptureInvalidated,
               "... and it spoils the capture");
}

int main(void)
{
    static const char *const orders[] = { "lazy", "eager", "1", "2", "3" };

    test_forgotten_wait();
    for (const char *order : orders)
        test_waits(order);
    test_host_memory();
    test_enqueued();
    test_graphs();
    fakecuda_reset();
    return tap_done();
}
