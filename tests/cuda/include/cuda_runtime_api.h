/* SPDX-License-Identifier: Apache-2.0
 *
 * Stand-in toolkit: the runtime's functions that the module calls, and what a test may
 * ask of the stand-in. Nothing here needs CUDA; tests/cuda/README.md says how it
 * behaves.
 */
#ifndef FAKECUDA_RUNTIME_API_H
#define FAKECUDA_RUNTIME_API_H

#include "fakecuda_types.h"

#define CUDART_VERSION 13000

#ifdef __cplusplus
extern "C" {
#define FAKECUDA_DEFAULT(value) = value
#else
#define FAKECUDA_DEFAULT(value)
#endif
#pragma GCC visibility push(default)

/* Devices, versions and errors. */
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device);
cudaError_t cudaDeviceGetPCIBusId(char *text, int len, int device);
cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetLastError(void);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDriverEntryPointByVersion(
    const char *symbol, void **function, unsigned version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *status FAKECUDA_DEFAULT(NULL));

/* Memory. */
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void *p, cudaStream_t stream);
cudaError_t cudaMallocHost(void **p, size_t bytes);
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr,
                                    void *value);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr,
                                    void *value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep_bytes);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            enum cudaMemcpyKind kind,
                            cudaStream_t stream FAKECUDA_DEFAULT(NULL));
cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes,
                            cudaStream_t stream FAKECUDA_DEFAULT(NULL));

/* Streams and events. */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags,
                                         int priority);
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned flags FAKECUDA_DEFAULT(0));
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data);
cudaError_t cudaEventCreate(cudaEvent_t *out);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event,
                            cudaStream_t stream FAKECUDA_DEFAULT(NULL));
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end);

/* Graphs. */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  enum cudaStreamCaptureStatus *status);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                 unsigned long long flags FAKECUDA_DEFAULT(0));
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *info);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);

/* Kernels: by their address. */
cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attr,
                                 int value);

/* ---- the stand-in's own ---------------------------------------------------------- */

/* What was asked of it since the process began. */
struct fakecuda_counts {
    uint64_t launches, graph_launches, captures, instantiations, graph_updates;
    uint64_t mallocs, frees, copies,
        host_waits; /* host_waits: calls that block the CPU */
    uint64_t matmuls, heuristics;
    uint64_t fp8_products, fp8_fast; /* of the products, and of those with fast sums */
    uint64_t alive; /* memory, streams, events, graphs, cublasLt's objects: there now */
};
void fakecuda_counts_get(struct fakecuda_counts *out);
/* How often a kernel was launched, at once and into a recording; "memcpy" and "memset"
 * are copies and fills. A kernel made of an operation has that in its name. */
struct fakecuda_kernel {
    const char *name;
    uint64_t eager, recorded;
};
/* Writes up to `most` of them, in the order of their names, and returns how many. */
int fakecuda_kernels_get(struct fakecuda_kernel *out, int most);
/* Puts work of the test's own on a stream: `poll` is called until it returns other than
 * 0, at the stream's pace, and never blocks. Its data must live until then. */
cudaError_t fakecuda_enqueue(cudaStream_t stream, int (*poll)(void *data), void *data);
/* From now on `error` is what every call returns, as after the loss of the device. */
void fakecuda_lose(cudaError_t error);
/* Forgets all work, errors and counts and reads the environment again: for tests that
 * try several. Streams and events made before are not to be used again. */
void fakecuda_reset(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
