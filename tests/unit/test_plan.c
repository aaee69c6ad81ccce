/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan against figures worked out by hand, and the form of its table. That it
 * equals what shard/ allocates is tested in test_shard_costs.
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

static struct config fsdp(enum sharding_strategy strategy,
                          enum mixed_precision precision)
{
    return (struct config){ .distributed_type = DIST_FSDP,
                            .sharding_strategy = strategy,
                            .mixed_precision = precision };
}

static struct plan_input input(const struct config *c, int world, int accumulate)
{
    struct plan_input in = { .config = c,
                             .world = world,
                             .nodes = 1,
                             .local_size = world,
                             .accumulate = accumulate,
                             .states = 2,
                             .optimizer = "adam moments",
                             .params = 1590,
                             .unit_elems = units,
                             .units = 3,
                             .activation_bytes = 5000,
                             .base_bytes = 7000 };

    plan_layout_of(c, world, world, &in.layout, NULL);
    return in;
}

static void test_full(void)
{
    static const int64_t growing[] = { 300, 600, 1000 };
    struct config c = fsdp(SHARD_FULL, PRECISION_BF16);
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
     * reduced: root twice, each block once. Half of each goes out, 2 bytes an
     * element. */
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
    /* the ring holds the two largest units, wherever they stand */
    in.units = 3;
    in.unit_elems = growing;
    plan_compute(&in, &p);
    tap_is_int(p.gather_bytes, (1024 + 640) * 2, "growing units: the last two");
}

/* Half of a unit goes to the other rank: 512 or 160 numbers, with a scale for each
 * 128. */
static void test_scaled_wire(void)
{
    struct config c = fsdp(SHARD_FULL, PRECISION_BF16);
    struct plan_input in = input(&c, 2, 1);
    const int gathered = (3 * 1024 + 3 * 320) / 2 * 2;
    struct strbuf out = { 0 };
    struct plan p;

    c.reduce = REDUCE_E4M3;
    plan_compute(&in, &p);
    tap_is_int(p.wire_bytes_per_step, gathered + 2 * (4 * 132) + 2 * (132 + 36),
               "e4m3: wire of a step");
    tap_is_int(p.reduce_bytes, 1024 * 4, "  narrowed in the same reduce buffer");
    plan_print(&in, &p, NULL, &out);
    tap_ok(out.s && strstr(out.s, "bf16 compute, gradients sent in e4m3"),
           "  the plan says so");
    strbuf_free(&out);
    in.device.present = true;
    plan_compute(&in, &p);
    tap_is_int(p.sum_bytes, 2 * 4 * 132, "  both parts of the largest on a device");
    in.device.library_sums = true;
    plan_compute(&in, &p);
    tap_is_int(p.sum_bytes, 2 * 4 * 132, "  also where NCCL sums what it can");
    c.reduce = REDUCE_FP16;
    plan_compute(&in, &p);
    tap_is_int(p.wire_bytes_per_step, gathered + 2 * (4 * 260) + 2 * (260 + 68),
               "fp16: wire of a step");
}

/* Units of 1000, 300 and 300 elements on 2 ranks; codes: 256 at 496 of the first, of
 * which 16 are in the first half, and all but 12 of the second. */
static void test_coded(void)
{
    static const struct plan_coded list[] = { { 0, 496, 256 }, { 1, 0, 288 } };
    const struct plan_codes codes = { list, 2 };
    struct config c = fsdp(SHARD_FULL, PRECISION_FP8);
    struct plan_input in = input(&c, 2, 1);
    struct plan p;

    tap_is_int(plan_gathered_bytes(plan_codes_of(codes, 0), 496, 2), 992,
               "bytes before what is coded");
    tap_is_int(plan_gathered_bytes(plan_codes_of(codes, 0), 600, 2), 992 + 104,
               "within it");
    tap_is_int(plan_gathered_bytes(plan_codes_of(codes, 0), 1024, 2), 2048 - 256,
               "behind it");
    tap_is_int(plan_gathered_bytes(plan_codes_of(codes, 2), 320, 2), 640,
               "of a unit without");
    tap_is_int(plan_part_bytes(plan_codes_of(codes, 0), 1024, 2, 2), 1024 - 16,
               "the larger half");
    tap_is_int(plan_part_bytes(plan_codes_of(codes, 1), 320, 2, 2), 320 - 128,
               "which may be the last");
    tap_is_int(plan_part_bytes(plan_codes_of(codes, 2), 320, 2, 2), 320,
               "and of a unit without");
    in.coded = codes;
    plan_compute(&in, &p);
    tap_is_int(p.gather_bytes, (1024 + 320) * 2, "not asked for: bf16");
}

static void test_whole(void)
{
    struct config c = fsdp(SHARD_NONE, PRECISION_NO);
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
    in = input(&c, 2, 4);
    plan_compute(&in, &p);
    tap_is_int(p.shard_elems, 1664, "MULTI_CPU is NO_SHARD");
    c = fsdp(SHARD_FULL, PRECISION_NO);
    in = input(&c, 1, 4);
    plan_compute(&in, &p);
    tap_ok(p.gather_bytes == 0 && p.reduce_bytes == 0 && p.wire_bytes_per_step == 0,
           "FULL_SHARD on one rank in float32 needs no buffers and no wire");
}

/* ---- every strategy, by hand ----------------------------------------------------- */

/* 8 ranks on 2 nodes, bf16, two micro-batches, units of 1000, 300, 300 elements. Padded
 * to 8 * 32: 1024 + 512 + 512 = 2048; to 4 * 32: 1024 + 384 + 384 = 1792. Gathers of
 * FULL_SHARD: 5 roots, 5 blocks (above); it reduces root and blocks twice a
 * micro-batch, that is 4 roots and 4 blocks. */
struct byte_counts {
    const char *name;
    int64_t param, moment, gradient, gather, reduce;
    int64_t node, network;
};

static void test_strategies(void)
{
    static const struct byte_counts want[] = {
        /* whole: 2048 elements; all-reduce: 2 * 2048 / 8 * 4 bytes to each peer */
        { "NO_SHARD", 2048 * 4, 2048 * 8, 2048 * 4, 2048 * 2, 0, 3 * 2048, 4 * 2048 },
        /* 256 elements; (5*1024 + 5*512 + 4*1024 + 4*512) / 8 * 2 to each peer */
        { "FULL_SHARD", 1024, 2048, 1024, (1024 + 512) * 2, 4096, 3 * 3456, 4 * 3456 },
        /* gathered once a step: (2048 + 4*1536) / 8 * 2 */
        { "SHARD_GRAD_OP", 1024, 2048, 1024, 2048 * 2, 4096, 3 * 2048, 4 * 2048 },
        /* groups of 4 inside a node: 448 elements; (5+4)*(1024+384) / 4 * 2 to 3 peers;
         * all-reduce of 448 float32 with one other: 2 * 448 / 2 * 4 */
        { "HYBRID_SHARD", 448 * 4, 448 * 8, 448 * 4, (1024 + 384) * 2, 4096, 3 * 6336,
          1792 },
        { "HYBRID_SHARD_ZERO2", 448 * 4, 448 * 8, 448 * 4, 1792 * 2, 4096,
          3 * ((1792 + 4 * 1408) / 4 * 2), 1792 },
        /* gathered once and reduced once a step: 2 * 2048 / 8 * 2 */
        { "ZeRO-1", 1024, 2048, 2048 * 4, 2048 * 2, 0, 3 * 1024, 4 * 1024 },
        /* gathered once: (2048 + 4*1536) / 8 * 2 */
        { "ZeRO-2", 1024, 2048, 1024, 2048 * 2, 4096, 3 * 2048, 4 * 2048 },
    };
    struct config c = { .mixed_precision = PRECISION_BF16 };
    struct plan_input in = input(&c, 8, 2);
    struct plan p;
    int n = 0;

    in.nodes = 2;
    in.local_size = 4;
    for (; plan_layout_at(n, 8, 4, &in.layout); n++) {
        const struct byte_counts *w = &want[n];

        plan_compute(&in, &p);
        tap_is_str(in.layout.name, w->name, "strategy %d", n);
        tap_is_int(p.param_bytes, w->param, "  parameters");
        tap_is_int(p.moment_bytes, w->moment, "  moments");
        tap_is_int(p.gradient_bytes, w->gradient, "  gradients");
        tap_is_int(p.gather_bytes, w->gather, "  gathered");
        tap_is_int(p.reduce_bytes, w->reduce, "  reduce buffer");
        tap_is_int(p.total_bytes,
                   w->param + w->moment + w->gradient + w->gather + w->reduce + 12000,
                   "  all together");
        tap_is_int(p.wire.node, w->node, "  sent in the node");
        tap_is_int(p.wire.network, w->network, "  sent over the network");
        tap_is_int(in.layout.runs, n < 5, "  supported or not");
    }
    tap_is_int(n, (int)ACCEL_ARRAY_SIZE(want), "all of them");
    for (n = 0; plan_layout_at(n, 4, 4, &in.layout); n++)
        tap_ok(!strstr(in.layout.name, "HYBRID"), "one node: %s", in.layout.name);
}

static void test_offload(void)
{
    struct config c = fsdp(SHARD_FULL, PRECISION_NO);
    struct plan_input in = input(&c, 2, 1);
    struct plan p;

    in.layout.offload_params = true;
    plan_compute(&in, &p);
    tap_is_int(p.host_bytes, 832 * 16, "parameters, moments and gradients leave");
    tap_is_int(p.total_bytes, (1024 + 320) * 4 + 4096 + 4096 / 2 + 12000, "what stays");
    tap_is_int(p.wire.host, (4032 / 2 + 2688 / 2) * 4,
               "each gather reads, each reduction writes");
    in.layout.offload_params = false;
    in.layout.offload_optimizer = true;
    plan_compute(&in, &p);
    tap_is_int(p.gather_bytes, (1024 + 320 + 832) * 4,
               "a part to gather from stays on the device");
    tap_is_int(p.wire.host, 832 * 8, "gradients down, parameters up");
}

static void test_mesh(void)
{
    /* 16 ranks, 8 to a node: dp_replicate 2, dp_shard 2, cp 2, sp 1, tp 2 */
    struct plan_layout l = { "FULL_SHARD", 2,    2,     2,     1,     2,     true,
                             true,         true, false, false, false, false, false };
    struct config c = { .distributed_type = DIST_FSDP };
    struct plan_input in = input(&c, 16, 1);
    struct plan_group g[AXIS_COUNT];
    struct plan p;

    for (int a = 0; a < AXIS_COUNT; a++)
        g[a] = plan_group_of(&l, (enum plan_axis)a);
    tap_ok(g[0].stride == 8 && g[1].stride == 4 && g[2].stride == 2 &&
               g[3].stride == 2 && g[4].stride == 1,
           "strides of the axes");
    in.layout = l;
    in.nodes = 2;
    in.local_size = 8;
    in.layers = 3;
    in.hidden_elems = 100;
    plan_compute(&in, &p);
    /* cut over 4: 1024 + 384 + 384 = 1792, 448 each */
    tap_is_int(p.shard_elems, 448, "cut over dp_shard x cp");
    /* copies: 448 / 2 * 2 float32 to the one on the other node */
    tap_is_int(p.wire.network, 448 * 4, "copies over the network");
    /* 3 roots and 3 blocks gathered, 2 and 2 reduced, a quarter to each of 3;
     * tp: 3 layers, 4 all-reduces of 100, half of it twice; cp: 3 * 2 * 3 * 100 */
    tap_is_int(p.wire.node,
               3 * (5 * 1408 / 4 * 4) + 3 * 4 * 2 * 50 * 4 + 3 * 2 * 3 * 100 * 4,
               "state, tp and cp in the node");
}

static void test_interval(void)
{
    /* 10 min saves, 24 h between failures: sqrt(2 * 600 * 86400) */
    tap_is_close(plan_interval_young(600, 86400), 10182.3376, 1e-8, "Young");
    tap_is_close(plan_interval_daly(600, 86400),
                 10182.3376 * (1 + 0.0589255651 / 3 + 0.00347222222 / 9) - 600, 1e-8,
                 "Daly");
    tap_is_close(plan_interval_daly(600, 200), 200, 1e-12,
                 "a save longer than two failures");
    tap_is_close(plan_interval_loss(10182.3376, 600, 86400), 2 * 0.0589255651, 1e-8,
                 "the loss there: twice the same part");
    tap_ok(plan_interval_loss(9000, 600, 86400) > 2 * 0.0589255651 &&
               plan_interval_loss(11000, 600, 86400) > 2 * 0.0589255651,
           "and more on both sides");
}

static void test_print(void)
{
    struct config c = fsdp(SHARD_FULL, PRECISION_BF16);
    const char *extra[] = { "model", "gpt2, 2 layers", "data", "text.txt", NULL };
    const char *want = "  model                 gpt2, 2 layers\n"
                       "  data                  text.txt\n"
                       "  parameters            1.6k (1590) in 3 units\n"
                       "  ranks                 2 on 1 node, 1 micro-batch per step\n"
                       "  sharding              FULL_SHARD, 832 elements per rank\n"
                       "  precision             bf16 compute and wire, float32 masters "
                       "and sums\n"
                       "  masters               float32, as FSDP in this precision and "
                       "DeepSpeed\n"
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

    c.use_orig_params = true;
    plan_compute(&in, &p);
    plan_print(&in, &p, extra, &out);
    tap_is_str(out.s, want, "the table");
    strbuf_free(&out);
    plan_print(&in, &p, NULL, &out);
    tap_ok(out.s && !strstr(out.s, "model  "), "the caller's rows may be missing");
    strbuf_free(&out);
}

/* A byte for each moment, and two for the scale of 16. */
static void test_codes(void)
{
    struct config c = fsdp(SHARD_FULL, PRECISION_NO);
    struct plan_input in = input(&c, 2, 1);
    struct plan wide, p;

    plan_compute(&in, &wide);
    in.moments = MOMENTS_8BIT;
    plan_compute(&in, &p);
    tap_is_int(p.moment_bytes, 832 * 2 * 18 / 16, "8-bit moments, and their scales");
    tap_is_int(p.checkpoint_bytes, 1590 * 4 + (1590 * 2 * 18 + 15) / 16,
               "in checkpoints, too");
    tap_is_int(wide.total_bytes - p.total_bytes, 832 * 2 * 46 / 16,
               "the peak is lower by as much");
    in.moments = MOMENTS_FP8;
    plan_compute(&in, &p);
    tap_is_int(p.moment_bytes, 832 * 98 / 32,
               "e4m3 and float16, with a scale each for 32");
    in.states = 1;
    plan_compute(&in, &p);
    tap_is_int(p.moment_bytes, 832 * 33 / 32, "of one moment: e4m3");
}

/* What is not trained has no gradient and no optimizer state. */
static void test_frozen(void)
{
    static const int64_t frozen[] = { 200, 300, 0 };
    struct config c = fsdp(SHARD_FULL, PRECISION_NO);
    struct plan_input in = input(&c, 2, 1);
    struct plan p;

    in.unit_frozen = frozen;
    in.frozen = 500;
    plan_compute(&in, &p);
    tap_is_int(p.param_bytes, 832 * 4, "frozen parameters are held");
    /* of parts of 512, 160, 160 on the first rank: 512, 0, 160 */
    tap_is_int(p.moment_bytes, (512 + 160) * 4 * 2, "their moments are not");
    tap_is_int(p.gradient_bytes, (1024 + 320) / 2 * 4,
               "nor gradients of a frozen unit");
    tap_is_int(p.checkpoint_bytes, 1590 * 4 + 1090 * 4 * 2, "nor are they saved");
}

/* ---- a device -------------------------------------------------------------------- */

static void test_device(void)
{
    struct config c = fsdp(SHARD_FULL, PRECISION_NO);
    struct plan_input in = input(&c, 2, 1);
    struct plan host, p;

    plan_compute(&in, &host);
    in.device = (struct plan_device){ .present = true,
                                      .memory_bytes = 60000,
                                      .base_bytes = 100,
                                      .activation_step = 4096,
                                      .buffer_bytes = 20,
                                      .kernel_bytes = 3000,
                                      .staging_bytes = 500 };
    plan_compute(&in, &p);
    tap_is_int(p.activation_bytes, 8192, "activations in steps");
    tap_is_int(p.sum_bytes, 1024 * 4, "both halves of the largest gradient");
    tap_is_int(p.total_bytes, host.total_bytes - 12000 + 8192 + 4096 + 100 + 20 + 3000,
               "the device's peak: its own base, sums, buffers, kernels");
    tap_is_int(p.copy_bytes, 832 * 12 + 20, "a checkpoint goes through the host");
    tap_is_int(p.host_total_bytes, 7000 + 500 + 832 * 12 + 20, "the host's peak");
    in.device.library_sums = true;
    in.loader_bytes = 70;
    in.loader_device_bytes = 9;
    plan_compute(&in, &p);
    tap_is_int(p.sum_bytes, 1024 / 2 * 4, "NCCL's own sums: the result");
    tap_is_int(p.total_bytes,
               host.total_bytes - 12000 + 8192 + 2048 + 100 + 20 + 3000 + 9,
               "uploads of loaders");
    tap_is_int(p.host_total_bytes, 7000 + 500 + 70 + 832 * 12 + 20,
               "and the batches that they read ahead");
    in.loader_bytes = in.loader_device_bytes = 0;
    in.kept_bytes = 3193;
    plan_compute(&in, &p);
    tap_is_int(p.activation_bytes, 12288, "with logits that are kept");
    in.kept_bytes = 0;
    in.layout.offload_params = true;
    plan_compute(&in, &p);
    tap_is_int(p.copy_bytes, 20, "offloaded shards are saved where they are");
    tap_is_int(p.host_total_bytes, 7000 + 500 + 832 * 16 + 20, "and count on the host");
    c.sharding_strategy = SHARD_NONE;
    in = input(&c, 2, 1);
    in.device.present = true;
    plan_compute(&in, &p);
    /* 1024 elements in slices of 9 * 64: two parts and the sum of one slice */
    tap_is_int(p.sum_bytes, 9 * 64 * (2 * 4 + 4), "copies: slices of the largest unit");
    in.device.library_sums = true;
    plan_compute(&in, &p);
    tap_is_int(p.sum_bytes, 0, "NCCL adds them in place");
}

/* The copy of a save in the background: counted wherever one is wanted, and dispensable
 * unless it was asked for. */
static void test_background(void)
{
    static const struct {
        enum async_choice async;
        bool save;
        int64_t copy, optional;
    } rows[] = { { ASYNC_AUTO, true, 9540, 9540 },
                 { ASYNC_TRUE, true, 9540, 0 },
                 { ASYNC_FALSE, true, 0, 0 },
                 { ASYNC_AUTO, false, 0, 0 } };
    struct config c = fsdp(SHARD_FULL, PRECISION_NO);
    struct plan none, p;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        struct plan_input in = input(&c, 2, 1);

        c.ckpt_save = false;
        plan_compute(&in, &none);
        c.ckpt_save = rows[i].save;
        c.ckpt_async = rows[i].async;
        plan_compute(&in, &p);
        tap_is_int(p.snapshot_bytes, rows[i].copy, "row %zu: half of a checkpoint", i);
        tap_is_int(p.optional_bytes, rows[i].optional, "what it can do without");
        tap_is_int(p.total_bytes, none.total_bytes + rows[i].copy, "in the peak");
        in.device.present = true;
        plan_compute(&in, &p);
        c.ckpt_save = false;
        plan_compute(&in, &none);
        tap_is_int(p.total_bytes, none.total_bytes, "not in that of a device");
        tap_is_int(p.host_total_bytes, none.host_total_bytes + rows[i].copy,
                   "but in its host's");
    }
}

/* Whole copies on four ranks, and nothing else, on a device of that memory. */
static struct plan_input too_large(const struct config *c, int64_t memory)
{
    struct plan_input in = input(c, 4, 1);

    in.base_bytes = in.activation_bytes = 0;
    in.device = (struct plan_device){ .present = true, .memory_bytes = memory };
    return in;
}

static void cure_is(const struct plan_input *in, const char *want, const char *what)
{
    char text[400];
    struct plan p;

    plan_compute(in, &p);
    tap_is_str(plan_cure(in, &p, text, sizeof(text)), want, "%s", what);
}

static void test_cure(void)
{
    struct config c = fsdp(SHARD_NONE, PRECISION_NO);
    struct plan_input in = too_large(&c, 0);
    /* memory from WHOLE on: that of copies, 1792 * 16 and sums in rank order; sharded,
     * padded to 128: 448 * 16 + (1024 + 384) * 4 + 2 * 1024 * 4 = 20992; over 8: 256 *
     * 16 + (1024 + 512) * 4 + 2 * 1024 * 4 = 18432 */
    enum { WHOLE = 1 << 24 };
    static const struct {
        int64_t memory, activations, recomputed;
        int batch;
        const char *want, *what;
    } t[] = {
        { 21000, 0, 0, 0, "fsdp_sharding_strategy: FULL_SHARD (20.5 KiB)", "sharding" },
        { 20992, 0, 0, 0, "fsdp_sharding_strategy: FULL_SHARD (20.5 KiB)",
          "to the last byte" },
        { 20991, 0, 0, 0, "FULL_SHARD over 8 GPUs (18.0 KiB)", "more GPUs" },
        { WHOLE + 1024, 4096, 1024, 0,
          "fsdp_sharding_strategy: FULL_SHARD (24.5 KiB); "
          "fsdp_activation_checkpointing: true (35.2 KiB)",
          "recomputed activations" },
        { WHOLE + 1023, 1 << 20, 1024, 0,
          "fsdp_sharding_strategy: FULL_SHARD and fsdp_activation_checkpointing: true "
          "(21.5 KiB)",
          "both" },
        { WHOLE + 4096, 1 << 14, 0, 8,
          "fsdp_sharding_strategy: FULL_SHARD (36.5 KiB); a batch of 2 and 4 "
          "micro-batches a step (38.2 KiB); fsdp_activation_checkpointing: true needs "
          "less for activations",
          "a smaller batch" },
        { WHOLE + 4095, 1 << 14, 0, 8,
          "fsdp_sharding_strategy: FULL_SHARD (36.5 KiB); a batch of 1 and 8 "
          "micro-batches a step (36.2 KiB); fsdp_activation_checkpointing: true needs "
          "less for activations",
          "one byte less: a smaller one" },
        { 20992 + 512, 1 << 14, 4096, 8,
          "fsdp_sharding_strategy: FULL_SHARD, fsdp_activation_checkpointing: true and "
          "a "
          "batch of 1 and 8 micro-batches a step (21.0 KiB)",
          "three together" },
        { 20992 + 511, 1 << 14, 4096, 8,
          "FULL_SHARD over 8 GPUs and a batch of 1 and 8 micro-batches a step (20.0 "
          "KiB)",
          "more GPUs, and what that makes needless is left out" },
        { 20992 + 4096, 1 << 14, 4096, 8,
          "fsdp_sharding_strategy: FULL_SHARD and fsdp_activation_checkpointing: true "
          "(24.5 KiB)",
          "what is not needed is left out" },
    };
    struct plan p;
    int64_t whole;

    plan_compute(&in, &p);
    whole = p.total_bytes;
    tap_ok(whole > 1792 * 16, "copies and the sums of ranks");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(t); i++) {
        in.device.memory_bytes =
            t[i].memory < WHOLE ? t[i].memory : t[i].memory - WHOLE + whole;
        in.activation_bytes = t[i].activations;
        in.recomputed_bytes = t[i].recomputed;
        in.batch = t[i].batch;
        cure_is(&in, t[i].want, t[i].what);
    }
}

/* Where no single remedy is enough, or none at all. */
static void test_cure_limits(void)
{
    struct config c = fsdp(SHARD_NONE, PRECISION_NO);
    struct plan_input in = too_large(&c, 0);
    char text[400], little[20];
    struct plan p;

    in.device.memory_bytes = 15000;
    cure_is(&in, "fsdp_offload_params: true (14.5 KiB)",
            "the host where no number of GPUs is enough");
    in.device.memory_bytes = 100;
    cure_is(&in,
            "use a smaller model, or GPUs with more memory; still too large: "
            "fsdp_sharding_strategy: FULL_SHARD and fsdp_offload_params: true (14.5 "
            "KiB)",
            "nothing is enough");
    in.rewrapped = true;
    in.device.memory_bytes = 21000;
    cure_is(&in,
            "fsdp_sharding_strategy: FULL_SHARD and fsdp_auto_wrap_policy: "
            "TRANSFORMER_BASED_WRAP (20.5 KiB)",
            "units of other sizes than the config's are said");
    plan_compute(&in, &p);
    in.device.memory_bytes = p.total_bytes;
    tap_ok(strstr(plan_cure(&in, &p, text, sizeof(text)),
                  "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP (34.2 KiB); ") == text,
           "and may be enough");
    plan_cure(&in, &p, little, sizeof(little));
    tap_is_int((long long)strlen(little), 0, "half a sentence is none");
}

/* What is left for logits: a 15/16 of the memory without the plan, and the guess of
 * what is there before it, for two ranks 1.25 GiB. */
static void test_spare(void)
{
    struct config c = fsdp(SHARD_FULL, PRECISION_NO);
    struct plan_input in = input(&c, 2, 1);
    const int64_t guess = plan_base_guess(2), gib = (int64_t)1 << 30;
    struct plan p;
    int64_t spare;

    tap_is_int(plan_spare_bytes(&in), 0, "no device: nothing to spare");
    in.device.present = true;
    tap_is_int(plan_spare_bytes(&in), 0, "nor where its memory is not known");
    in.device.memory_bytes = 16 * gib;
    plan_compute(&in, &p);
    spare = plan_spare_bytes(&in);
    tap_is_int(guess, 5 * gib / 4, "the guess");
    tap_is_int(spare, 15 * gib - guess - p.total_bytes, "15/16 less the plan");
    in.device.base_bytes = 4 * gib;
    in.kept_bytes = 3 * gib;
    tap_is_int(plan_spare_bytes(&in), spare,
               "whatever was measured, and whatever is kept");
    in.device.memory_bytes = gib;
    tap_is_int(plan_spare_bytes(&in), 0, "a small device has none");
}

/* The key that shards, in the words of the config's engine. */
static void test_cure_words(void)
{
    static const struct {
        enum distributed_type type;
        const char *want;
    } t[] = {
        { DIST_FSDP, "fsdp_sharding_strategy: FULL_SHARD (20.5 KiB)" },
        { DIST_MULTI_GPU, "distributed_type: FSDP (20.5 KiB)" },
        { DIST_DEEPSPEED, "zero_stage: 3 (20.5 KiB)" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(t); i++) {
        struct config c = fsdp(SHARD_NONE, PRECISION_NO);
        struct plan_input in = too_large(&c, 21000);

        c.distributed_type = t[i].type;
        cure_is(&in, t[i].want, t[i].want);
    }
}

int main(void)
{
    test_padding();
    test_full();
    test_scaled_wire();
    test_coded();
    test_whole();
    test_strategies();
    test_offload();
    test_mesh();
    test_interval();
    test_print();
    test_codes();
    test_frozen();
    test_device();
    test_background();
    test_cure();
    test_cure_limits();
    test_cure_words();
    test_spare();
    return tap_done();
}
