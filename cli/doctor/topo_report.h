/* SPDX-License-Identifier: Apache-2.0
 *
 * What `accel topo` knows about a machine, as JSON values for a report and as a table.
 */
#ifndef ACCEL_TOPO_REPORT_H
#define ACCEL_TOPO_REPORT_H

#include <jansson.h>

#include "topology/topo.h"

/* {"nics": [...], "driver": ...}: what is there, whoever uses it. */
json_t *topo_machine_json(const struct topo_machine *m);
/* An array, one object per GPU; and the same in words, {"gpu 0": "..."}. */
json_t *topo_gpus_json(const struct topo_gpus *gpus);
json_t *topo_gpus_words(const struct topo_gpus *gpus);
/* One row of the map. */
json_t *topo_place_json(int local_rank, const struct topo_place *place);
/* The map as a table on stdout. Returns the exit code. */
int topo_map_print(const struct topo_place *place, int ranks);

#endif
