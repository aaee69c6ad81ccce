/* SPDX-License-Identifier: Apache-2.0
 *
 * What sharding costs: memory and wire bytes are the plan's to the byte.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "plan/plan.h"
#include "precision/policy.h"
#include "shard/shard_impl.h"
#include "tests/tap.h"
#include "tests/unit/shard_world.h"

/* What a run is asked for. The layout is one function; what may differ is how the plan
 * and the shards describe the run to it, and the arrays of optimizer state. */
static const struct memory_case {
    enum sharding_strategy strategy;
    enum mixed_precision compute;
    enum masters_choice masters;
    enum reduce_choice reduce;
    bool offload, quantised;
} cases[] = {
    { SHARD_NONE, PRECISION_NO, MASTERS_F32, REDUCE_AUTO, false, false },
    { SHARD_NONE, PRECISION_BF16, MASTERS_FP16, REDUCE_FP16, false, true },
    { SHARD_NONE, PRECISION_BF16, MASTERS_BF16, REDUCE_AUTO, false, true },
    { SHARD_FULL, PRECISION_NO, MASTERS_F32, REDUCE_AUTO, false, false },
    { SHARD_FULL, PRECISION_BF16, MASTERS_F32, REDUCE_E4M3, false, true },
    { SHARD_FULL, PRECISION_BF16, MASTERS_FP16, REDUCE_AUTO, true, false },
    { SHARD_GRAD_OP, PRECISION_BF16, MASTERS_BF16, REDUCE_AUTO, false, false },
    { SHARD_GRAD_OP, PRECISION_BF16, MASTERS_F32, REDUCE_AUTO, true, true },
    { SHARD_GRAD_OP, PRECISION_BF16, MASTERS_FP16, REDUCE_AUTO, true, false },
    { SHARD_HYBRID, PRECISION_NO, MASTERS_F32, REDUCE_AUTO, true, false },
};

/* Some units have other types than the run. */
static const int64_t sizes[] = { 4096, 512, 640, 512, 8192, 96, 32 };
#define SIZES ((int)ACCEL_ARRAY_SIZE(sizes))

/* Are the shards' bytes the plan's? */
static int compare_memory(struct boot *b, const struct memory_case *k, struct comm *c,
                          struct backend *be, struct backend *home)
{
    const struct shard_optim adamw = {
        .settings.moments = k->quantised ? ACCEL_MOMENTS_8BIT : ACCEL_MOMENTS_FLOAT32
    };
    const struct config config = { .distributed_type = DIST_FSDP,
                                   .sharding_strategy = k->strategy,
                                   .mixed_precision = k->compute,
                                   .masters = k->masters,
                                   .reduce = k->reduce };
    const struct shard_options o = { .strategy = k->strategy,
                                     .optim = &adamw,
                                     .optims = 1,
                                     .precision = precision_of(&config),
                                     .backend = be,
                                     .home = k->offload ? home : NULL };
    struct unit unit[SIZES] = { { 0 } };
    struct plan_types types[SIZES];
    struct plan_input in = { .config = &config,
                             .world = b->size,
                             .nodes = 1,
                             .local_size = b->size,
                             .accumulate = 1,
                             .states = 2,
                             .moments = k->quantised ? MOMENTS_8BIT : MOMENTS_F32,
                             .unit_elems = sizes,
                             .unit_types = types,
                             .units = SIZES };
    struct units units = { unit, SIZES };
    struct shard_memory m;
    struct shard *s;
    struct plan p;

    for (int u = 0; u < SIZES; u++) {
        types[u] = (struct plan_types){ u % 3 == 2, ACCEL_F32,
                                        u % 2 ? ACCEL_BF16 : ACCEL_F32 };
        unit[u] = (struct unit){ .name = "u", .elems = sizes[u], .types = types[u] };
    }
    CHECK(shard_open(&s, c, &o, &units, err));
    shard_memory(s, &m);
    shard_close(s);
    CHECK(plan_layout_of(&config, b->size, b->size, &in.layout, err));
    in.layout.offload_params = k->offload;
    plan_compute(&in, &p);
    if (k->offload && (int64_t)(m.master + m.moments + m.gradient_shard +
                                m.narrow_master) != p.host_bytes)
        return 6;
    return (int64_t)m.master != p.param_bytes || (int64_t)m.moments != p.moment_bytes ||
                   (int64_t)m.gradient_shard != p.gradient_bytes ||
                   (int64_t)m.gather_slots != p.gather_bytes ||
                   (int64_t)(m.reduce_buffer + m.wire_buffer) != p.reduce_bytes
               ? 5
               : 0;
}

static int memory_main(struct boot *b, void *arg)
{
    struct backend *be, *home;
    struct comm *c;
    int rc;

    CHECK(comm_open(&c, b, NULL, err));
    CHECK(backend_cpu_open(&be, 1, err));
    CHECK(backend_cpu_open(&home, 1, err));
    rc = compare_memory(b, arg, c, be, home);
    backend_close(home);
    backend_close(be);
    comm_close(c);
    return rc;
}

static void test_memory(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++)
        for (int w = 1; w <= 3; w += 2)
            tap_is_int(fork_world(w, memory_main, (void *)&cases[i], 240), 0,
                       "memory is the plan's: case %zu, world %d", i, w);
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
                           .prefetch = k & 4 ? PREFETCH_PRE : PREFETCH_NONE };
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
        plan_compute(&in, &p);
        tap_is_int(r->wire[0], 2 * p.wire_bytes_per_step,
                   "bytes on the wire are the plan's: world %d, %s, %s, gradients %s",
                   job.world, config_strategy_name(job.strategy),
                   accel_dtype_name(job.compute), accel_dtype_name(job.reduce));
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
    test_memory();
    test_wire(&m);
    return tap_done();
}
