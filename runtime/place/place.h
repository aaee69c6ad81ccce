/* SPDX-License-Identifier: Apache-2.0
 *
 * place/: which GPU, cores and network interface each rank uses. Ranks of one node
 * agree on them before anything large is allocated; accel_close gives everything back.
 */
#ifndef ACCEL_PLACE_H
#define ACCEL_PLACE_H

#include <stdbool.h>

#include "accel.h"
#include "handle/run_place.h"

/* ---- place.c --------------------------------------------------------------------- */

/* Assigns devices and cores, fills run->place and binds the process. Collective, before
 * anything large is allocated. All ranks fail together; one of them says why. */
accel_status_t place_open(accel_t *run, accel_error_t *err);
/* Cores that this rank may keep busy, >= 1: those of its place, but no more than Slurm
 * granted it. */
int place_cores(const accel_t *run);
/* Restores affinity and CUDA_VISIBLE_DEVICES. Local; safe to call at any time. */
void place_undo(accel_t *run);
/* Interfaces that UCX may use, comma separated; NULL: all of them, or those that the
 * user's UCX_NET_DEVICES names. Valid as long as the run. */
const char *place_net_devices(const accel_t *run);

/* ---- place_choose.c -------------------------------------------------------------- */

/* True for a single process outside of Slurm with CUDA_VISIBLE_DEVICES unset: it may
 * take a GPU that nobody assigned. */
bool place_may_choose(const accel_t *run);
/* Takes a free GPU into `own`, or none; run->place.choice says which one,
 * or why none. */
void place_choose(accel_t *run, const struct topo_gpus *gpus, struct topo_rank *own);

/* ---- place_print.c --------------------------------------------------------------- */

/* Rank 0 logs the placement of all ranks. Collective. */
accel_status_t place_print(accel_t *run, accel_error_t *err);

/* ---- throttle.c ------------------------------------------------------------------ */

/* Warns when heat or power limits slow this rank's GPU down, at the start and whenever
 * that changes. throttle_check is called when a step's line is due, while the GPU is
 * busy, so no step waits for the answer. */
void throttle_open(accel_t *run);
void throttle_check(accel_t *run);
void throttle_close(accel_t *run);

#endif
