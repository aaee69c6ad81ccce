/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for the UCX backend in a build without UCX: a refusal that says what to
 * install. Ranks of one node still have shared memory.
 */
#include "comm/comm_impl.h"

accel_status_t comm_ucx_open(struct comm *c, struct boot *b, accel_error_t *err)
{
    (void)c;
    return accel_fail(
        err, A0510,
        "install libucx-dev (Debian) or ucx-devel (RHEL) and build accel again; ranks "
        "that share the memory of one node do not need UCX",
        "%d ranks on %d node%s need UCX, but this accel was built without UCX", b->size,
        b->nodes, b->nodes == 1 ? "" : "s");
}
