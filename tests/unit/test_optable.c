/* SPDX-License-Identifier: Apache-2.0
 *
 * The op table on the CPU: one thread against the references, and two threads against one,
 * to the bit.
 */
#include "tests/tap.h"
#include "tests/unit/optable.h"

int main(void)
{
    struct backend *be[2] = { NULL, NULL };
    accel_error_t err = { 0 };

    for (int i = 0; i < 2; i++)
        if (backend_cpu_open(&be[i], i + 1, &err)) {
            tap_ok(false, "%d threads: %s", i + 1, err.text);
            return tap_done();
        }
    tap_diag("isa %s", be[0]->isa);
    optable_run(be, 2);
    backend_close(be[0]);
    backend_close(be[1]);
    return tap_done();
}
