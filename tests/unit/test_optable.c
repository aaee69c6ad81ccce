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

static void (*gated_grad)(const struct backend *be, void *dgate, bool add_gate,
                          void *dup, bool add_up, const void *dy, const void *gate,
                          const void *up, accel_dtype_t type, int64_t n,
                          accel_activation_t act);
static int into_one;

/* Counts the calls that write both gradients into one array: what that leaves there is
 * up to the backend. */
static void count_gated_grad(const struct backend *be, void *dgate, bool add_gate,
                             void *dup, bool add_up, const void *dy, const void *gate,
                             const void *up, accel_dtype_t type, int64_t n,
                             accel_activation_t act)
{
    into_one += dgate == dup;
    gated_grad(be, dgate, add_gate, dup, add_up, dy, gate, up, type, n, act);
}

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
    gated_grad = be[0]->gated_grad;
    be[0]->gated_grad = count_gated_grad;
    optable_run(be, 2);
    tap_is_int(into_one, 0, "no two gradients are written into one array");
    /* the same calls once more have no new accesses for a sanitizer */
    if (!TAP_SANITIZED)
        optable_golden(be[0]);
    backend_close(be[0]);
    backend_close(be[1]);
    return tap_done();
}
