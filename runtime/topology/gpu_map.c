/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of the visible GPUs belong to this rank. In: the environment's words, as
 * arguments. Out: a range of device indices as CUDA counts them. Never looks at
 * the ids: Slurm renumbers them when it uses cgroups, so only their number can
 * be relied on.
 */
#include <string.h>

#include "topology/topo.h"

/* Entries before the first one that CUDA would not accept (an empty or negative one):
 * CUDA ignores that and all after it. Slurm writes NoDevFiles for "none". */
static int count_visible(const char *visible)
{
    int n = 0;

    while (*visible) {
        const char *end = strchrnul(visible, ',');

        visible += strspn(visible, " ");
        if (visible >= end || *visible == '-' ||
            strncmp(visible, "NoDevFiles", 10) == 0)
            break;
        n++;
        visible = *end ? end + 1 : end;
    }
    return n;
}

accel_status_t topo_gpu_map(const char *visible, int on_node, int local_rank,
                            int local_size, int *first_out, int *count_out,
                            accel_error_t *err)
{
    int devices = visible ? count_visible(visible) : on_node;

    if (local_size < 1 || local_rank < 0 || local_rank >= local_size || on_node < 0)
        return accel_fail(err, A0411,
                          "let srun, mpirun or accel launch number the ranks",
                          "invalid placement: local rank %d of %d, %d GPUs", local_rank,
                          local_size, on_node);
    if (devices == 0 && on_node > 0)
        return accel_fail_at(err, A0412, "CUDA_VISIBLE_DEVICES",
                             "remove --gpu-bind=none, or check gres.conf on the node",
                             "the step was given %d GPU%s on this node, but "
                             "CUDA_VISIBLE_DEVICES is empty",
                             on_node, on_node == 1 ? "" : "s");
    if (devices > 1 && devices % local_size != 0)
        return accel_fail(
            err, A0413,
            "request as many GPUs per node as ranks per node, or a multiple "
            "(--gpus-per-node, --ntasks-per-node)",
            "%d GPUs cannot be divided evenly among the %d ranks of this node", devices,
            local_size);
    if (devices <= 1) {
        *first_out = 0;
        *count_out = devices;
        return ACCEL_OK;
    }
    *count_out = devices / local_size;
    *first_out = local_rank * *count_out;
    return ACCEL_OK;
}
