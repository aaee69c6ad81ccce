/* SPDX-License-Identifier: Apache-2.0
 *
 * Failures of CUDA. The first one is kept and reported with its op, call, cause and
 * cure. In: codes of calls. Out: errors. Kernels that meet an id out of range note its
 * row, which sync reads.
 */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/id_place.h"
#include "common/env_names.h"

#define BAD_KERNEL                                                                     \
    "resume from the last checkpoint; if it happens again on another node, report it " \
    "with the output of `accel env` and of a run with CUDA_LAUNCH_BLOCKING=1 "         \
    "and " ENV_CUDA_GRAPHS "=0, which names the op"

/* What helps against a failure, where known; the last row covers all others. */
static const struct {
    cudaError_t code;
    enum message message;
    const char *cure;
} failures[] = {
    { cudaErrorInsufficientDriver, A0443, "update the driver of the node" },
    { cudaErrorSystemDriverMismatch, A0443,
      "the driver was updated without a reboot: reboot the node" },
    { cudaErrorSystemNotReady, A0443,
      "start nvidia-fabricmanager on the node (GPUs with NVSwitch need it)" },
    { cudaErrorDevicesUnavailable, A0446,
      "another process uses the GPU exclusively (compute mode exclusive): give each "
      "rank its own GPU, or end that process" },
    { cudaErrorNoKernelImageForDevice, A0445,
      "build accel for this GPU: ./configure --with-cuda-arch=90 (use its compute "
      "capability without the dot)" },
    { cudaErrorInvalidDeviceFunction, A0445,
      "build accel for this GPU: ./configure --with-cuda-arch=90 (use its compute "
      "capability without the dot)" },
    { cudaErrorECCUncorrectable, A0446,
      "the GPU's memory is faulty: drain the node and run nvidia-smi -q -d ECC; resume "
      "from the last checkpoint on another node" },
    { cudaErrorIllegalAddress, A0446, BAD_KERNEL },
    { cudaErrorMisalignedAddress, A0446, BAD_KERNEL },
    { cudaErrorLaunchFailure, A0446, BAD_KERNEL },
    { cudaErrorLaunchTimeout, A0446,
      "a display uses this GPU and limits how long a kernel may run: use another GPU" },
    { cudaSuccess, A0446,
      "see the kernel log of the node (dmesg, lines with NVRM: Xid); resume from the "
      "last checkpoint, on another node if it happens again" },
};

/* Is this a failure of the device itself? Such a code is returned by whatever call
 * comes next, which is rarely the one to blame. */
static bool comes_late(cudaError_t code)
{
    switch (code) {
    /* in the range below, but of this call */
    case cudaErrorLaunchOutOfResources:
    case cudaErrorHostMemoryAlreadyRegistered:
    case cudaErrorHostMemoryNotRegistered:
        return false;
    case cudaErrorECCUncorrectable:
    case cudaErrorUnknown:
        return true;
    default:
        /* the driver's numbers 700 to 799: what a kernel did */
        return code >= cudaErrorIllegalAddress && code < cudaErrorNotPermitted;
    }
}

/* Keeps code, call and text, and where it happened. `call` is the source text of the
 * call, of which only the name is used. */
static void keep(struct cuda_state *s, cudaError_t code, const char *call, bool late)
{
    size_t name = strcspn(call, "(<");

    s->failed = true;
    s->code = code;
    if (!name) { /* a kernel with its types, in parentheses */
        call++;
        name = strcspn(call, "<)");
    }
    /* "cudaMalloc(&p, bytes)" becomes "cudaMalloc", "kernel<float>" "kernel" */
    snprintf(s->call, sizeof(s->call), "%.*s", (int)name, call);
    snprintf(s->why, sizeof(s->why), "%s (%s)", cudaGetErrorString(code),
             cudaGetErrorName(code));
    cuda_marks_fail(s, late);
}

bool cuda_ok(struct cuda_state *s, cudaError_t code, const char *call)
{
    if (code == cudaSuccess)
        return true;
    (void)cudaGetLastError(); /* else the next launch would be blamed */
    /* later codes are consequences of the first */
    if (!s->failed)
        keep(s, code, call, comes_late(code));
    return false;
}

/* A library's code hides the cause. If the device has a failure of its own, that is the
 * one to report. */
static bool library_fails(struct cuda_state *s, const char *call, const char *why,
                          bool late)
{
    cudaError_t code = cudaGetLastError();

    if (s->failed)
        return false;
    /* the device failed before; the library only noticed */
    if (comes_late(code))
        return cuda_ok(s, code, call);
    keep(s, cudaErrorUnknown, call, late);
    snprintf(s->why, sizeof(s->why), "%s", why);
    return false;
}

bool cuda_fails(struct cuda_state *s, const char *call, const char *why)
{
    return library_fails(s, call, why, false);
}

bool cuda_breaks(struct cuda_state *s, const char *call, const char *why)
{
    return library_fails(s, call, why, true);
}

bool cuda_lacks(struct cuda_state *s, enum backend_memory kind, size_t bytes)
{
    if (!s->failed) {
        s->asked = bytes;
        s->asked_kind = kind;
    }
    return cuda_ok(s, cudaErrorMemoryAllocation, "cudaMalloc");
}

/* Makes the error from what was kept. */
static accel_status_t tell(struct cuda_state *s, accel_error_t *err)
{
    size_t i = 0;

    /* the one failure with figures: asked for, held, free */
    if (s->code == cudaErrorMemoryAllocation)
        return cuda_no_memory(s, s->asked ? s->asked_kind : MEMORY_WORK, s->asked, err);
    while (failures[i].code != cudaSuccess && failures[i].code != s->code)
        i++;
    if (failures[i].message == A0445)
        return accel_fail(err, A0445, failures[i].cure,
                          "the CUDA module has no code for GPU %d (%s, "
                          "compute capability %d.%d)",
                          s->device, s->name, s->compute / 10, s->compute % 10);
    return accel_fail(
        err, failures[i].message, failures[i].cure, "GPU %d%s%s%s: %s failed: %s%s%s",
        s->device, s->name[0] ? " (" : "", s->name, s->name[0] ? ")" : "", s->call,
        s->why, s->last_op[0] ? "; last op on the GPU: " : "", s->last_op);
}

accel_status_t cuda_check(const struct backend *be, accel_error_t *err)
{
    struct cuda_state *s = cuda_state_of(be);
    accel_status_t st;

    if (!s->failed)
        return ACCEL_OK;
    /* another rank is to blame: its error is told in its own words */
    if (s->peer_gone) {
        if (err)
            *err = s->peer;
        return s->peer.code;
    }
    st = tell(s, err);
    if (err)
        snprintf(err->where, sizeof(err->where), "%s", s->where);
    return st;
}

/* Scratch that was taken when the memory ran out is given back: the kernels that hold
 * it were never queued. */
accel_status_t cuda_recover(const struct backend *be, accel_error_t *err)
{
    struct cuda_state *s = cuda_state_of(be);

    if (!s->failed)
        return ACCEL_OK;
    if (s->peer_gone || s->code != cudaErrorMemoryAllocation)
        return cuda_check(be, err);
    cuda_graph_abandon(s);
    s->failed = false;
    s->asked = 0;
    s->failed_ns = 0;
    s->where[0] = s->last_op[0] = '\0';
    s->workspace.top = 0;
    s->ends.count = 0;
    s->ends.bytes = 0;
    s->now = s->stream[QUEUE_COMPUTE];
    (void)cudaGetLastError();
    cuda_await_all(s);
    return cuda_check(be, err);
}

/* Did a kernel meet an id out of range? The words are those of the CPU's ops, which
 * find the first one, too. */
static accel_status_t check_ids(struct cuda_state *s, struct cuda_fault f,
                                accel_error_t *err)
{
    const bool target = f.target < f.embed;
    const cuda_bad_t bad = target ? f.target : f.embed;
    const long long row = (long long)(bad & UINT32_MAX);
    const char *const cure =
        target ? "check the number of classes" : "check the vocabulary size";
    const struct cuda_id_op *op;
    char place[96];

    if (bad == NO_BAD_ID)
        return ACCEL_OK;
    op = cuda_id_op(s, (uint32_t)(bad >> 32));
    if (!op)
        return accel_fail(err, A0615, cure,
                          "%s %lld of an earlier batch is out of range",
                          target ? "target" : "id", row);
    id_place(place, sizeof(place), row, op->time, op->micro, op->micros);
    if (target)
        return accel_fail_at(err, A0615, op->where, cure,
                             "target %lld of the batch is not below %lld%s", row,
                             (long long)op->limit, place);
    return accel_fail_at(err, A0615, op->where, cure,
                         "id %lld of the batch is not in [0, %lld)%s", row,
                         (long long)op->limit, place);
}

accel_status_t cuda_sync(const struct backend *be, accel_error_t *err)
{
    struct cuda_state *s = cuda_state_of(be);
    const void *fault;

    if (s->end_recording)
        s->end_recording(s);
    /* Only here: reading the ids after each forward would stop the device. Queued ahead
     * of the wait, which is then the only one. */
    fault = cuda_fetch_late(s, s->stream[QUEUE_COMPUTE], s->fault, sizeof(*s->fault));
    /* what a queue still runs may fail, too */
    if (!cuda_await_all(s) || !fault)
        return cuda_check(be, err);
    cuda_marks_waited(s);
    return check_ids(s, *(const struct cuda_fault *)fault, err);
}
