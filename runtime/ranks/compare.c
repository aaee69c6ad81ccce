/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ranks differ. In: the records of all ranks before a collective. Out: one text,
 * the same on every rank. Knows no run and no communicator.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ranks/ranks_impl.h"

/* Kinds of records and ranges of ranks that a text shows: it has a fixed size. */
enum { MOST_KINDS = 6, MOST_RANGES = 12 };

const char *ranks_call_name(enum ranks_call call)
{
    static const char *const name[RANKS_CALLS] = {
        [RANKS_NOTHING] = "nothing",
        [RANKS_BARRIER] = "accel_barrier",
        [RANKS_TRIGGER] = "accel_trigger_check",
        [RANKS_GATHER] = "accel_gather",
        [RANKS_METRICS] = "accel_gather_for_metrics",
        [RANKS_REDUCE] = "accel_reduce",
        [RANKS_PAD] = "accel_pad_across_ranks",
        [RANKS_BROADCAST] = "accel_broadcast",
        [RANKS_GATHER_BYTES] = "accel_gather_bytes",
        [RANKS_BROADCAST_BYTES] = "accel_broadcast_bytes",
    };

    return (unsigned)call < RANKS_CALLS ? name[call] : "something else";
}

/* Tensors of different rank or dtype cannot be joined even where rows may differ. */
static bool alike(const struct ranks_record *a, const struct ranks_record *b,
                  enum ranks_same same)
{
    if (a->call != b->call || a->option != b->option)
        return false;
    if (same == SAME_CALL)
        return true;
    if (a->dtype != b->dtype || a->ndim != b->ndim)
        return false;
    for (int d = same == SAME_BUT_ROWS; d < a->ndim; d++)
        if (a->dims[d] != b->dims[d])
            return false;
    return true;
}

/* The rank whose record most ranks have. Quadratic, but only where ranks differ. */
static int usual_rank(const struct ranks_record *all, int ranks, enum ranks_same same)
{
    int best = 0, most = 0;

    for (int r = 0; r < ranks && most <= ranks - r; r++) {
        int count = 0;

        for (int k = r; k < ranks; k++)
            count += alike(&all[r], &all[k], same);
        if (count > most) {
            most = count;
            best = r;
        }
    }
    return best;
}

/* "rank 1", "ranks 0, 2-3": those whose record is (or, with `others`, is not) that of
 * rank `like`. Returns how many. */
static int name_ranks(const struct ranks_record *all, int ranks, int like,
                      enum ranks_same same, bool others, struct strbuf *text)
{
    struct strbuf list = { 0 };
    int count = 0, ranges = 0;

    for (int r = 0; r < ranks; r++) {
        int last = r;

        if (alike(&all[like], &all[r], same) == others)
            continue;
        while (last + 1 < ranks && alike(&all[like], &all[last + 1], same) != others)
            last++;
        if (ranges < MOST_RANGES)
            strbuf_printf(&list, last > r ? "%s%d-%d" : "%s%d", ranges ? ", " : "", r,
                          last);
        else if (ranges == MOST_RANGES)
            strbuf_printf(&list, ", ...");
        ranges++;
        count += last + 1 - r;
        r = last;
    }
    strbuf_printf(text, "rank%s %s", count == 1 ? "" : "s", list.s ? list.s : "?");
    strbuf_free(&list);
    return count;
}

/* "accel_reduce (1) of float32 [2, 3]": the option only where there is one. */
static void name_call(const struct ranks_record *r, struct strbuf *text)
{
    strbuf_printf(text, "%s", ranks_call_name((enum ranks_call)r->call));
    if (r->option)
        strbuf_printf(text, " (%d)", r->option);
    if (r->call < RANKS_GATHER)
        return;
    strbuf_printf(text, " of %s [", accel_dtype_name((accel_dtype_t)r->dtype));
    for (int d = 0; d < r->ndim && d < TENSOR_MAX_DIMS; d++)
        strbuf_printf(text, d ? ", %" PRId64 : "%" PRId64, r->dims[d]);
    strbuf_printf(text, "]");
}

/* True for the lowest rank with its record: each kind is named once. */
static bool is_first(const struct ranks_record *all, int rank, enum ranks_same same)
{
    for (int k = 0; k < rank; k++)
        if (alike(&all[rank], &all[k], same))
            return false;
    return true;
}

/* Each kind of record and who has it, the usual one first. */
static void list_kinds(const struct ranks_record *all, int ranks, int usual,
                       enum ranks_same same, struct strbuf *text)
{
    int kinds = 1;

    strbuf_printf(text, ": ");
    name_ranks(all, ranks, usual, same, false, text);
    strbuf_printf(text, ": ");
    name_call(&all[usual], text);
    for (int r = 0; r < ranks; r++) {
        if (r == usual || !is_first(all, r, same))
            continue;
        if (kinds++ >= MOST_KINDS)
            continue;
        strbuf_printf(text, "; ");
        name_ranks(all, ranks, r, same, false, text);
        strbuf_printf(text, ": ");
        name_call(&all[r], text);
    }
    if (kinds > MOST_KINDS)
        strbuf_printf(text, "; and %d more", kinds - MOST_KINDS);
}

accel_status_t ranks_compare(const struct ranks_record *all, int ranks,
                             enum ranks_same same, accel_error_t *err)
{
    struct strbuf text = { 0 };
    accel_status_t st = ACCEL_OK;
    int usual, r = 1;

    while (r < ranks && alike(&all[0], &all[r], same))
        r++;
    if (r >= ranks)
        return ACCEL_OK;
    usual = usual_rank(all, ranks, same);
    r = name_ranks(all, ranks, usual, same, true, &text);
    strbuf_printf(&text, r == 1 ? " differs" : " differ");
    list_kinds(all, ranks, usual, same, &text);
    st = accel_fail_at(err, A0940, ranks_call_name((enum ranks_call)all[usual].call),
                       "make the same calls with the same dtypes and shapes on all "
                       "ranks; accel_pad_across_ranks makes sizes equal",
                       "%s", text.s ? text.s : "the ranks differ");
    strbuf_free(&text);
    return st;
}
