/* SPDX-License-Identifier: Apache-2.0
 *
 * What `accel topo` knows about a machine, as JSON values for a report and as a table.
 * The caller owns every json_t that is returned.
 */
#ifndef ACCEL_TOPO_REPORT_H
#define ACCEL_TOPO_REPORT_H

#include <jansson.h>

#include "topology/topo.h"

/* {"cpu": ..., "nics": [...], "driver": ...}: the machine's own, whoever uses it. */
json_t *topo_machine_json(const struct topo_machine *m);
/* An array with one object per GPU; and the same in words, {"gpu 0":
 * "..."}, for the table. */
json_t *topo_gpus_json(const struct topo_gpus *gpus);
json_t *topo_gpus_words(const struct topo_gpus *gpus);
/* One row of the map: rank `local_rank` of the node and its place. */
json_t *topo_place_json(int local_rank, const struct topo_place *place);
/* Prints place[ranks] as a table on stdout. Returns the exit code. */
int topo_map_print(const struct topo_place *place, int ranks);

#endif
