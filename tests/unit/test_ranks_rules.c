/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of ranks/ without ranks: shares of a list beside Accelerate's rows and an
 * independent statement, rows of metrics, and the text that says which ranks differ.
 */
#include <stdio.h>
#include <string.h>

#include "ranks/ranks_impl.h"
#include "tests/tap.h"

/* ---- shares ---------------------------------------------------------------------- */

/* Accelerate 1.15.0 with two processes. */
static void test_split_rows(void)
{
    static const struct {
        int n, pad;
        const char *rank[2];
    } row[] = {
        { 0, 0, { "", "" } },
        { 1, 0, { "0 ", "" } },
        { 1, 1, { "0 ", "0 " } },
        { 2, 0, { "0 ", "1 " } },
        { 2, 1, { "0 ", "1 " } },
        { 3, 0, { "0 1 ", "2 " } },
        { 3, 1, { "0 1 ", "2 2 " } },
        { 4, 0, { "0 1 ", "2 3 " } },
        { 4, 1, { "0 1 ", "2 3 " } },
        { 5, 0, { "0 1 2 ", "3 4 " } },
        { 5, 1, { "0 1 2 ", "3 4 4 " } },
        { 7, 0, { "0 1 2 3 ", "4 5 6 " } },
        { 7, 1, { "0 1 2 3 ", "4 5 6 6 " } },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(row); i++)
        for (int r = 0; r < 2; r++) {
            char got[64] = "";
            accel_share_t s;
            int at = 0;

            if (accel_split(row[i].n, r, 2, row[i].pad, &s, NULL) != ACCEL_OK)
                s = (accel_share_t){ .count = -1 };
            for (int64_t k = 0; k < s.count; k++)
                at += sprintf(got + at, "%d ", (int)(s.first + k));
            for (int64_t k = 0; k < s.padding; k++)
                at += sprintf(got + at, "%d ", (int)s.last);
            tap_is_str(got, row[i].rank[r], "%d items, padding %d, rank %d", row[i].n,
                       row[i].pad, r);
        }
}

/* Items dealt one by one: rank r has item i where the shares before end at or before
 * it. The owner is found by counting, not by division. */
static bool split_holds(int64_t n, int world, int pad)
{
    int64_t next = 0, longest = (n + world - 1) / world;

    for (int r = 0; r < world; r++) {
        int64_t size = 0;
        accel_share_t s;

        for (int64_t i = 0; i < n; i++)
            size += i % world == r;
        if (accel_split(n, r, world, pad, &s, NULL) != ACCEL_OK || s.count != size ||
            (size > 0 && s.first != next) || s.padding != (pad ? longest - size : 0) ||
            (s.padding > 0 && s.last != n - 1))
            return false;
        next += size;
    }
    return next == n;
}

static void test_split(void)
{
    accel_share_t s = { .first = 7 };
    accel_error_t err = { 0 };
    int bad = 0;

    test_split_rows();
    for (int64_t n = 0; n <= 40; n++)
        for (int world = 1; world <= 9; world++)
            for (int pad = 0; pad < 2; pad++)
                bad += !(n == 0 && pad) && !split_holds(n, world, pad);
    tap_is_int(bad, 0, "shares are contiguous, complete and, padded, equally long");
    tap_ok(accel_split(0, 0, 2, 1, &s, &err) == ACCEL_EINVAL && s.first == 7,
           "padding without items: %s", err.text);
    tap_ok(accel_split(5, 2, 2, 0, &s, &err) == ACCEL_EINVAL &&
               accel_split(5, -1, 2, 0, &s, &err) == ACCEL_EINVAL &&
               accel_split(-1, 0, 2, 0, &s, &err) == ACCEL_EINVAL &&
               accel_split(5, 0, 0, 0, &s, &err) == ACCEL_EINVAL &&
               accel_split(5, 0, 1, 0, NULL, &err) == ACCEL_EINVAL,
           "no such rank, world or number: %s", err.text);
}

/* ---- metrics --------------------------------------------------------------------- */

static void test_rows(void)
{
    static const struct {
        accel_batch_end_t end;
        int64_t held, rows;
    } c[] = {
        { { .at_end = 0, .remainder = 3 }, 8, 8 },
        { { .at_end = 1, .remainder = 3 }, 8, 3 },
        { { .at_end = 1, .remainder = 8 }, 8, 8 },
        { { .at_end = 1, .remainder = 0 }, 8, 8 },
        { { .at_end = 1, .remainder = -1 }, 8, 8 },
    };
    accel_error_t err = { 0 };
    int64_t rows = 77;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c); i++) {
        tap_ok(metrics_rows(&c[i].end, c[i].held, &rows, NULL) == ACCEL_OK,
               "end %d, remainder %lld", c[i].end.at_end,
               (long long)c[i].end.remainder);
        tap_is_int(rows, c[i].rows, "its rows");
    }
    tap_ok(metrics_rows(NULL, 5, &rows, NULL) == ACCEL_OK && rows == 5, "no end: all");
    tap_ok(metrics_rows(&(accel_batch_end_t){ 1, 3, 0, 0 }, 2, &rows, &err) ==
                   ACCEL_EINVAL &&
               err.message == 942,
           "more samples than rows: %s", err.text);
}

/* ---- who differs ----------------------------------------------------------------- */

static struct ranks_record record(int call, int dtype, int64_t d0, int64_t d1)
{
    return (struct ranks_record){
        .call = call, .dtype = dtype, .ndim = 2, .dims = { d0, d1 }
    };
}

static void test_compare(void)
{
    struct ranks_record all[5];
    accel_error_t err = { 0 };

    for (int r = 0; r < 5; r++)
        all[r] = record(RANKS_GATHER, ACCEL_F32, 4, 3);
    all[2].count = 9;
    all[3].room = 100;
    tap_is_int(ranks_compare(all, 5, SAME_SHAPE, &err), ACCEL_OK, "all the same");
    all[1] = record(RANKS_GATHER, ACCEL_F32, 2, 3);
    tap_is_int(ranks_compare(all, 5, SAME_BUT_ROWS, &err), ACCEL_OK,
               "rows may differ where they are counted");
    tap_is_int(ranks_compare(all, 5, SAME_SHAPE, &err), ACCEL_EMISMATCH,
               "else they may not");
    tap_is_str(err.text,
               "rank 1 differs: ranks 0, 2-4: accel_gather of float32 [4, 3]; "
               "rank 1: accel_gather of float32 [2, 3]",
               "every shape, and who differs");
    tap_is_str(err.where, "accel_gather", "in which call");
    tap_is_int(err.message, 940, "A0940");
    all[0] = record(RANKS_GATHER, ACCEL_BF16, 4, 3);
    ranks_compare(all, 2, SAME_SHAPE, &err);
    tap_is_str(err.text,
               "rank 1 differs: rank 0: accel_gather of bfloat16 [4, 3]; "
               "rank 1: accel_gather of float32 [2, 3]",
               "of two, the second is said to differ");
    tap_is_int(ranks_compare(all, 5, SAME_BUT_ROWS, &err), ACCEL_EMISMATCH,
               "dtypes must not differ");
    tap_is_int(ranks_compare(all, 5, SAME_CALL, &err), ACCEL_OK, "unless any may");
    for (int r = 0; r < 5; r++)
        all[r] = record(RANKS_GATHER, ACCEL_F32, 4 + (r == 0), 3);
    ranks_compare(all, 5, SAME_SHAPE, &err);
    tap_ok(!strncmp(err.text, "rank 0 differs: ranks 1-4: ", 27), "most are right: %s",
           err.text);
    all[4].ndim = 1;
    tap_is_int(ranks_compare(all + 3, 2, SAME_BUT_ROWS, &err), ACCEL_EMISMATCH,
               "nor numbers of dimensions");
    all[4].option = 2;
    tap_is_int(ranks_compare(all, 5, SAME_CALL, &err), ACCEL_EMISMATCH,
               "nor options: %s", err.text);
    all[4] = (struct ranks_record){ .call = RANKS_BARRIER };
    ranks_compare(all + 3, 2, SAME_CALL, &err);
    tap_is_str(err.text,
               "rank 1 differs: rank 0: accel_gather of float32 [4, 3]; "
               "rank 1: accel_barrier",
               "nor calls");
}

/* More kinds and ranges than a text holds. */
static void test_many(void)
{
    enum { RANKS = 64 };
    struct ranks_record all[RANKS];
    accel_error_t err = { 0 };

    for (int r = 0; r < RANKS; r++)
        all[r] = record(RANKS_REDUCE, ACCEL_F32, r, 1);
    ranks_compare(all, RANKS, SAME_SHAPE, &err);
    tap_ok(strstr(err.text, "ranks 1-63 differ: rank 0: ") &&
               strstr(err.text, "; and 58 more"),
           "64 shapes: %s", err.text);
    for (int r = 0; r < RANKS; r++)
        all[r] = record(RANKS_REDUCE, ACCEL_F32, r % 2, 1);
    ranks_compare(all, RANKS, SAME_SHAPE, &err);
    tap_ok(strstr(err.text, "ranks 1, 3, 5") && strstr(err.text, "23, ... differ"),
           "every other rank: %s", err.text);
}

int main(void)
{
    test_split();
    test_rows();
    test_compare();
    test_many();
    return tap_done();
}
