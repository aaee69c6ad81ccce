/* SPDX-License-Identifier: Apache-2.0
 *
 * The areas of message codes: the first two digits say what a message is about.
 */
#include "common/common.h"
#include "cli/man/areas.h"

/* One row per hundred numbers, without gaps: the hundreds digit is the index. */
static const struct message_area areas[] = {
    { 0, "system and command line", "accel(1), `accel doctor`" },
    { 100, "config file", "accel-config(5), `accel check --keys`" },
    { 200, "sources of the config", "accel-config(5), `accel config show --origin`" },
    { 300, "launch and Slurm plugin", "accel(7), srun(1), `accel doctor`" },
    { 400, "start-up, cores and GPUs", "accel(7), `accel topo`, `accel env`" },
    { 500, "collectives", "accel(7), libaccel(3)" },
    { 600, "tensors, model, shards", "libaccel(3)" },
    { 700, "data and logs", "libaccel(3)" },
    { 800, "checkpoints", "`accel ckpt ls`, `accel ckpt verify`" },
    { 900, "training and preemption", "accel(7), libaccel(3)" },
};

const struct message_area *message_areas(size_t *count_out)
{
    *count_out = ACCEL_ARRAY_SIZE(areas);
    return areas;
}

const struct message_area *message_area_of(int number)
{
    return &areas[number / 100 % (int)ACCEL_ARRAY_SIZE(areas)];
}
