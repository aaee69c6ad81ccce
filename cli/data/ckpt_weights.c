/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of a checkpoint as float32, whatever their masters are: float32, bfloat16, or
 * float16 with an exponent for each 32 (doc/checkpoint-format.md). In: the tensor and
 * a range of its elements. Out: numbers; all three are exact in float32.
 */
#include <stdio.h>
#include <string.h>

#include "checkpoint/ckpt_tools.h"
#include "cli/data/ckpt_cmd.h"
#include "numbers/bf16.h"
#include "numbers/scaled.h"

/* Exponents of elements [begin, begin + count) of a float16 weight, read so that
 * `begin` is the first of a block. */
static accel_status_t read_exponents(accel_ckpt_t *c, const struct ckpt_view *v,
                                     int64_t begin, int64_t count, uint8_t *exponents,
                                     accel_error_t *err)
{
    const int64_t n = (int64_t)scaled_blocks(count);
    struct ckpt_view scales;
    accel_status_t st;

    ckpt_view(c, (size_t)ckpt_weight_scales(c, v), &scales);
    st = ckpt_read_part(c, &scales, begin / SCALED_BLOCK, n, exponents, err);
    for (int64_t i = 0; i < n && !st; i++)
        if (!scaled_is_exponent(exponents[i], ACCEL_F16))
            st = accel_fail_at(err, A0999, ckpt_path(c), "use another checkpoint",
                               "%.300s has an exponent that no save writes: number "
                               "%lld is %d",
                               scales.name, (long long)(begin / SCALED_BLOCK + i),
                               exponents[i]);
    return st;
}

int64_t ckpt_weight_scales(const accel_ckpt_t *c, const struct ckpt_view *v)
{
    struct ckpt_view scales;
    char name[512];
    int64_t i;

    if (v->dtype != ACCEL_F16 || strncmp(v->name, "model/", 6) != 0)
        return -1;
    snprintf(name, sizeof(name), "scale/%s", v->name + 6);
    i = ckpt_tensor_find(c, name);
    if (i < 0)
        return -1;
    ckpt_view(c, (size_t)i, &scales);
    return scales.dtype == ACCEL_U8 && scales.elems == (int64_t)scaled_blocks(v->elems)
               ? i
               : -1;
}

bool ckpt_is_weight(const accel_ckpt_t *c, const struct ckpt_view *v)
{
    return v->dtype == ACCEL_F32 || v->dtype == ACCEL_BF16 ||
           ckpt_weight_scales(c, v) >= 0;
}

size_t ckpt_weight_room(const struct ckpt_view *v, int64_t count)
{
    if (v->dtype == ACCEL_F32)
        return 0;
    return scaled_bytes(count + SCALED_BLOCK, v->dtype);
}

accel_status_t ckpt_read_weights(accel_ckpt_t *c, const struct ckpt_view *v,
                                 int64_t begin, int64_t count, float *out, void *room,
                                 accel_error_t *err)
{
    /* a block has one exponent: whole ones are read */
    const int64_t lead = v->dtype == ACCEL_F16 ? begin % SCALED_BLOCK : 0;
    const struct scaled x = scaled_in(room, lead + count, v->dtype);
    accel_status_t st;

    if (v->dtype == ACCEL_F32)
        return ckpt_read_part(c, v, begin, count, out, err);
    st = ckpt_read_part(c, v, begin - lead, lead + count, room, err);
    if (st || v->dtype == ACCEL_BF16) {
        if (!st)
            bf16_widen(out, room, (size_t)count);
        return st;
    }
    st = read_exponents(c, v, begin - lead, lead + count, x.exponent, err);
    if (!st)
        scaled_widen(out, x, lead, count);
    return st;
}
