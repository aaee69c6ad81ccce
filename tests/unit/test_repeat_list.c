/* SPDX-License-Identifier: Apache-2.0
 *
 * Slurm's repetition lists, good and broken ones: one entry, the sum of the first, the
 * sum of all.
 */
#include <stddef.h>

#include "common/common.h"
#include "common/repeat_list.h"
#include "tests/tap.h"

static void test_entry(void)
{
    static const struct {
        const char *list;
        int index, want;
    } rows[] = {
        { "4", 0, 4 },       { "4", 1, 0 },
        { "2(x3),1", 0, 2 }, { "2(x3),1", 2, 2 },
        { "2(x3),1", 3, 1 }, { "2(x3),1", 4, 0 },
        { "1,2,3", 1, 2 },   { "1,2,3", 2, 3 },
        { "", 0, 0 },        { "x", 0, 0 },
        { "0", 0, 0 },       { "-1", 0, 0 },
        { "2(x", 0, 0 },     { "2(x3", 0, 0 },
        { "2(x0)", 0, 0 },   { "2(x3)1", 0, 0 },
        { "2;3", 0, 0 },     { "2(x3);1", 3, 0 },
        { "2,", 1, 0 },      { "99999999999999999999", 0, 0 },
        { "2", -1, 0 },      { "2(x2147483647)", 2147483646, 2 },
        { "2(x3],1", 0, 0 }, { " 2", 0, 0 },
        { "2,x", 0, 2 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        tap_is_int(repeat_list_at(rows[i].list, rows[i].index), rows[i].want,
                   "entry %d of '%s'", rows[i].index, rows[i].list);
    tap_is_int(repeat_list_at(NULL, 0), 0, "no list");
}

static void test_sum(void)
{
    static const struct {
        const char *list;
        int count, want;
    } rows[] = {
        { "2", 0, 0 },       { "2(x2)", 1, 2 },     { "2(x3),1", 3, 6 },
        { "3,1", 1, 3 },     { "2,1(x2),4", 3, 4 }, { "2(x1000),7", 1000, 2000 },
        { "2", 1, 2 },       { "2", 2, -1 },        { "", 1, -1 },
        { "x", 1, -1 },      { "2(x", 1, -1 },      { "2(x0)", 1, -1 },
        { "-1,2", 1, -1 },   { "2;3", 1, -1 },      { "99999999999(x9)", 2, -1 },
        { "1(x2),4", 3, 6 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        tap_is_int(repeat_list_sum(rows[i].list, rows[i].count), rows[i].want,
                   "the first %d of '%s'", rows[i].count, rows[i].list);
}

#define MOST "2147483647(x2147483647)"

static void test_total(void)
{
    static const struct {
        const char *list;
        int want;
    } rows[] = {
        { "2", 2 },    { "2(x3)", 6 }, { "2(x3),1", 7 }, { "1,2(x2),4", 9 },
        { "", 0 },     { "two", 0 },   { "2;3", 0 },     { "2,x", 0 },
        { "2(x3", 0 }, { "2,", 2 },    { "0", 0 },       { MOST "," MOST "," MOST, 0 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        tap_is_int(repeat_list_total(rows[i].list), rows[i].want, "all of '%s'",
                   rows[i].list);
    tap_is_int(repeat_list_total(NULL), 0, "no list");
    tap_is_int(repeat_list_sum(MOST "," MOST "," MOST, INT64_MAX), -1,
               "a sum that does not fit");
}

int main(void)
{
    test_entry();
    test_sum();
    test_total();
    return tap_done();
}
