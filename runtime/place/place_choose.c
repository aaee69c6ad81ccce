/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPU of a run that nobody gave one. In: the node's GPUs. Out: the first one
 * that can be used, or why there is none, in words for the map. Only for a single
 * process outside of Slurm: a step's GPUs are Slurm's to give, and the node's others
 * may be another job's.
 */
#include <stdio.h>
#include <stdlib.h>

#include "place/place.h"
#include "backend/cuda_load.h"
#include "handle/run.h"

bool place_may_choose(const accel_t *run)
{
    return run->boot.size == 1 && !getenv("CUDA_VISIBLE_DEVICES") &&
           !getenv("SLURM_JOB_ID") && env_long("SLURM_GPUS_ON_NODE", 0) <= 0;
}

/* Number of the first GPU that answers and is not a MIG GPU without slices. -1: none;
 * `err` is then that of the last one. */
static int first_usable(const struct topo_gpus *gpus, struct topo_device *device_out,
                        accel_error_t *err)
{
    for (int i = 0; i < gpus->count; i++)
        if (topo_visible_device(gpus, NULL, i, device_out, err) == ACCEL_OK)
            return i;
    return -1;
}

/* Without the CUDA module a GPU could not be used: then none is taken, and the choice
 * says why. Never fails: the CPU is always there. */
void place_choose(accel_t *run, const struct topo_gpus *gpus, struct topo_rank *own)
{
    accel_error_t err = { .text = "the driver reports none" };
    char module[256];
    int at = -1;

    if (!gpus->known)
        snprintf(err.text, sizeof(err.text), "%s",
                 gpus->broken ? gpus->why : "there is no NVIDIA driver on this node");
    else if (gpus->count == 0 ||
             backend_cuda_module(module, sizeof(module), &err) == ACCEL_OK)
        at = first_usable(gpus, &own->device[0], &err);
    if (at < 0) {
        snprintf(run->place.choice, sizeof(run->place.choice), "none is used: %.300s",
                 err.text);
        return;
    }
    own->devices = 1;
    run->place.first_device = at;
    run->place.chosen = true;
    snprintf(run->place.choice, sizeof(run->place.choice),
             "number %d of %d, the default (choose with CUDA_VISIBLE_DEVICES; use_cpu: "
             "true uses none)",
             at, gpus->count);
}
