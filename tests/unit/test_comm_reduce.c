/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of sums, maxima and minima over ranks, without ranks: every type,
 * operation and number of sources, around the length of a block, with NaN and infinity
 * in any of them; and the slices in which ranks share the work.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/reduce.h"
#include "numbers/bf16.h"
#include "numbers/wire.h"
#include "tests/tap.h"

enum { MOST = 5, LONGEST = 5000 };

static const accel_dtype_t types[] = { ACCEL_F32, ACCEL_F64, ACCEL_BF16, ACCEL_I64 };
static const char *const op_names[] = { "sum", "max", "min" };

/* Small whole numbers of either sign: exact in every type, sums too. */
static double value(int rank, size_t i)
{
    return (double)((i * 7 + (size_t)rank * 13) % 29) - 14;
}

/* What rank r has at i: every rank has a NaN, an infinity of either sign, and both
 * beside them, each where no other rank has one. */
static double held(accel_dtype_t t, int r, size_t i)
{
    size_t kind = i % (4 * MOST);

    if (t == ACCEL_I64 || kind / 4 != (size_t)r)
        return value(r, i);
    return (const double[]){ (double)NAN, (double)INFINITY, -(double)INFINITY,
                             value(r, i) }[kind % 4];
}

static void put(void *to, accel_dtype_t t, size_t i, double v)
{
    if (t == ACCEL_F32)
        ((float *)to)[i] = (float)v;
    else if (t == ACCEL_F64)
        ((double *)to)[i] = v;
    else if (t == ACCEL_BF16)
        ((bf16_t *)to)[i] = f32_to_bf16((float)v);
    else
        ((int64_t *)to)[i] = (int64_t)v;
}

static double get(const void *from, accel_dtype_t t, size_t i)
{
    return t == ACCEL_F32    ? (double)((const float *)from)[i]
           : t == ACCEL_F64  ? ((const double *)from)[i]
           : t == ACCEL_BF16 ? (double)bf16_to_f32(((const bf16_t *)from)[i])
                             : (double)((const int64_t *)from)[i];
}

/* A NaN of any rank is kept. */
static double folded(accel_dtype_t t, enum comm_op op, int ranks, size_t i)
{
    double acc = held(t, 0, i);

    for (int r = 1; r < ranks; r++) {
        double v = held(t, r, i);

        if (op == COMM_SUM)
            acc += v;
        else if (isnan(acc) || isnan(v))
            acc = (double)NAN;
        else
            acc = (op == COMM_MAX) == (v > acc) ? v : acc;
    }
    return acc;
}

static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b;
}

/* The first element that is wrong, or -1; in place: the result replaces the first
 * source. */
static long wrong_at(accel_dtype_t t, enum comm_op op, int ranks, size_t elems,
                     bool in_place)
{
    const size_t bytes = LONGEST * sizeof(double);
    void *room[MOST + 1], *out;
    const void *src[MOST];
    long wrong = -1;

    for (int r = 0; r <= MOST; r++)
        room[r] = calloc(1, bytes);
    for (int r = 0; r < ranks; r++) {
        src[r] = room[r];
        for (size_t i = 0; i < elems; i++)
            put(room[r], t, i, held(t, r, i));
    }
    out = in_place ? room[0] : room[MOST];
    put(out, t, elems, 3);
    reduce_op(out, src, ranks, elems, t, op);
    for (size_t i = 0; i < elems && wrong < 0; i++)
        if (!same(get(out, t, i), folded(t, op, ranks, i)))
            wrong = (long)i;
    if (get(out, t, elems) != 3)
        wrong = (long)elems;
    for (int r = 0; r <= MOST; r++)
        free(room[r]);
    return wrong;
}

static void test_ops(void)
{
    static const size_t lengths[] = { 0, 1, 19, 2047, 2048, 2049, 4097 };

    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(types); k++)
        for (int op = COMM_SUM; op <= COMM_MIN; op++) {
            long wrong = -1;

            for (int n = 1; n <= MOST && wrong < 0; n++)
                for (size_t i = 0; i < ACCEL_ARRAY_SIZE(lengths) && wrong < 0; i++) {
                    wrong = wrong_at(types[k], (enum comm_op)op, n, lengths[i], false);
                    if (wrong < 0)
                        wrong =
                            wrong_at(types[k], (enum comm_op)op, n, lengths[i], true);
                }
            tap_is_int(wrong, -1, "%s of %s, 1 to %d ranks, NaN and infinities kept",
                       op_names[op], accel_dtype_name(types[k]), MOST);
        }
}

/* Beyond what a double holds, and over the edge. */
static void test_whole_numbers(void)
{
    static const struct {
        int64_t a, b, sum, max, min;
    } c[] = {
        { INT64_MAX, 1, INT64_MIN, INT64_MAX, 1 },
        { INT64_MIN, -1, INT64_MAX, -1, INT64_MIN },
        { INT64_MIN, INT64_MAX, -1, INT64_MAX, INT64_MIN },
        { (INT64_C(1) << 53) + 1, 0, (INT64_C(1) << 53) + 1, (INT64_C(1) << 53) + 1,
          0 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c); i++) {
        const void *src[] = { &c[i].a, &c[i].b };
        int64_t got[3];

        for (int op = COMM_SUM; op <= COMM_MIN; op++)
            reduce_op(&got[op], src, 2, 1, ACCEL_I64, (enum comm_op)op);
        tap_ok(got[COMM_SUM] == c[i].sum && got[COMM_MAX] == c[i].max &&
                   got[COMM_MIN] == c[i].min,
               "%lld and %lld", (long long)c[i].a, (long long)c[i].b);
    }
}

static void test_scaled_sum(void)
{
    static float src[MOST][LONGEST], out[LONGEST + 1];
    const void *at[MOST];
    int wrong = 0;

    for (int r = 0; r < MOST; r++) {
        at[r] = src[r];
        for (size_t i = 0; i < LONGEST; i++)
            src[r][i] = (float)value(r, i);
    }
    for (int n = 1; n <= MOST; n++)
        for (int add = 0; add < 2; add++) {
            for (size_t i = 0; i <= LONGEST; i++)
                out[i] = 100;
            reduce_scaled_sum(out, at, n, LONGEST, ACCEL_F32, 0.5f, add);
            for (size_t i = 0; i < LONGEST; i++) {
                double sum = 0;

                for (int r = 0; r < n; r++)
                    sum += value(r, i);
                wrong += (double)out[i] != 0.5 * sum + (add ? 100 : 0);
            }
            wrong += out[LONGEST] != 100;
        }
    tap_is_int(wrong, 0, "scaled sums, set and added, no element too many");
}

/* Slices follow each other, begin on a line of 64, and share the lines evenly. */
static void test_slices(void)
{
    static const size_t lengths[] = { 0, 1, 63, 64, 65, 1000, 4099, 70001 };
    int wrong = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(lengths); i++)
        for (int n = 1; n <= 9; n++) {
            size_t lines = (lengths[i] + 63) / 64;

            wrong += reduce_slice_begin(lengths[i], n, 0) != 0 ||
                     reduce_slice_begin(lengths[i], n, n) != lengths[i];
            for (int r = 0; r < n; r++) {
                size_t from = reduce_slice_begin(lengths[i], n, r);
                size_t to = reduce_slice_begin(lengths[i], n, r + 1);

                wrong += to < from || (from % 64 && from != lengths[i]) ||
                         (to - from + 63) / 64 > lines / (size_t)n + 1;
            }
        }
    tap_is_int(wrong, 0, "slices of all ranks tile the array, in whole lines");
}

/* ---- sums in float32 of what travels --------------------------------------------- */

enum { FROM = 3, CANARY = 12345 };

/* Rank by rank, each rounded; `goes_on` from a first sum, else scaled and added to what
 * is there. Nothing behind the last element is touched. */
static bool sums_to(accel_dtype_t t, size_t elems, bool goes_on)
{
    static float x[LONGEST], wide[FROM][LONGEST], first[LONGEST], out[LONGEST + 1];
    static char wire[FROM][8 * LONGEST] __attribute__((aligned(64)));
    const void *src[FROM];
    size_t wrong = 0;

    for (int r = 0; r < FROM; r++) {
        for (size_t i = 0; i < elems; i++)
            x[i] = (float)value(r, i);
        memcpy(wide[r], x, elems * sizeof(*x));
        if (t == ACCEL_F32)
            memcpy(wire[r], x, elems * sizeof(*x));
        else if (t == ACCEL_BF16)
            bf16_narrow((bf16_t *)(void *)wire[r], x, elems);
        else
            wire_narrow(wire[r], x, elems, t);
        if (wire_is_scaled(t))
            wire_widen(wide[r], wire[r], elems, t);
        src[r] = wire[r];
    }
    for (size_t i = 0; i < elems; i++)
        first[i] = out[i] = (float)value(FROM, i);
    out[elems] = CANARY;
    if (goes_on)
        reduce_go_on(out, first, src, FROM, elems, t);
    else
        reduce_scaled_sum(out, src, FROM, elems, t, 0.5f, true);
    for (size_t i = 0; i < elems; i++) {
        float sum = goes_on ? first[i] : 0;

        for (int r = 0; r < FROM; r++)
            sum += wide[r][i];
        wrong += out[i] != (goes_on ? sum : first[i] + 0.5f * sum);
    }
    if (!goes_on) { /* and without a first sum */
        reduce_go_on(out, NULL, src, FROM, elems, t);
        for (size_t i = 0; i < elems; i++)
            wrong += out[i] != wide[0][i] + wide[1][i] + wide[2][i];
    }
    return wrong == 0 && out[elems] == CANARY;
}

static void test_sums(void)
{
    static const accel_dtype_t travels[] = { ACCEL_F32, ACCEL_BF16, ACCEL_F16,
                                             ACCEL_F8E4M3, ACCEL_F8E5M2 };
    static const size_t lengths[] = { 1,   7,    63,   64,   65,   255,  256,
                                      257, 1023, 1024, 1025, 2048, 2049, LONGEST };

    for (size_t t = 0; t < ACCEL_ARRAY_SIZE(travels); t++)
        for (int on = 0; on < 2; on++) {
            size_t wrong = 0;

            for (size_t k = 0; k < ACCEL_ARRAY_SIZE(lengths); k++)
                wrong += !sums_to(travels[t], lengths[k], on);
            tap_is_int((long long)wrong, 0, "%s: sums %s, and nothing beyond",
                       accel_dtype_name(travels[t]),
                       on ? "that go on" : "with a scale");
        }
}

int main(void)
{
    test_ops();
    test_whole_numbers();
    test_scaled_sum();
    test_slices();
    test_sums();
    return tap_done();
}
