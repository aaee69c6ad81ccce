/* SPDX-License-Identifier: Apache-2.0
 *
 * What sharding costs: memory and wire bytes are the plan's to the byte.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "plan/plan.h"
#include "shard/shard_impl.h"
#include "tests/tap.h"
#include "tests/unit/shard_world.h"

struct sizes {
    int64_t elems[7];
    int units;
    bool differs;
};

/* What memory_main opens everything with. */
struct opened {
    struct comm *c;
    struct backend *be, *home;
};

/* Every third unit has other types from case 22 on. */
static void mix_types(const struct sizes *z, int i, accel_dtype_t t, struct unit *unit,
                      struct plan_types *types)
{
    for (int u = 0; u < z->units; u++) {
        types[u] = (struct plan_types){ i > 21 && (u + i) % 3 == 0, MIXED(t),
                                        u % 2 ? MIXED(t) : t };
        unit[u].types = types[u];
    }
}

/* Are the shards' bytes the plan's? */
static int memory_case(struct boot *b, const struct sizes *z, const struct opened *w,
                       struct unit *unit, int i)
{
    static const enum sharding_strategy strategy[] = {
        SHARD_NONE,    SHARD_FULL,    SHARD_NONE, SHARD_FULL,
        SHARD_GRAD_OP, SHARD_GRAD_OP, SHARD_FULL, SHARD_FULL,
        SHARD_GRAD_OP, SHARD_GRAD_OP, SHARD_NONE,
    };
    const int k = i % 11;
    const bool offload = k > 5 && k < 10, narrow = k == 10, moments = i / 11 % 2;
    const struct shard_optim adamw = {
        .settings.moments = moments ? ACCEL_MOMENTS_8BIT : ACCEL_MOMENTS_FLOAT32
    };
    const accel_dtype_t t =
        k == 2 || k == 3 || (k > 4 && k & 1) ? ACCEL_BF16 : ACCEL_F32;
    struct shard_options o = { .strategy = strategy[k],
                               .optim = &adamw,
                               .optims = 1,
                               .precision = { t, t, narrow ? ACCEL_F16 : t, narrow,
                                              false },
                               .backend = w->be,
                               .home = offload ? w->home : NULL };
    struct config config = { .distributed_type = DIST_FSDP,
                             .sharding_strategy = o.strategy,
                             .mixed_precision =
                                 t == ACCEL_BF16 ? PRECISION_BF16 : PRECISION_NO,
                             .reduce = narrow ? REDUCE_FP16 : REDUCE_AUTO };
    struct plan_types types[7];
    struct plan_input in = { .config = &config,
                             .world = b->size,
                             .nodes = 1,
                             .local_size = b->size,
                             .accumulate = 1,
                             .states = 2,
                             .moments = moments ? MOMENTS_8BIT : MOMENTS_F32,
                             .unit_elems = z->elems,
                             .unit_types = types,
                             .units = z->units };
    struct units units = { unit, z->units };
    struct shard_memory m;
    struct shard *s;
    struct plan p;

    mix_types(z, i, t, unit, types);
    CHECK(shard_open(&s, w->c, &o, &units, err));
    shard_memory(s, &m);
    shard_close(s);
    CHECK(plan_layout_of(&config, b->size, b->size, &in.layout, err));
    in.layout.offload_params = offload;
    plan_compute(&in, &p);
    if ((int64_t)(m.master + m.moments + m.gradient_shard + m.narrow_master) !=
            p.host_bytes &&
        offload)
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
    const struct sizes *z = arg;
    struct unit unit[7] = { { 0 } };
    struct opened w;
    int rc = 0;

    for (int u = 0; u < z->units; u++)
        unit[u] = (struct unit){ .name = "u", .elems = z->elems[u] };
    CHECK(comm_open(&w.c, b, NULL, err));
    CHECK(backend_cpu_open(&w.be, 1, err));
    CHECK(backend_cpu_open(&w.home, 1, err));
    /* four offloaded, then narrow copies; all of them with 8-bit moments, too, and
     * with units of other types */
    for (int i = 0; i < 44 && !rc; i++)
        rc = memory_case(b, z, &w, unit, i);
    backend_close(w.home);
    backend_close(w.be);
    comm_close(w.c);
    return rc;
}

static void test_memory(void)
{
    static struct sizes z[] = {
        { { 1 }, 1, false },
        { { 1000, 16 }, 2, false },
        { { 16, 1000, 1000 }, 3, false },
        { { 4096, 512, 512, 512, 8192, 96, 32 }, 7, false },
        { { 640, 656, 672, 688 }, 4, false },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(z); i++) {
        for (int w = 1; w <= 4; w++)
            tap_is_int(fork_world(w, memory_main, &z[i], 240), 0,
                       "memory is the plan's: %d units, world %d", z[i].units, w);
    }
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
