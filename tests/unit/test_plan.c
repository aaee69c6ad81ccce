/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan against figures worked out by hand, and the form of its table. That it equals
 * what shard/ allocates is tested in test_shard.
 */
#include <string.h>

#include "plan/plan.h"
#include "tests/tap.h"

static void test_padding(void)
{
    static const struct {
        int64_t elems;
        int world;
        int64_t want;
    } c[] = { { 0, 1, 0 },   { 1, 1, 32 },    { 32, 1, 32 },
              { 33, 1, 64 }, { 100, 3, 192 }, { 96, 3, 96 },
              { -1, 2, -1 }, { 5, 0, -1 },    { INT64_MAX, 4, -1 } };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c); i++)
        tap_is_int(plan_padded_elems(c[i].elems, c[i].world), c[i].want,
                   "%lld elements on %d ranks", (long long)c[i].elems, c[i].world);
}

/* Root of 1000 elements (1024 padded for 2 ranks), two blocks of 300 (320). */
static const int64_t units[] = { 1000, 300, 300 };

static struct plan_input input(const struct config *c, int world, int accumulate)
{
    return (struct plan_input){ .config = c,
                                .world = world,
                                .nodes = 1,
                                .local_size = world,
                                .accumulate = accumulate,
                                .params = 1590,
                                .unit_elems = units,
                                .units = 3,
                                .activation_bytes = 5000,
                                .base_bytes = 7000 };
}

static void test_full(void)
{
    struct config c = { .distributed_type = DIST_FSDP,
                        .sharding_strategy = SHARD_FULL,
                        .mixed_precision = PRECISION_BF16 };
    struct plan_input in = input(&c, 2, 1);
    struct plan p;

    plan_compute(&in, &p);
    tap_is_int(p.shard_elems, 512 + 160 + 160, "FULL_SHARD: half of every padded unit");
    tap_is_int(p.moment_bytes, 832 * 8, "two float32 moments");
    tap_is_int(p.gather_bytes, (1024 + 320) * 2, "ring: two largest units in bf16");
    tap_is_int(p.reduce_bytes, 1024 * 4, "reduce buffer: largest unit in float32");
    tap_is_int(p.total_bytes, 832 * 16 + 2688 + 4096 + 12000, "total is the sum");
    tap_is_int(p.checkpoint_bytes, 1590 * 12, "checkpoint holds no padding");
    /* gathers: root b1 b2 root | (root b2 in the ring) b1 root = 3 roots, 3 blocks;
     * reduced: root twice, each block once. Half of each goes out, 2 bytes an element. */
    tap_is_int(p.wire_bytes_per_step,
               ((3 * 1024 + 3 * 320) + (2 * 1024 + 2 * 320)) / 2 * 2, "wire of a step");
    in.accumulate = 2;
    plan_compute(&in, &p);
    /* the second micro-batch finds root and b1 in the ring */
    tap_is_int(p.wire_bytes_per_step,
               ((5 * 1024 + 5 * 320) + 2 * (2 * 1024 + 2 * 320)) / 2 * 2,
               "wire of two micro-batches");
    in.units = 1;
    in.accumulate = 1;
    plan_compute(&in, &p);
    tap_is_int(p.gather_bytes, 1024 * 2, "one unit: one slot");
    tap_is_int(p.wire_bytes_per_step, 2 * 1024, "gathered once, reduced once");
}

static void test_whole(void)
{
    struct config c = { .distributed_type = DIST_FSDP,
                        .sharding_strategy = SHARD_NONE };
    struct plan_input in = input(&c, 2, 4);
    struct plan p;

    plan_compute(&in, &p);
    tap_ok(p.shard_elems == 1664 && p.gather_bytes == 0 && p.reduce_bytes == 0,
           "NO_SHARD in float32: everything, no buffers");
    tap_is_int(p.wire_bytes_per_step, 2 * 1664 / 2 * 4,
               "one all-reduce per step, not per micro-batch");
    c.mixed_precision = PRECISION_BF16;
    plan_compute(&in, &p);
    tap_is_int(p.gather_bytes, 1664 * 2, "in bf16: a copy of all units");
    c = (struct config){ .distributed_type = DIST_MULTI_CPU,
                         .sharding_strategy = SHARD_FULL };
    plan_compute(&in, &p);
    tap_is_int(p.shard_elems, 1664, "MULTI_CPU is NO_SHARD");
    c = (struct config){ .distributed_type = DIST_FSDP,
                         .sharding_strategy = SHARD_FULL };
    in.world = 1;
    plan_compute(&in, &p);
    tap_ok(p.gather_bytes == 0 && p.reduce_bytes == 0 && p.wire_bytes_per_step == 0,
           "FULL_SHARD on one rank in float32 needs no buffers and no wire");
}

static void test_print(void)
{
    struct config c = { .distributed_type = DIST_FSDP,
                        .sharding_strategy = SHARD_FULL,
                        .mixed_precision = PRECISION_BF16 };
    const char *extra[] = { "model", "gpt2, 2 layers", "data", "text.txt", NULL };
    const char *want = "  model                 gpt2, 2 layers\n"
                       "  data                  text.txt\n"
                       "  parameters            1.6k (1590) in 3 units\n"
                       "  ranks                 2 on 1 node, 1 micro-batch per step\n"
                       "  sharding              FULL_SHARD, 832 elements per rank\n"
                       "  precision             bf16 compute and wire, float32 masters "
                       "and sums\n"
                       "  memory per rank\n"
                       "    parameters          3.2 KiB    shard\n"
                       "    adam moments        6.5 KiB    shard\n"
                       "    gradients           3.2 KiB    shard\n"
                       "    gather ring         2.6 KiB    two largest units\n"
                       "    reduce buffer       4.0 KiB    largest unit\n"
                       "    activations         4.9 KiB    peak of a micro-batch\n"
                       "    process             6.8 KiB    code and libraries, before "
                       "the model\n"
                       "    peak                31.3 KiB\n"
                       "  sent per step         6.6 KiB    per rank\n"
                       "  checkpoint            18.6 KiB   all ranks together\n";
    struct plan_input in = input(&c, 2, 1);
    struct strbuf out = { 0 };
    struct plan p;

    plan_compute(&in, &p);
    plan_print(&in, &p, extra, &out);
    tap_is_str(out.s, want, "the table");
    strbuf_free(&out);
    plan_print(&in, &p, NULL, &out);
    tap_ok(out.s && !strstr(out.s, "model  "), "the caller's rows may be missing");
    strbuf_free(&out);
}

int main(void)
{
    test_padding();
    test_full();
    test_whole();
    test_print();
    return tap_done();
}
