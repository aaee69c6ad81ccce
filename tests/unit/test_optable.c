/* SPDX-License-Identifier: Apache-2.0
 *
 * The op table on the CPU: one thread against the references and against PyTorch's
 * results, and two threads against one, to the bit. --dump: the table's inputs for
 * optable.py.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/optable.h"

int main(int argc, char **argv)
{
    struct backend *be[2] = { NULL, NULL };
    accel_error_t err = { 0 };

    for (int i = 0; i < 2; i++)
        if (backend_cpu_open(&be[i], i + 1, &err)) {
            tap_ok(false, "%d threads: %s", i + 1, err.text);
            return tap_done();
        }
    if (argc > 1 && !strcmp(argv[1], "--dump")) {
        optable_dump(be[0], stdout);
        backend_close(be[0]);
        backend_close(be[1]);
        return 0;
    }
    tap_diag("isa %s", be[0]->isa);
    optable_run(be, 2);
    /* the same calls once more have no new accesses for a sanitizer */
    if (!TAP_SANITIZED)
        optable_golden(be[0]);
    backend_close(be[0]);
    backend_close(be[1]);
    return tap_done();
}
