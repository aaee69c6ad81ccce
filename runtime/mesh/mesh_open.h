/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicators of the sharding strategy.
 */
#ifndef ACCEL_MESH_MESH_OPEN_H
#define ACCEL_MESH_MESH_OPEN_H

#include "handle/run.h"

/* Opens the communicators of the sharding strategy, after those of all ranks, which
 * must outlive them. Collective. */
accel_status_t meshes_open(accel_t *run, accel_error_t *err);
/* NULL communicators are fine. */
void meshes_close(accel_t *run);

#endif
