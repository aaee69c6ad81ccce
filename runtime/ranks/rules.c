/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules that work on numbers only: which share of a list belongs to a rank, and how
 * many rows of a gathered batch are samples. They know no run and no communicator.
 */
#include "ranks/ranks_impl.h"

/* As Accelerate's split_between_processes. There padding without items is an
 * IndexError. */
accel_status_t accel_split(int64_t n, int rank, int world, int pad,
                           accel_share_t *share_out, accel_error_t *err)
{
    int64_t each, extras, longest;
    accel_share_t s = { 0 };

    if (!share_out || n < 0 || world < 1 || rank < 0 || rank >= world)
        return accel_fail(
            err, A0941, "pass n >= 0 and a rank below the world size",
            "accel_split: rank %d of %d cannot have a share of %lld items", rank, world,
            (long long)n);
    if (pad && n == 0)
        return accel_fail(err, A0941, "ask for no padding where there are no items",
                          "accel_split: padding repeats an item, but there is none");
    each = n / world;
    extras = n % world;
    longest = each + (extras > 0);
    s.first = each * rank + (rank < extras ? rank : extras);
    s.count = each + (rank < extras);
    s.padding = pad ? longest - s.count : 0;
    /* of all items, not of the share: so does Accelerate */
    s.last = n > 0 ? n - 1 : 0;
    *share_out = s;
    return ACCEL_OK;
}

/* A loader fills up the last batch behind the samples that count: in rank order they
 * are the first ones. */
accel_status_t metrics_rows(const accel_batch_end_t *end, int64_t held,
                            int64_t *rows_out, accel_error_t *err)
{
    if (!end || !end->at_end || end->remainder <= 0) {
        *rows_out = held;
        return ACCEL_OK;
    }
    if (end->remainder > held)
        return accel_fail_at(err, A0942, "accel_gather_for_metrics",
                             "gather one row per sample; sum means with accel_reduce",
                             "%lld samples of the last batch count, but the ranks hold "
                             "%lld rows",
                             (long long)end->remainder, (long long)held);
    *rows_out = end->remainder;
    return ACCEL_OK;
}
