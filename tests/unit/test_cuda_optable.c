/* SPDX-License-Identifier: Apache-2.0
 *
 * The op table on a CUDA device, or on the stand-in: against the references, against
 * PyTorch's results, against the CPU's; twice the same bits.
 */
#include <stdlib.h>

#include "tests/tap.h"
#include "tests/world/cuda_device.h"
#include "tests/unit/optable.h"

/* The stand-in as a device of capability 10.0, which has scales of blocks of 32. */
static void blocks_of_32(void)
{
    void (*reset)(void);
    struct backend *device;
    accel_error_t err = { 0 };

    if (!cuda_stand_in("fakecuda_reset", &reset))
        return;
    setenv("FAKE_CUDA_CAPABILITY", "100", 1);
    reset();
    device = cuda_device();
    tap_is_int(device->fp8_blocks, BACKEND_BLOCKS_32 | BACKEND_BLOCKS_128,
               "10.0 has scales of blocks of both sizes");
    optable_run_blocks((struct backend *const[]){ device, device },
                       TAP_SANITIZED ? 1 : 2);
    tap_ok(!device->sync(device, &err), "no call failed %s", err.text);
    backend_close(device);
}

int main(void)
{
    struct backend *device = cuda_device(), *cpu = NULL;
    struct backend *const twice[2] = { device, device };
    accel_error_t err = { 0 };

    if (backend_cpu_open(&cpu, 1, &err)) {
        tap_ok(false, "the CPU backend: %s", err.text);
        return tap_done();
    }
    /* the same calls once more have no new accesses for a sanitizer */
    optable_run(twice, TAP_SANITIZED ? 1 : 2);
    if (!TAP_SANITIZED) {
        optable_golden(device);
        optable_beside(cpu, device);
    }
    tap_ok(!device->sync(device, &err), "no call failed %s", err.text);
    backend_close(device);
    backend_close(cpu);
    blocks_of_32();
    return tap_done();
}
