/* SPDX-License-Identifier: Apache-2.0
 *
 * topology/: cores of this task (hwloc, inside the task's affinity mask), NUMA node, and
 * the GPU rule as a pure function.
 */
#ifndef ACCEL_TOPOLOGY_TOPO_H
#define ACCEL_TOPOLOGY_TOPO_H

#include "common/common.h"

struct topo {
    int cores;        /* physical cores this rank may compute on */
    int pus;          /* hardware threads in the mask */
    int numa_node;    /* of the first core; -1 unknown */
    char cpuset[256]; /* "0-3,8" */
    char cpu_model[128];
};

/* Cores this rank should use: those of its affinity mask; when all `local_size` ranks of
 * the node share one mask (Slurm without task/affinity), its even share, at least 1. */
accel_status_t topo_discover(struct topo *t, int local_rank, int local_size,
                             accel_error_t *err);

/* The GPU rule: k visible devices, L local ranks, l local rank. k == 1 -> device 0;
 * k % L == 0 -> slice [l*k/L, (l+1)*k/L); else ACCEL_EMISMATCH with both numbers.
 * visible: value of CUDA_VISIBLE_DEVICES (NULL: unset); on_node: SLURM_GPUS_ON_NODE.
 * No GPU given: count_out 0. An empty list with on_node > 0 is ACCEL_EUNAVAIL (hint:
 * --gpu-bind=none). Never reads the environment. */
accel_status_t topo_gpu_map(const char *visible, int on_node, int local_rank,
                            int local_size, int *first_out, int *count_out,
                            accel_error_t *err);

#endif
