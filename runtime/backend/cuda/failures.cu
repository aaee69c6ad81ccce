/* SPDX-License-Identifier: Apache-2.0
 *
 * Failures of CUDA: the first one is kept, and told with its call, its cause and a cure. In:
 * codes of calls. Out: errors. Kernels that meet an id out of range note its row, which sync
 * reads.
 */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda.h"

/* What helps against a failure, where it is known; all others: the last row. */
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
      "another process has the GPU for itself (compute mode exclusive): give each rank "
      "its "
      "own GPU, or end that process" },
    { cudaErrorNoKernelImageForDevice, A0445,
      "build accel for this GPU: ./configure --with-cuda-arch=90, with its compute "
      "capability without the dot" },
    { cudaErrorInvalidDeviceFunction, A0445,
      "build accel for this GPU: ./configure --with-cuda-arch=90, with its compute "
      "capability without the dot" },
    { cudaErrorECCUncorrectable, A0446,
      "the GPU's memory is faulty: drain the node, nvidia-smi -q -d ECC; resume from "
      "the "
      "last checkpoint on another one" },
    { cudaErrorIllegalAddress, A0446,
      "resume from the last checkpoint; if it comes again on another node, report it "
      "with "
      "the output of `accel env`" },
    { cudaErrorLaunchTimeout, A0446,
      "a display uses this GPU and limits how long a kernel may run: take another "
      "GPU" },
    { cudaSuccess, A0446,
      "the kernel's log on the node says more (dmesg, lines with NVRM: Xid); resume "
      "from "
      "the last checkpoint, on another node if it comes again" },
};

bool cuda_ok(struct cuda_state *s, cudaError_t code, const char *call)
{
    size_t name = strcspn(call, "(<");

    if (code == cudaSuccess)
        return true;
    (void)cudaGetLastError(); /* else the next launch would be blamed */
    if (s->failed)
        return false;
    s->failed = true;
    s->code = code;
    if (!name) { /* a kernel with its types, in parentheses */
        call++;
        name = strcspn(call, "<)");
    }
    snprintf(s->call, sizeof(s->call), "%.*s", (int)name, call);
    snprintf(s->why, sizeof(s->why), "%s (%s)", cudaGetErrorString(code),
             cudaGetErrorName(code));
    return false;
}

bool cuda_fails(struct cuda_state *s, const char *call, const char *why)
{
    cuda_ok(s, cudaErrorUnknown, call);
    if (s->code == cudaErrorUnknown)
        snprintf(s->why, sizeof(s->why), "%s", why);
    return false;
}

bool cuda_lacks(struct cuda_state *s, enum backend_memory kind, size_t bytes)
{
    if (!s->failed) {
        s->asked = bytes;
        s->asked_kind = kind;
    }
    return cuda_ok(s, cudaErrorMemoryAllocation, "cudaMalloc");
}

accel_status_t cuda_check(const struct backend *be, accel_error_t *err)
{
    struct cuda_state *s = cuda_state_of(be);
    size_t i = 0;

    if (!s->failed)
        return ACCEL_OK;
    if (s->peer_gone) {
        if (err)
            *err = s->peer;
        return s->peer.code;
    }
    if (s->code == cudaErrorMemoryAllocation)
        return cuda_no_memory(s, s->asked ? s->asked_kind : MEMORY_WORK, s->asked, err);
    while (failures[i].code != cudaSuccess && failures[i].code != s->code)
        i++;
    if (failures[i].message == A0445)
        return accel_fail(
            err, A0445, failures[i].cure,
            "the CUDA module has no code for GPU %d (%s, compute capability "
            "%d.%d)",
            s->device, s->name, s->compute / 10, s->compute % 10);
    return accel_fail(err, failures[i].message, failures[i].cure,
                      "GPU %d%s%s%s: %s failed: %s", s->device, s->name[0] ? " (" : "",
                      s->name, s->name[0] ? ")" : "", s->call, s->why);
}

/* Whether a kernel met an id out of range; the words are those of the CPU's ops. */
static accel_status_t check_ids(struct cuda_state *s, accel_error_t *err)
{
    struct cuda_fault f;

    if (!cuda_fetch(s, &f, s->fault, sizeof(f)))
        return cuda_check(&s->be, err);
    if (f.embed_row != INT32_MAX)
        return accel_fail(err, A0615, "check the vocabulary size",
                          "id %d of the batch is not in [0, %d)", f.embed_row,
                          f.embed_limit);
    if (f.target_row != INT32_MAX)
        return accel_fail(err, A0615, "check the number of classes",
                          "target %d of the batch is not below %d", f.target_row,
                          f.target_limit);
    return ACCEL_OK;
}

accel_status_t cuda_sync(const struct backend *be, accel_error_t *err)
{
    struct cuda_state *s = cuda_state_of(be);

    if (s->end_recording)
        s->end_recording(s);
    if (!cuda_await_all(s))
        return cuda_check(be, err);
    return check_ids(s, err);
}
