/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of the CUDA backend beside those of the CPU, function by function: packs
 * and their tails, addresses that allow no packs, nothing, one, primes, every dtype and
 * flag. On the stand-in toolkit or on a GPU, whichever module ACCEL_CUDA_MODULE names.
 */
#include "tests/tap.h"
#include "tests/world/cuda_device.h"
#include "tests/unit/twin.h"

int main(void)
{
    struct twin t = { 0 };
    accel_error_t err = { 0 };

    t.device = cuda_device();
    if (backend_cpu_open(&t.cpu, 1, &err)) {
        tap_ok(false, "the CPU backend: %s", err.text);
        return tap_done();
    }
    twin_elements(&t);
    twin_updates(&t);
    twin_scaled(&t);
    twin_moves(&t);
    twin_rows(&t);
    twin_sums(&t);
    backend_close(t.device);
    backend_close(t.cpu);
    return tap_done();
}
