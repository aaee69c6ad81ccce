/* SPDX-License-Identifier: Apache-2.0
 *
 * Scales and exponents of masters and moments that no save writes, and words of their
 * forms that nobody knows: refused, with the tensor, the number and the word. And forms
 * that GPUs do not have.
 */
#include <string.h>

#include "training/fp8_scaling.h"
#include "backend/device.h"
#include "precision/levels.h"
#include "precision/policy.h"
#include "handle/run.h"
#include "training/master_weights.h"
#include "training/moments_form.h"
#include "training/parts.h"
#include "tests/tap.h"
#include "tests/world/run_net.h"

/* Exponents of float16 masters that a save never writes, and words of their form. */
static void test_damaged_masters(void)
{
    uint8_t exponent[] = { 0, 2, 127, 240 };
    const accel_ckpt_box_t box = { .name = "scale/w",
                                   .dtype = ACCEL_U8,
                                   .ndim = 1,
                                   .offset = { 8 },
                                   .shape = { 4 },
                                   .data = exponent };
    static const uint8_t bad[] = { 1, 241, 255 };
    accel_dtype_t type;
    accel_error_t err = { 0 };

    tap_ok(!shard_check_scales(&box, 1, "step_1", &err), "0 and 2 to 240 are good");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(bad); i++) {
        exponent[3] = bad[i];
        shard_check_scales(&box, 1, "step_1", &err);
        tap_ok(run_net_says(&err, A0999,
                            "scale/w has an exponent that no save writes: number 11"),
               "%d is refused", bad[i]);
    }
    tap_ok(!masters_find("step_1", "a=1\n", &type, &err) && type == ACCEL_F32,
           "no line: float32");
    tap_ok(!masters_find("step_1", "masters=fp16\n", &type, &err) && type == ACCEL_F16,
           "fp16");
    tap_ok(!masters_find("step_1", "masters=none\n", &type, &err) && type == ACCEL_BF16,
           "none: bfloat16");
    masters_find("step_1", "masters=fp17\n", &type, &err);
    tap_ok(run_net_says(&err, A0999, "the form of its masters is not known: 'fp17'"),
           "another word is refused");
}

/* The same of moments in e4m3 and float16, whose limits differ. */
static void test_damaged_moments(void)
{
    uint8_t exponent[] = { 2, 240, 247 };
    accel_ckpt_box_t box = { .name = "optim/w/exp_avg.scale",
                             .dtype = ACCEL_U8,
                             .ndim = 1,
                             .shape = { 3 },
                             .data = exponent };
    static accel_t run;
    accel_moments_t forms[ACCEL_MAX_OPTIMS];
    accel_error_t err = { 0 };

    tap_ok(!shard_check_scales(&box, 1, "step_1", &err), "of e4m3 up to 247");
    box.name = "optim/w/exp_avg_sq.scale";
    shard_check_scales(&box, 1, "step_1", &err);
    tap_ok(
        run_net_says(&err, A0999, "an exponent that no save writes: number 2 is 247"),
        "of float16 they are refused");
    box.shape[0] = 2;
    tap_ok(!shard_check_scales(&box, 1, "step_1", &err), "up to 240 they are good");
    box.name = "optim/w/exp_avg.scale";
    exponent[0] = 1;
    shard_check_scales(&box, 1, "step_1", &err);
    tap_ok(run_net_says(&err, A0999, "number 0 is 1"), "1 is refused");
    run.optims = 1;
    tap_ok(!moments_find(&run, "step_1", "a=1\n", forms, &err) &&
               forms[0] == ACCEL_MOMENTS_FLOAT32,
           "no line: float32");
    tap_ok(!moments_find(&run, "step_1", "moments=fp8\n", forms, &err) &&
               forms[0] == ACCEL_MOMENTS_FP8,
           "fp8");
    moments_find(&run, "step_1", "moments=fp9\n", forms, &err);
    tap_ok(run_net_says(&err, A0999, "the form of its moments is not known: 'fp9'"),
           "another word is refused");
}

/* Whatever float32 a block has for its largest, of all exponents and of the ends of
 * their fractions: the exponents that narrowing writes are those that a load takes. */
static void test_every_exponent(accel_dtype_t type, const char *name)
{
    uint8_t exponent = 0;
    uint16_t code;
    const accel_ckpt_box_t box = {
        .name = name, .dtype = ACCEL_U8, .ndim = 1, .shape = { 1 }, .data = &exponent
    };
    /* 0: of zeroed memory, where nothing was ever stepped */
    bool written[256] = { true };
    int wrong = 0;

    for (uint32_t e = 0; e < 256; e++)
        for (uint32_t k = 0; k < 64; k++) {
            const uint32_t fraction = k < 32 ? (1u << (k % 24)) - 1 : ~0u << (k % 24);
            const uint32_t bits = e << 23 | (fraction & 0x7fffff);
            const struct scaled to = { &code, &exponent, type };
            float x;

            memcpy(&x, &bits, sizeof(x));
            scaled_narrow(to, &x, 1);
            written[exponent] = true;
        }
    for (int e = 0; e < 256; e++) {
        accel_error_t err = { 0 };

        exponent = (uint8_t)e;
        wrong +=
            (shard_check_scales(&box, 1, "step_1", &err) == ACCEL_OK) != written[e];
    }
    tap_is_int(wrong, 0, "%s: of 256 exponents those are refused that no save writes",
               name);
}

/* On a GPU that has products of all kinds every level runs; one without scales of blocks
 * refuses those alone. */
static void test_levels_on_gpus(void)
{
    struct backend be = { .device = true, .fp8 = BACKEND_FP8_ANY, .isa = "a GPU" };
    const struct precision_level *level;

    for (int i = 0; (level = precision_level_at(i / 2)) != NULL; i++) {
        static accel_t run;
        accel_error_t err = { 0 };
        accel_status_t st;
        bool blocks;

        be.fp8_blocks = i % 2 ? BACKEND_BLOCKS_32 | BACKEND_BLOCKS_128 : 0;
        memset(&run, 0, sizeof(run));
        config_defaults(&run.config);
        run.backend = &be;
        run.optims = 1;
        run.boot.rank = 1; /* which logs nothing */
        if (!tap_ok(precision_level_set(level, &run.config), "%s is set", level->name))
            continue;
        blocks = strstr(level->name, "block") || strstr(level->name, "mxfp8");
        st = moments_part.begin(&run, &err);
        st = st ? st : masters_part.begin(&run, &err);
        st = st ? st : gradients_part.begin(&run, &err);
        st = st ? st : fp8_scales_begin(&run, &err);
        fp8_scales_free(&run);
        tap_ok((st == ACCEL_OK) == (be.fp8_blocks || !blocks), "%s on GPUs: %s",
               level->name, st ? err.text : "runs");
    }
}

/* What a save never writes. Names and types tell scales from all else. */
static void test_damage(void)
{
    static const uint16_t bad[] = { 0x7f80, 0x7fc0, 0x8000, 0xbf80 };
    uint16_t scale[] = { 0, 0x0001, 0x3f80, 0x7f7f };
    const accel_ckpt_box_t boxes[] = {
        { .name = "optim/w/exp_avg", .dtype = ACCEL_U8, .ndim = 1, .shape = { 1 } },
        { .name = "optim/w/exp_avg.scale",
          .dtype = ACCEL_BF16,
          .ndim = 1,
          .offset = { 8 },
          .shape = { 4 },
          .data = scale },
    };
    accel_error_t err = { 0 };
    int wrong = 0;

    tap_ok(!shard_check_scales(boxes, 2, "step_1", &err), "scales from 0 on are good");
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const bool negative = bits >> 15, number = (bits & 0x7f80) != 0x7f80;

        scale[2] = (uint16_t)bits;
        wrong += (shard_check_scales(boxes, 2, "step_1", &err) == ACCEL_OK) !=
                 (number && !negative);
    }
    tap_is_int(wrong, 0, "of 65536 scales those are refused that no save writes");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(bad); i++) {
        scale[2] = bad[i];
        shard_check_scales(boxes, 2, "step_1", &err);
        tap_ok(run_net_says(&err, A0999,
                            "optim/w/exp_avg.scale has a scale that is "
                            "negative or no number: number 10"),
               "%04x is refused", bad[i]);
    }
}

int main(void)
{
    test_damaged_masters();
    test_damaged_moments();
    test_every_exponent(ACCEL_F16, "scale/w");
    test_every_exponent(ACCEL_F8E4M3, "optim/w/exp_avg.scale");
    test_every_exponent(ACCEL_F16, "optim/w/exp_avg_sq.scale");
    test_levels_on_gpus();
    test_damage();
    return tap_done();
}
