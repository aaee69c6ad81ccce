/* SPDX-License-Identifier: Apache-2.0
 *
 * probe [exit N | signal N]: one line with what this task was told of its place, for
 * the tests of the launch forms:
 *     RANK/WORLD LOCAL/LOCAL_WORLD NODE/NODES gpus=... port=... restart=...
 * behind "bad " where accel's variables, torch's and Slurm's own contradict each other.
 * Then ends as asked.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text(const char *name)
{
    const char *v = getenv(name);

    return v ? v : "?";
}

static int differ(const char *a, const char *b)
{
    return strcmp(text(a), text(b)) != 0;
}

int main(int argc, char **argv)
{
    int bad = differ("ACCEL_WORLD_SIZE", "SLURM_NTASKS") ||
              differ("ACCEL_LOCAL_RANK", "SLURM_LOCALID") ||
              differ("ACCEL_NODE_RANK", "SLURM_NODEID") ||
              differ("ACCEL_NUM_NODES", "SLURM_STEP_NUM_NODES") ||
              differ("ACCEL_RANK", "SLURM_PROCID") ||
              differ("ACCEL_WORLD_SIZE", "WORLD_SIZE") ||
              differ("ACCEL_LOCAL_RANK", "LOCAL_RANK") ||
              differ("ACCEL_LOCAL_WORLD_SIZE", "LOCAL_WORLD_SIZE");

    printf("%s%s/%s %s/%s %s/%s gpus=%s port=%s restart=%s\n", bad ? "bad " : "",
           text("RANK"), text("WORLD_SIZE"), text("LOCAL_RANK"),
           text("ACCEL_LOCAL_WORLD_SIZE"), text("ACCEL_NODE_RANK"),
           text("ACCEL_NUM_NODES"), text("CUDA_VISIBLE_DEVICES"), text("MASTER_PORT"),
           text("ACCEL_RESTART_COUNT"));
    if (fflush(stdout) != 0)
        return 74;
    if (argc == 3 && strcmp(argv[1], "signal") == 0)
        raise(atoi(argv[2]));
    return argc == 3 ? atoi(argv[2]) : 0;
}
