/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program may ask its run, without changing it: its rank and its place, and
 * seeds for the program's own use. Not collective.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/sized.h"
#include "backend/device.h"
#include "numbers/rng.h"
#include "handle/run.h"

accel_status_t accel_info(const accel_t *run, accel_info_t *info_out,
                          accel_error_t *err)
{
    const struct sized *type = SIZED(accel_info_t, resumed);
    accel_status_t st;
    struct precision p;
    accel_info_t info;

    ACCEL_CHECK(st, run_given(run, "accel_info", err));
    if (!info_out)
        return accel_fail(err, A0902, "pass the address of a struct accel_info",
                          "accel_info: info_out is NULL");
    ACCEL_CHECK(st, sized_check(type, info_out, err));
    p = precision_of(&run->config);
    info = (accel_info_t){
        .version = accel_version(),
        .run_name = run->run_name,
        .rank = run->boot.rank,
        .world_size = run->boot.size,
        .local_rank = run->boot.local_rank,
        .local_size = run->boot.local_size,
        .node = run->boot.node,
        .nodes = run->boot.nodes,
        .host = run->boot.host,
        .device = run->backend->name,
        .isa = run->backend->isa,
        .bus_id = run->backend->bus_id ? run->backend->bus_id : "",
        .threads = run->place.threads,
        .compute = accel_dtype_name(p.compute),
        .reduce = accel_dtype_name(p.reduce),
        .sharding = config_strategy_name(config_strategy(&run->config)),
        .config_source = run->config_source,
        .config_path = run->config_path,
        .config_set = run->config_set ? run->config_set : "",
        .restarts = (int)run->preemption.incarnation.restart,
        .out_dir = run->out_dir,
        .checkpoint_dir = run->ckpt_dir,
        .steps_done = run->progress.step,
        .samples_done = run->progress.cursor,
        .resumed = run->progress.resumed,
    };
    sized_write(type, info_out, &info);
    return ACCEL_OK;
}

/* The seed 1 keeps names apart from those of parameters, whose initial values are drawn
 * by their plain hash. */
static uint64_t derive(uint64_t key, const char *name, int64_t index)
{
    uint32_t word[4];

    rng_block(key, XXH3_64bits_withSeed(name, strlen(name), 1), (uint64_t)index, word);
    return word[0] | (uint64_t)word[1] << 32;
}

accel_status_t accel_seed(const accel_t *run, const char *purpose, int64_t index,
                          unsigned flags, uint64_t *seed_out, accel_error_t *err)
{
    accel_status_t st;
    uint64_t seed;

    ACCEL_CHECK(st, run_given(run, "accel_seed", err));
    if (!run->prepared)
        return accel_fail(err, A0901, "call accel_prepare first",
                          "accel_seed before accel_prepare");
    if (!purpose || !purpose[0] || !seed_out || flags & ~ACCEL_SEED_PER_RANK)
        return accel_fail(err, A0902, "see accel_seed in accel_track.h",
                          "accel_seed: %s",
                          !purpose || !purpose[0] ? "there is no purpose"
                          : !seed_out             ? "seed_out is NULL"
                                                  : "a flag that does not exist");
    seed = derive(run->job.seed, purpose, index);
    if (flags & ACCEL_SEED_PER_RANK)
        seed = derive(seed, "rank", run->boot.rank);
    *seed_out = seed;
    return ACCEL_OK;
}

/* Without a run there is one rank, 0. */
int accel_rank(const accel_t *run)
{
    return run ? run->boot.rank : 0;
}

int accel_world_size(const accel_t *run)
{
    return run ? run->boot.size : 1;
}

int accel_local_rank(const accel_t *run)
{
    return run ? run->boot.local_rank : 0;
}

int accel_is_main(const accel_t *run)
{
    return accel_rank(run) == 0;
}

/* fsdp_offload_params; where the CPU computes there is nothing to do. */
bool run_offloads(const accel_t *run)
{
    return run->backend->device && run->config.distributed_type == DIST_FSDP &&
           config_is(&run->config, "fsdp_offload_params", "true");
}
