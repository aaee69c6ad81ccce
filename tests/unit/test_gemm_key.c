/* SPDX-License-Identifier: Apache-2.0
 *
 * What the CUDA backend leaves to cuBLASLt's epilogues, and what makes two products
 * differ for the table of algorithms. Scratch sizes of convolutions. No toolkit, no
 * device.
 */
#include "backend/cuda/gemm/gemm_key.h"
#include "backend/cuda_sizes.h"
#include "tests/tap.h"

enum { F = ACCEL_F32, B = ACCEL_BF16 };

static _Alignas(64) char memory[4096];

static struct gemm product(accel_dtype_t in, accel_dtype_t out)
{
    return (struct gemm){ .m = 4,
                          .n = 16,
                          .k = 8,
                          .a = memory,
                          .b = memory + 1024,
                          .a_type = in,
                          .b_type = in,
                          .lda = 8,
                          .ldb = 16,
                          .c = memory + 2048,
                          .c_type = out,
                          .ldc = 16 };
}

static const struct way_case {
    const char *name;
    int in, out;
    int bias; /* its type, or -1 */
    accel_activation_t act;
    bool pre;
    int fused;
    bool after, wide;
} ways[] = {
    { "plain", F, F, -1, ACCEL_ACT_NONE, false, GEMM_PLAIN, false, false },
    { "plain", B, B, -1, ACCEL_ACT_NONE, false, GEMM_PLAIN, false, false },
    { "to float32", B, F, -1, ACCEL_ACT_NONE, false, GEMM_PLAIN, false, false },
    { "to bfloat16", F, B, -1, ACCEL_ACT_NONE, false, GEMM_PLAIN, true, true },
    { "bias", F, F, F, ACCEL_ACT_NONE, false, GEMM_BIAS, false, false },
    { "bias", B, B, B, ACCEL_ACT_NONE, false, GEMM_BIAS, false, false },
    { "narrow bias", B, F, B, ACCEL_ACT_NONE, false, GEMM_BIAS, false, false },
    { "wide bias", B, B, F, ACCEL_ACT_NONE, false, GEMM_PLAIN, true, true },
    { "GELU", B, B, -1, ACCEL_ACT_GELU, false, GEMM_GELU, false, false },
    { "GELU", B, B, B, ACCEL_ACT_GELU, true, GEMM_GELU | GEMM_BIAS | GEMM_PRE, false,
      false },
    { "GELU in float32", F, F, F, ACCEL_ACT_GELU, true, GEMM_PLAIN, true, false },
    { "GELU to float32", B, F, -1, ACCEL_ACT_GELU, false, GEMM_PLAIN, true, false },
    { "erf GELU", B, B, B, ACCEL_ACT_GELU_ERF, true, GEMM_PLAIN, true, true },
    { "SiLU", B, B, -1, ACCEL_ACT_SILU, false, GEMM_PLAIN, true, true },
    { "RELU", B, B, B, ACCEL_ACT_RELU, false, GEMM_BIAS, true, false },
    { "RELU", F, F, F, ACCEL_ACT_RELU, false, GEMM_BIAS, true, false },
    { "RELU and before", B, B, B, ACCEL_ACT_RELU, true, GEMM_PLAIN, true, true },
    { "squared RELU", F, F, -1, ACCEL_ACT_RELU2, true, GEMM_PLAIN, true, false },
};

static void test_ways(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(ways); i++) {
        const struct way_case *c = &ways[i];
        struct gemm p = product((accel_dtype_t)c->in, (accel_dtype_t)c->out);
        struct gemm_way way;

        p.bias = c->bias >= 0 ? memory + 3072 : NULL;
        p.bias_type = c->bias >= 0 ? (accel_dtype_t)c->bias : ACCEL_F32;
        p.act = c->act;
        p.pre = c->pre ? memory + 3584 : NULL;
        way = gemm_way_of(&p);
        tap_ok(way.fused == c->fused && way.after == c->after && way.wide == c->wide,
               "%s, %s to %s: fused %d, kernel %d, wide %d", c->name,
               accel_dtype_name((accel_dtype_t)c->in),
               accel_dtype_name((accel_dtype_t)c->out), way.fused, way.after, way.wide);
    }
}

/* Beside 8-bit operands no bias is float32. Where c has no room for all rows that are
 * made, our kernel finishes float32 sums, forward and back. */
static void test_fp8(void)
{
    struct gemm p = product(ACCEL_F8E4M3, ACCEL_F32);
    struct gemm_way way;

    p.bias = memory + 3072;
    p.bias_type = ACCEL_BF16;
    way = gemm_way_of(&p);
    tap_ok(way.fused == GEMM_PLAIN && way.after && !way.wide,
           "8 bits to float32: a kernel adds the bias, in place");
    p.c_type = ACCEL_BF16;
    tap_is_int(gemm_way_of(&p).fused, GEMM_BIAS, "to bfloat16: the product does");
    p.a_blocks.padded = true;
    p.m = 8;
    tap_is_int(gemm_way_of(&p).fused, GEMM_BIAS, "8 rows: all have room");
    p.m = 9;
    tap_is_int(gemm_rows(&p), 16, "9 rows: 16 are made");
    for (int back = 0; back < 2; back++) {
        p.act_grad = back;
        way = gemm_way_of(&p);
        tap_ok(way.fused == GEMM_PLAIN && way.after && way.wide, "in scratch, back: %d",
               back);
        p.c_type = ACCEL_F32;
        tap_ok(gemm_way_plain(&p).wide, "in float32, too");
    }
}

/* The saved value has rows of whole 16 bytes, or an own kernel saves it. */
static void test_saved(void)
{
    struct gemm p = product(ACCEL_BF16, ACCEL_BF16);

    p.act = ACCEL_ACT_GELU;
    p.pre = memory + 3584;
    tap_is_int(gemm_way_of(&p).fused, GEMM_GELU | GEMM_PRE, "rows of 32 bytes");
    p.ldc = 20;
    tap_is_int(gemm_way_of(&p).fused, GEMM_PLAIN, "rows of 40 bytes");
    p.ldc = 16;
    p.pre = memory + 3586;
    tap_is_int(gemm_way_of(&p).fused, GEMM_PLAIN, "an address of 2 bytes");
    p.pre = NULL;
    tap_is_int(gemm_way_of(&p).fused, GEMM_GELU, "nothing saved");
    p.ldc = 20;
    tap_is_int(gemm_way_of(&p).fused, GEMM_PLAIN,
               "rows of 40 bytes, nothing saved: as where it is");
}

static const struct back_case {
    const char *name;
    int in, out;
    accel_activation_t act;
    bool slope, sums;
    int ldc, fused;
    bool after, wide;
} backs[] = {
    { "slope", B, B, ACCEL_ACT_GELU, true, false, 16, GEMM_SLOPE, false, false },
    { "slope, odd rows", B, B, ACCEL_ACT_GELU, true, false, 20, 0, true, false },
    { "slope in float32", F, F, ACCEL_ACT_GELU, true, false, 16, 0, true, false },
    { "slope, rounded", F, B, ACCEL_ACT_GELU, true, false, 16, 0, true, true },
    { "slope of erf GELU", B, B, ACCEL_ACT_GELU_ERF, true, false, 16, 0, true, false },
    { "slope of RELU", B, B, ACCEL_ACT_RELU, true, false, 16, 0, true, false },
    { "sums", B, F, ACCEL_ACT_NONE, false, true, 16, GEMM_SUMS, false, false },
    { "sums in float32", F, F, ACCEL_ACT_NONE, false, true, 16, GEMM_SUMS, false,
      false },
    { "sums that would be rounded", B, B, ACCEL_ACT_NONE, false, true, 16, 0, false,
      false },
    { "both", B, B, ACCEL_ACT_GELU, true, true, 16, GEMM_SLOPE, false, false },
};

/* The backward's: what an epilogue does, and that without it own kernels do the
 * same. */
static void test_backs(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(backs); i++) {
        const struct back_case *c = &backs[i];
        struct gemm p = product((accel_dtype_t)c->in, (accel_dtype_t)c->out);
        struct gemm_way way, plain;
        float sums[4];

        p.act = c->act;
        p.act_grad = c->slope;
        p.pre = c->slope ? memory + 3584 : NULL;
        p.row_sums = c->sums ? sums : NULL;
        p.ldc = c->ldc;
        way = gemm_way_of(&p);
        plain = gemm_way_plain(&p);
        tap_ok(way.fused == c->fused && way.after == c->after && way.wide == c->wide,
               "%s: fused %d, kernel %d, wide %d", c->name, way.fused, way.after,
               way.wide);
        tap_ok(plain.fused == GEMM_PLAIN && plain.after == c->slope &&
                   plain.wide == c->wide,
               "%s, no epilogue: kernel %d, wide %d", c->name, plain.after, plain.wide);
    }
}

enum { CHANGES = 14 };

/* Products that differ from p in one thing each. */
static void change_each(const struct gemm *p, struct gemm q[CHANGES])
{
    for (int i = 0; i < CHANGES; i++)
        q[i] = *p;
    q[0].m++;
    q[1].n--;
    q[2].k--;
    q[3].lda = 9;
    q[4].ldb = 17;
    q[5].ldc = 17;
    q[6].trans_a = true;
    q[7].trans_b = true;
    q[8].add = true;
    q[9].a_type = q[9].b_type = ACCEL_BF16;
    q[10].c_type = ACCEL_BF16;
    q[11].a = memory + 2;
    q[12].b = memory + 1028;
    q[13].c = memory + 2056;
}

static void test_keys(void)
{
    const struct gemm p = product(ACCEL_F32, ACCEL_F32);
    struct gemm far = p, q = p, changed[CHANGES];
    struct gemm_key key = gemm_key_of(&p, GEMM_PLAIN), other;
    int differ = 0;

    far.a = memory + 128;
    far.c = memory + 2048 + 16;
    other = gemm_key_of(&far, GEMM_PLAIN);
    tap_ok(gemm_key_equal(&key, &other) && gemm_key_hash(&key) == gemm_key_hash(&other),
           "other addresses of 16 bytes: the same key");
    change_each(&p, changed);
    for (int i = 0; i < CHANGES; i++) {
        other = gemm_key_of(&changed[i], GEMM_PLAIN);
        differ += !gemm_key_equal(&key, &other);
    }
    tap_is_int(differ, CHANGES,
               "each of shape, rows, order, types and alignment counts");
    q.bias = memory + 4;
    other = gemm_key_of(&q, GEMM_BIAS);
    tap_ok(!gemm_key_equal(&key, &other), "so does what the epilogue does");
    key = other;
    q.bias = memory + 8;
    other = gemm_key_of(&q, GEMM_BIAS);
    tap_ok(!gemm_key_equal(&key, &other), "and where the bias begins");
    q.pre = memory + 16;
    key = gemm_key_of(&q, GEMM_SLOPE);
    q.pre = memory + 8;
    other = gemm_key_of(&q, GEMM_SLOPE);
    tap_ok(!gemm_key_equal(&key, &other), "and the value that a slope is made from");
}

static void test_sizes(void)
{
    struct conv p = { .type = ACCEL_BF16,
                      .batch = 64,
                      .channels = 64,
                      .height = 56,
                      .width = 56,
                      .outputs = 64,
                      .kernel_h = 3,
                      .kernel_w = 3,
                      .out_h = 56,
                      .out_w = 56,
                      .stride = 1,
                      .pad = 1 };
    struct cuda_conv_plan c = cuda_conv_plan_of(&p);

    tap_ok(c.chunk % 8 == 0 && c.chunk > 0 && c.chunk < c.all,
           "many images: some places at a time");
    tap_ok(c.images > 1 && c.channels == 64, "gradient of x: some images at a time");
    tap_ok(cuda_conv_bytes(&p, false) <= (size_t)CUDA_CONV_BYTES + 256 &&
               cuda_conv_bytes(&p, true) <= (size_t)CUDA_CONV_BYTES + (1 << 20),
           "scratch stays within its bound");
    p.height = p.width = p.out_h = p.out_w = 2048;
    c = cuda_conv_plan_of(&p);
    tap_ok(c.images == 1 && c.channels == 1, "one huge image: a channel at a time");
    p.batch = 0;
    c = cuda_conv_plan_of(&p);
    tap_ok(c.all == 0 && c.chunk == 1 && cuda_conv_bytes(&p, true) > 0,
           "no image: still a size");
}

int main(void)
{
    test_ways();
    test_saved();
    test_fp8();
    test_backs();
    test_keys();
    test_sizes();
    return tap_done();
}
