/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/comm_impl.h"
accel_status_t comm_ucx_open(struct comm *c, struct boot *b, accel_error_t *err)
{
    (void)c;
    return accel_fail(err, ACCEL_EUNSUPPORTED, NULL,
                      "%d nodes: collectives between nodes are not supported yet",
                      b->nodes);
}
