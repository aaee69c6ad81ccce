/* SPDX-License-Identifier: Apache-2.0
 *
 * What sharding costs: memory and wire bytes are the plan's to the byte.
 */
#include <sys/mman.h>

#include "plan/plan.h"
#include "precision/policy.h"
#include "tests/tap.h"
#include "tests/world/shard_world.h"

/* Rank 0's memory. What differs is how the plan and the shards describe a run to the
 * layout that they share; run_net_as_planned compares whole runs. */
static void check_memory(const struct shard_memory *m, const struct plan *p,
                         bool offload)
{
    const int64_t gradient = (int64_t)m->gradient_shard,
                  reduce = (int64_t)(m->reduce_buffer + m->wire_buffer),
                  home =
                      (int64_t)(m->master + m->moments + m->narrow_master) + gradient;

    tap_ok((int64_t)m->master == p->param_bytes && gradient == p->gradient_bytes &&
               (int64_t)m->moments == p->moment_bytes &&
               (int64_t)m->gather_slots == p->gather_bytes &&
               reduce == p->reduce_bytes && p->host_bytes == (offload ? home : 0),
           "  and memory is%s", offload ? ", offloaded" : "");
}

static void test_wire(const struct model *m)
{
    int64_t elems[UNITS], whole = 0;

    for (int u = 0; u < UNITS; u++)
        elems[u] = m->unit[u].elems;
    for (int k = 0; k < 37; k++) {
        static const enum sharding_strategy others[] = { SHARD_GRAD_OP, SHARD_HYBRID,
                                                         SHARD_HYBRID_ZERO2 };
        struct job job = { .world = k >= 16 ? 4
                                    : k & 4 ? 3
                                            : 2,
                           .nodes = k >= 16 ? 2 : 1,
                           .steps = 2,
                           .strategy = k >= 16 ? others[k / 4 % 3]
                                       : k & 1 ? SHARD_FULL
                                               : SHARD_NONE,
                           .compute = k & 2 ? ACCEL_BF16 : ACCEL_F32,
                           .reduce = !!(k & 2) == !(k & 8) ? ACCEL_BF16 : ACCEL_F32,
                           .prefetch = k & 4 ? PREFETCH_PRE : PREFETCH_NONE,
                           .offload = k % 5 == 3 };
        struct config config = { .distributed_type = DIST_FSDP,
                                 .sharding_strategy = job.strategy,
                                 .mixed_precision =
                                     k & 2 ? PRECISION_BF16 : PRECISION_NO,
                                 .reduce = !(k & 8) ? REDUCE_AUTO
                                           : k & 2  ? REDUCE_F32
                                                    : REDUCE_BF16 };

        struct plan_input in = { .config = &config,
                                 .world = job.world,
                                 .nodes = job.nodes,
                                 .local_size = job.world / job.nodes,
                                 .accumulate = SAMPLES / job.world,
                                 .states = 2,
                                 .unit_elems = elems,
                                 .units = UNITS };
        struct result *r;
        struct plan p;

        if (k >= 28) { /* of all strategies, in blocks with scales */
            job.strategy = k == 28 ? SHARD_FULL : others[k % 3];
            job.reduce = (accel_dtype_t)(ACCEL_F16 + k % 3);
            config.sharding_strategy = job.strategy;
            config.reduce = (enum reduce_choice)(REDUCE_FP16 + k % 3);
        }
        if (k >= 34) /* whole copies in such blocks */
            config.sharding_strategy = job.strategy = SHARD_NONE;
        job.narrow_copies =
            job.strategy == SHARD_NONE && precision_of(&config).narrow_copies;
        r = run(job);
        plan_layout_of(&config, job.world, job.world / job.nodes, &in.layout, NULL);
        in.layout.offload_params = job.offload && job.strategy != SHARD_NONE;
        plan_compute(&in, &p);
        tap_is_int(r->wire[0], 2 * p.wire_bytes_per_step,
                   "bytes on the wire are the plan's: world %d, %s, %s, gradients %s",
                   job.world, config_strategy_name(job.strategy),
                   accel_dtype_name(job.compute), accel_dtype_name(job.reduce));
        check_memory(&r->memory, &p, job.offload && job.strategy != SHARD_NONE);
        if (k == 0)
            whole = r->wire[0];
        if (k == 8)
            tap_is_int(2 * r->wire[0], whole, "copies in bfloat16 send half the bytes");
        munmap(r, sizeof(*r));
    }
}

int main(void)
{
    static struct model m;

    model_build(&m);
    test_wire(&m);
    return tap_done();
}
