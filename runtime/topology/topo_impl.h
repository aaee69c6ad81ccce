/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule of topo_discover on a given machine and mask: no look at this machine.
 */
#ifndef ACCEL_TOPOLOGY_TOPO_IMPL_H
#define ACCEL_TOPOLOGY_TOPO_IMPL_H

#include <hwloc.h>

#include "topology/topo.h"

/* `mask`: the affinity of this rank, a subset of the topology's allowed cpuset. */
accel_status_t topo_describe(struct topo *t, hwloc_topology_t machine,
                             hwloc_const_cpuset_t mask, int local_rank, int local_size,
                             accel_error_t *err);

#endif
