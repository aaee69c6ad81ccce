/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of narrow masters as `accel ckpt export` reads them: any range of them is a
 * part of the whole, exponents that no save writes are refused, and float16 without
 * exponents that fit is no weight.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt_tools.h"
#include "cli/data/ckpt_cmd.h"
#include "numbers/bf16.h"
#include "numbers/scaled.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"

/* Blocks of 32 begin in the middle of rows. */
enum { ROWS = 7, COLS = 23, COUNT = ROWS * COLS, BLOCKS = (COUNT + 31) / 32 };

static float value[COUNT];
static uint16_t half[COUNT], brain[COUNT];
static uint8_t exponent[BLOCKS];

static accel_ckpt_box_t box_of(const char *name, accel_dtype_t dtype, int ndim,
                               int64_t rows, int64_t cols, void *data)
{
    return (accel_ckpt_box_t){ .name = name,
                               .dtype = dtype,
                               .ndim = ndim,
                               .global_shape = { rows, cols },
                               .shape = { rows, cols },
                               .data = data };
}

/* Numbers of many sizes; a block of zeros. */
static void make_values(void)
{
    const struct scaled x = { half, exponent, ACCEL_F16 };

    for (int i = 0; i < COUNT; i++)
        value[i] = i / 32 == 2 ? 0 : ldexpf((float)(i % 13 - 6), i / 32 * 9 - 20);
    scaled_narrow(x, value, COUNT);
    bf16_narrow(brain, value, COUNT);
}

static accel_ckpt_t *saved(const char *root, int64_t step)
{
    accel_ckpt_box_t box[] = {
        box_of("model/brain", ACCEL_BF16, 2, ROWS, COLS, brain),
        box_of("model/half", ACCEL_F16, 2, ROWS, COLS, half),
        box_of("model/lone", ACCEL_F16, 2, ROWS, COLS, half),
        box_of("model/short", ACCEL_F16, 2, ROWS, COLS, half),
        box_of("model/wide", ACCEL_F32, 2, ROWS, COLS, value),
        box_of("scale/half", ACCEL_U8, 1, BLOCKS, 0, exponent),
        box_of("scale/short", ACCEL_U8, 1, BLOCKS - 1, 0, exponent),
    };
    const accel_ckpt_save_t s = { sizeof(s),        .root = root,
                                  .step = step,     .owner = "test.0",
                                  .run_id = "test", .sharding = "NO_SHARD",
                                  .boxes = box,     .box_count = ACCEL_ARRAY_SIZE(box),
                                  .keep = 9 };
    accel_error_t err = { 0 };
    accel_ckpt_t *c = NULL;
    char dir[400];

    snprintf(dir, sizeof(dir), "%s/step_%08lld", root, (long long)step);
    if (accel_ckpt_save(&s, NULL, NULL, &err) || accel_ckpt_open(&c, dir, &err))
        tap_diag("%s: %s", err.where, err.text);
    return c;
}

static struct ckpt_view view_of(accel_ckpt_t *c, const char *name)
{
    struct ckpt_view v;

    ckpt_view(c, (size_t)ckpt_tensor_find(c, name), &v);
    return v;
}

/* Ranges whose numbers are not those that were saved. */
static int wrong_ranges(accel_ckpt_t *c, const char *name, double tolerance)
{
    const struct ckpt_view v = view_of(c, name);
    int wrong = 0;

    for (int64_t at = 0; at < COUNT; at += 3)
        for (int64_t n = 1; at + n <= COUNT; n += 5) {
            float *out = malloc((size_t)n * sizeof(*out));
            void *room = malloc(ckpt_weight_room(&v, n) + 1);
            accel_error_t err = { 0 };
            bool good =
                out && room && !ckpt_read_weights(c, &v, at, n, out, room, &err);

            for (int64_t i = 0; good && i < n; i++)
                good = fabs((double)out[i] - (double)value[at + i]) <=
                       tolerance * fabs((double)value[at + i]);
            wrong += !good;
            free(out);
            free(room);
        }
    return wrong;
}

static void test_refused(const char *root)
{
    static const uint8_t bad[] = { 1, 241, 255 };
    float out[COUNT];
    char room[4 * COUNT];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(bad); i++) {
        const uint8_t was = exponent[BLOCKS - 1];
        accel_error_t err = { 0 };
        struct ckpt_view v;
        accel_ckpt_t *c;

        exponent[BLOCKS - 1] = bad[i];
        c = saved(root, 2 + (int64_t)i);
        exponent[BLOCKS - 1] = was;
        v = view_of(c, "model/half");
        tap_ok(ckpt_read_weights(c, &v, COUNT - 1, 1, out, room, &err) != ACCEL_OK &&
                   strstr(err.text, "scale/half has an exponent that no save writes"),
               "exponent %d: %s", bad[i], err.text);
        tap_ok(!ckpt_read_weights(c, &v, 0, 1, out, room, &err), "others are read");
        accel_ckpt_close(c);
    }
}

int main(void)
{
    char root[256];
    struct ckpt_view v;
    accel_ckpt_t *c;

    if (accel_ckpt_can_save(NULL))
        tap_skip_all("built without HDF5");
    world_tmpdir(root, "ckpt-weights");
    make_values();
    c = saved(root, 1);
    tap_is_int(wrong_ranges(c, "model/wide", 0), 0, "float32");
    tap_is_int(wrong_ranges(c, "model/brain", 0), 0, "bfloat16, which these fit");
    tap_is_int(wrong_ranges(c, "model/half", 0), 0, "float16 with exponents");
    v = view_of(c, "model/lone");
    tap_ok(!ckpt_is_weight(c, &v), "float16 without exponents is no weight");
    v = view_of(c, "model/short");
    tap_ok(!ckpt_is_weight(c, &v), "nor with too few of them");
    v = view_of(c, "scale/half");
    tap_ok(!ckpt_is_weight(c, &v), "nor are the exponents");
    accel_ckpt_close(c);
    test_refused(root);
    world_rmtree(root);
    return tap_done();
}
