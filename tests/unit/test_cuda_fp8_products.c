/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of 8-bit floats of the CUDA backend beside those of the CPU, with a scale or
 * with scales of blocks: rows of any number, passes, what the library has no algorithm
 * for. What only the stand-in can be is left out on a GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/cuda_counts.h"
#include "tests/world/cuda_device.h"
#include "tests/unit/cuda_rig.h"

static void (*fake_reset)(void); /* NULL: a GPU */

/* The epilogues but for BIAS that are fused: GELU and GELU_BIAS, the same with AUX, and
 * DGELU. */
#define EVALUATIONS "32,36"
#define TRAININGS   "160,164"
#define ALL         "4," EVALUATIONS "," TRAININGS ",192"

static const struct product {
    const char *name;
    accel_dtype_t a, c;
    bool bias, pre, add, act_grad;
    accel_activation_t act;
} products[] = {
    { "plain", ACCEL_F8E4M3, ACCEL_BF16, false, false, false, false, ACCEL_ACT_NONE },
    { "bias", ACCEL_F8E4M3, ACCEL_BF16, true, false, false, false, ACCEL_ACT_NONE },
    { "bias to float32", ACCEL_F8E4M3, ACCEL_F32, true, false, false, false,
      ACCEL_ACT_NONE },
    { "SiLU", ACCEL_F8E4M3, ACCEL_BF16, true, true, false, false, ACCEL_ACT_SILU },
    { "GELU", ACCEL_F8E4M3, ACCEL_BF16, true, false, false, false, ACCEL_ACT_GELU },
    { "GELU, saved", ACCEL_F8E4M3, ACCEL_BF16, true, true, false, false,
      ACCEL_ACT_GELU },
    { "gradient", ACCEL_F8E5M2, ACCEL_BF16, false, false, true, false, ACCEL_ACT_NONE },
    { "gradient before GELU", ACCEL_F8E5M2, ACCEL_BF16, false, true, false, true,
      ACCEL_ACT_GELU },
    { "gradient of the weight", ACCEL_F8E5M2, ACCEL_F32, false, false, true, false,
      ACCEL_ACT_NONE },
};

struct shape {
    int64_t m, n, k;
};

/* Rows that are multiples of 16 and of nothing, and lines of more than a block. */
static const struct shape shapes[] = {
    { 1, 16, 16 }, { 21, 48, 144 }, { 64, 272, 32 }, { 130, 144, 400 }
};
/* Sums of 4.4 and of 64.3 MiB: a small device has room for 2 MiB, any for 64 MiB. */
static const struct shape tall = { 2256, 512, 16 }, taller = { 65801, 256, 16 };

enum { GUARD = 8 };

struct pair {
    struct gemm host, device;
};

/* Numbers [lines, k] as an operand of both sides. `scale` is a power of two: what comes
 * of it is exact in bfloat16. */
static void one_scale(struct cuda_rig *rig, struct cuda_array wide, int64_t n,
                      accel_dtype_t type, float scale, const void *code[2],
                      const float *inverse[2])
{
    const float by = 1 / scale;
    struct cuda_array narrow = cuda_rig_values(rig, ACCEL_U8, n, 1.0f);
    struct cuda_array one = cuda_rig_values(rig, ACCEL_F32, 1, 1.0f);

    rig->cpu->quantize(rig->cpu, narrow.host, type, wide.host, ACCEL_F32, n, &scale,
                       NULL);
    rig->device->from_host(rig->device, narrow.device, narrow.host, (size_t)n);
    rig->device->from_host(rig->device, one.device, &by, sizeof(by));
    *(float *)one.host = by;
    code[0] = narrow.host;
    code[1] = narrow.device;
    inverse[0] = one.host;
    inverse[1] = one.device;
}

/* The same in blocks of 128, whose scales lie as each side has them. */
static void block_scales(struct cuda_rig *rig, struct cuda_array wide, int64_t lines,
                         int64_t k, accel_dtype_t type, bool square,
                         const void *code[2], struct block_scales s[2])
{
    const int64_t across = (k + 127) / 128, rows = block_lines(lines);
    struct cuda_array codes = cuda_rig_values(rig, ACCEL_U8, rows * k, 1.0f);
    struct cuda_array scales =
        cuda_rig_values(rig, ACCEL_F32, (lines + 128) * (across + 3), 1.0f);

    s[0] = (struct block_scales){ .inverse = scales.host,
                                  .height = square ? 128 : 1,
                                  .width = 128,
                                  .cols = k,
                                  .row_step = across,
                                  .col_step = 1 };
    s[1] = s[0];
    s[1].inverse = scales.device;
    if (rig->device->fp8 == BACKEND_FP8_WHOLE) {
        s[1].tiles = across;
    } else if (square) {
        s[1].row_step = (across + 3) / 4 * 4;
    } else {
        s[1].padded = true;
        s[1].row_step = 1;
        s[1].col_step = rows;
    }
    code[0] = codes.host;
    code[1] = codes.device;
    rig->cpu->quantize_blocks(rig->cpu, (void *[]){ codes.host, NULL }, type, wide.host,
                              ACCEL_F32, lines, (struct block_scales[2]){ s[0] });
    rig->device->quantize_blocks(rig->device, (void *[]){ codes.device, NULL }, type,
                                 wide.device, ACCEL_F32, lines,
                                 (struct block_scales[2]){ s[1] });
}

/* Random numbers [lines, k], whose magnitudes differ from block to block of `height`
 * lines and 128 numbers. */
static struct cuda_array uneven(struct cuda_rig *rig, int64_t lines, int64_t k,
                                int64_t height)
{
    struct cuda_array a = cuda_rig_values(rig, ACCEL_F32, lines * k, 1.0f);
    float *v = a.host;

    for (int64_t i = 0; i < lines * k; i++)
        v[i] *= (float)(1 << (i / k / height % 3 + i % k / 128 % 2));
    rig->device->from_host(rig->device, a.device, a.host,
                           (size_t)(lines * k) * sizeof(*v));
    return a;
}

static void operands(struct cuda_rig *rig, struct pair *o, bool blocks)
{
    struct gemm *p = &o->host, *d = &o->device;
    struct cuda_array a = uneven(rig, p->m, p->k, 1);
    struct cuda_array b = uneven(rig, p->n, p->k, 128);
    struct block_scales of_a[2] = { { NULL } }, of_b[2] = { { NULL } };
    const float *by_a[2] = { NULL }, *by_b[2] = { NULL };
    const void *in_a[2], *in_b[2];

    if (blocks) {
        block_scales(rig, a, p->m, p->k, p->a_type, false, in_a, of_a);
        block_scales(rig, b, p->n, p->k, p->b_type, true, in_b, of_b);
    } else {
        one_scale(rig, a, p->m * p->k, p->a_type, 64, in_a, by_a);
        one_scale(rig, b, p->n * p->k, p->b_type, 16, in_b, by_b);
    }
    for (int i = 0; i < 2; i++) {
        struct gemm *to = i ? d : p;

        to->a = in_a[i];
        to->a_inverse = by_a[i];
        to->a_blocks = of_a[i];
        to->b = in_b[i];
        to->b_inverse = by_b[i];
        to->b_blocks = of_b[i];
    }
}

static void make_pair(struct pair *o, struct cuda_rig *rig, const struct product *t,
                      const struct shape *s, bool blocks)
{
    const int64_t room = (s->m + GUARD) * s->n;
    struct cuda_array c = cuda_rig_values(rig, t->c, room, 1.0f), pre, bias;
    struct gemm *p = &o->host, *d = &o->device;

    *p = (struct gemm){ .trans_b = true,
                        .m = s->m,
                        .n = s->n,
                        .k = s->k,
                        .a_type = t->a,
                        .b_type = ACCEL_F8E4M3,
                        .fast = !t->add && !t->act_grad,
                        .lda = s->k,
                        .ldb = s->k,
                        .c = c.host,
                        .c_type = t->c,
                        .ldc = s->n,
                        .add = t->add,
                        .bias_type = ACCEL_BF16,
                        .act = t->act,
                        .act_grad = t->act_grad };
    *d = *p;
    d->c = c.device;
    operands(rig, o, blocks);
    if (t->pre) {
        pre = cuda_rig_values(rig, t->c, room, 1.0f);
        p->pre = pre.host;
        d->pre = pre.device;
    }
    if (t->bias) {
        bias = cuda_rig_values(rig, ACCEL_BF16, s->n, 1.0f);
        p->bias = bias.host;
        d->bias = bias.device;
    }
}

/* What the device makes, twice the same, and nothing behind the last row; the worst
 * distance of c and of the value before. The bits: *bits_out, if wanted. */
static double distance(struct cuda_rig *rig, const struct product *t,
                       const struct shape *s, bool blocks, bool *good, void **bits_out)
{
    const size_t each = accel_dtype_bytes(t->c);
    const int64_t n = s->m * s->n, room = n + GUARD * s->n;
    const struct backend *be = rig->device;
    struct pair o;
    void *before, *once;
    double worst, other;

    make_pair(&o, rig, t, s, blocks);
    before = cuda_rig_copy(rig, o.host.c, (size_t)room * each);
    rig->cpu->gemm(rig->cpu, &o.host);
    be->gemm(be, &o.device);
    once = cuda_rig_fetch(rig, o.device.c, (size_t)room * each);
    be->from_host(be, o.device.c, before, (size_t)room * each);
    be->gemm(be, &o.device);
    *good = *good &&
            !memcmp(once, cuda_rig_fetch(rig, o.device.c, (size_t)room * each),
                    (size_t)room * each) &&
            !memcmp((char *)once + (size_t)n * each, (char *)before + (size_t)n * each,
                    (size_t)(room - n) * each);
    worst = cuda_rig_distance(o.host.c, once, t->c, n);
    if (t->pre) {
        void *pre = cuda_rig_fetch(rig, o.device.pre, (size_t)room * each);

        other = cuda_rig_distance(o.host.pre, pre, t->c, room);
        worst = other > worst ? other : worst;
    }
    if (bits_out)
        *bits_out = memcpy(malloc((size_t)n * each), once, (size_t)n * each);
    cuda_rig_reset(rig);
    return worst;
}

static bool has_blocks(const struct cuda_rig *rig, bool blocks)
{
    return !blocks || rig->device->fp8_blocks & BACKEND_BLOCKS_128;
}

/* Every product in every shape. */
static void test_products(struct cuda_rig *rig, const char *how)
{
    for (int blocks = 0; blocks < 2 && has_blocks(rig, blocks); blocks++)
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(products); i++) {
            double worst = 0;
            bool good = true;

            for (size_t k = 0; k < ACCEL_ARRAY_SIZE(shapes); k++) {
                double d = distance(rig, &products[i], &shapes[k], blocks, &good, NULL);

                worst = d > worst ? d : worst;
            }
            tap_ok(worst <= 1.0 && good, "%s, %s, %s: %.2f of the bound", how,
                   blocks ? "blocks" : "one scale", products[i].name, worst);
        }
}

/* A machine whose environment is like that; the variables are gone with it. */
static const struct machine {
    const char *name;
    const char *variable[3][2];
    bool widens;
} machines[] = {
    { "all there is", { { NULL } }, false },
    { "capability 10.0", { { "FAKE_CUDA_CAPABILITY", "100" } }, false },
    { "no epilogues", { { "FAKE_CUDA_NO_FP8_EPILOGUES", ALL } }, false },
    { "epilogues refused",
      { { "FAKE_CUDA_REFUSE_EPILOGUES", ALL }, { "FAKE_CUDA_REFUSAL", "7" } },
      false },
    { "no algorithm", { { "FAKE_CUDA_NO_TYPES", "28,29" } }, true },
    { "no algorithm for gradients",
      { { "FAKE_CUDA_NO_TYPES", "29" }, { "FAKE_CUDA_REFUSAL", "7" } },
      true },
    { "refused", { { "FAKE_CUDA_REFUSE_TYPES", "28,29" } }, true },
    { "refused as invalid",
      { { "FAKE_CUDA_REFUSE_TYPES", "28,29" }, { "FAKE_CUDA_REFUSAL", "7" } },
      true },
    { "no algorithm on 10.0",
      { { "FAKE_CUDA_NO_TYPES", "28,29" }, { "FAKE_CUDA_CAPABILITY", "100" } },
      true },
};

static void open_machine(struct cuda_rig *rig, const struct machine *m)
{
    for (int i = 0; i < 3 && m->variable[i][0]; i++)
        setenv(m->variable[i][0], m->variable[i][1], 1);
    if (fake_reset)
        fake_reset();
    cuda_rig_open(rig);
}

static void close_machine(struct cuda_rig *rig, const struct machine *m)
{
    cuda_rig_close(rig);
    for (int i = 0; i < 3 && m->variable[i][0]; i++)
        unsetenv(m->variable[i][0]);
}

/* How often the second is in the first. */
static int times(const char *text, const char *what)
{
    int n = 0;

    while ((text = strstr(text, what))) {
        text += strlen(what);
        n++;
    }
    return n;
}

static void test_machine(const struct machine *m)
{
    struct cuda_rig rig;

    open_machine(&rig, m);
    test_products(&rig, m->name);
    if (fake_reset)
        tap_ok(times(rig.device->isa, "no algorithm: e") == m->widens &&
                   (rig.device->advice != NULL) == m->widens,
               "%s: said %s", m->name, m->widens ? "once" : "not");
    close_machine(&rig, m);
}

/* More than one pass has, of rows or of columns: in `memories` the same bits. */
static void test_passes(const struct shape *s, const char *capability, int memories)
{
    const struct machine sizes[] = {
        { "",
          { { "FAKE_CUDA_MEMORY", "17179869184" },
            { "FAKE_CUDA_CAPABILITY", capability } },
          false },
        { "",
          { { "FAKE_CUDA_MEMORY", "402653184" },
            { "FAKE_CUDA_CAPABILITY", capability } },
          false },
    };
    double worst = 0;
    void *bits[2] = { NULL };
    bool good = true;

    for (int i = 0; i < memories; i++) {
        struct cuda_rig rig;
        double d;

        open_machine(&rig, &sizes[i]);
        d = distance(&rig, &products[3], s, has_blocks(&rig, true), &good, &bits[i]);
        worst = d > worst ? d : worst;
        close_machine(&rig, &sizes[i]);
    }
    for (int i = 1; i < memories; i++)
        good = good && !memcmp(bits[0], bits[i], (size_t)(s->m * s->n) * 2);
    tap_ok(good && worst <= 1.0,
           "%s: %lld rows of %lld in %d memories: %.2f of the bound", capability,
           (long long)s->m, (long long)s->n, memories, worst);
    free(bits[0]);
    free(bits[1]);
}

/* Kernels that a GELU takes: the product's, and one of our own where that has none. */
static uint64_t kernels_of(struct cuda_rig *rig, const struct product *t)
{
    struct fakecuda_counts from = { 0 };
    const struct backend *be = rig->device;
    struct pair o;
    uint64_t n;

    make_pair(&o, rig, t, &shapes[2], false);
    be->sync(be, NULL);
    from = counted(NULL);
    be->gemm(be, &o.device);
    be->sync(be, NULL);
    n = counted(&from).launches;
    cuda_rig_reset(rig);
    return n;
}

/* What a training makes, with the value before saved, is made in the same way by an
 * evaluation, whichever comes first, and where only one of them has an algorithm. */
static void test_alike(const char *lacks, int first)
{
    const struct machine m = { "", { { "FAKE_CUDA_NO_FP8_EPILOGUES", lacks } }, false };
    const struct product *const both[] = { &products[4], &products[5] };
    struct cuda_rig rig;
    uint64_t n[2];

    open_machine(&rig, &m);
    n[0] = kernels_of(&rig, both[first]);
    n[1] = kernels_of(&rig, both[!first]);
    tap_ok(n[0] == n[1] && n[0] == (*lacks ? 2 : 1),
           "no %s, %s first: %llu and %llu kernels", *lacks ? lacks : "gaps",
           first ? "training" : "evaluation", (unsigned long long)n[0],
           (unsigned long long)n[1]);
    close_machine(&rig, &m);
}

/* With nothing left to try, the message has what an algorithm may be lacking for. */
static void test_message(void)
{
    const struct machine m = { "", { { "FAKE_CUDA_NO_TYPES", "14,28,29" } }, false };
    struct cuda_rig rig;
    accel_error_t err = { .text = "" };
    struct pair o;

    open_machine(&rig, &m);
    make_pair(&o, &rig, &products[0], &shapes[2], true);
    rig.device->gemm(rig.device, &o.device);
    tap_ok(rig.device->sync(rig.device, &err) &&
               strstr(err.text,
                      "e4m3 in lines x e4m3 in squares transposed to bfloat16, "
                      "m 64, n 272, k 32, rows of 32, 32, 272, aligned to "
                      "16, 16, 16"),
           "%s", err.text);
    cuda_rig_reset(&rig);
    free(rig.host);
    free(rig.room);
    backend_close(rig.device);
    backend_close(rig.cpu);
    unsetenv(m.variable[0][0]);
}

int main(void)
{
    struct backend *be = cuda_device();

    if (be->fp8 == BACKEND_FP8_NONE)
        tap_skip_all("the device has no 8-bit products");
    backend_close(be);
    cuda_stand_in("fakecuda_reset", &fake_reset);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(machines); i++)
        if (fake_reset || !i)
            test_machine(&machines[i]);
    test_passes(&tall, "90", 2);
    test_passes(&taller, "90", 1);
    test_passes(&taller, "100", 1);
    for (int first = 0; fake_reset && first < 2; first++) {
        test_alike("", first);
        test_alike(TRAININGS, first);
        test_alike(EVALUATIONS, first);
    }
    if (fake_reset)
        test_message();
    return tap_done();
}
