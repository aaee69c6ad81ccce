/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups split from a communicator: who is in which, in what order, and that they work
 * at the same time as the one they come from.
 */
#include <stdio.h>
#include <string.h>

#include "tests/unit/comm_ref.h"

#define RANKS 64

/* Ranks of the communicator that are expected in this rank's group, in order. */
struct expected {
    int size, member[RANKS];
};

static int complain(struct comm *c, const char *what, int value,
                    const accel_error_t *err)
{
    fprintf(stderr, "# groups of %s, rank %d of %d: %s (%d)%s%s\n", comm_backend(c),
            comm_rank(c), comm_size(c), what, value, err->text[0] ? ": " : "",
            err->text);
    return 1;
}

/* Every rank's number in the communicator it came from, through the group, and a
 * sum. */
static int use_group(struct comm *c, struct comm *group, const struct expected *want,
                     accel_error_t *err)
{
    int64_t number[RANKS] = { 0 }, sum = comm_rank(c), should = 0;
    float part[RANKS], got = 1;

    if (comm_size(group) != want->size)
        return complain(c, "size", comm_size(group), err);
    number[comm_rank(group)] = comm_rank(c);
    if (comm_all_gather(group, number, 1, ACCEL_I64, err) != ACCEL_OK ||
        comm_all_reduce(group, &sum, 1, ACCEL_I64, COMM_SUM, err) != ACCEL_OK)
        return complain(c, "call", 0, err);
    for (int i = 0; i < want->size; i++) {
        should += want->member[i];
        part[i] = (float)(comm_rank(c) + i);
        if (number[i] != want->member[i])
            return complain(c, "member", (int)number[i], err);
    }
    if (sum != should)
        return complain(c, "sum", (int)sum, err);
    if (comm_reduce_scatter(group, part, &got, 1, ACCEL_F32, 2, true, err) ||
        got != 1 + 2 * (float)(should + want->size * comm_rank(group)))
        return complain(c, "reduce_scatter", (int)got, err);
    return comm_barrier(group, err) ? complain(c, "barrier", 0, err) : 0;
}

/* Odd and even ranks, the last rank first. */
static struct expected odd_or_even(struct comm *c)
{
    struct expected e = { 0 };

    for (int r = comm_size(c) - 1; r >= 0; r--)
        if (r % 2 == comm_rank(c) % 2)
            e.member[e.size++] = r;
    return e;
}

static int without_the_first(struct comm *c, accel_error_t *err)
{
    struct expected rest = { 0 };
    struct comm *group;
    int bad;

    for (int r = 1; r < comm_size(c); r++)
        rest.member[rest.size++] = r;
    if (comm_split(c, comm_rank(c) ? 7 : -1, 0, &group, err) != ACCEL_OK)
        return complain(c, "split", 7, err);
    if (comm_rank(c) == 0)
        return group ? complain(c, "a group without a color", 0, err) : 0;
    bad = use_group(c, group, &rest, err);
    comm_close(group);
    return bad;
}

/* Groups of a group: each rank alone. */
static int alone(struct comm *group, accel_error_t *err)
{
    struct expected own = { 1, { comm_rank(group) } };
    struct comm *single;
    int bad;

    if (comm_split(group, comm_rank(group), 0, &single, err) != ACCEL_OK)
        return complain(group, "split", comm_rank(group), err);
    bad = use_group(group, single, &own, err);
    comm_close(single);
    return bad;
}

int comm_ref_groups(struct comm *c)
{
    struct expected half = odd_or_even(c), all = { 0 };
    accel_error_t err = { 0 };
    struct comm *group, *again;
    int bad;

    for (int r = 0; r < comm_size(c); r++)
        all.member[all.size++] = r;
    if (comm_split(c, comm_rank(c) % 2, -comm_rank(c), &group, &err) != ACCEL_OK ||
        comm_split(c, 0, 0, &again, &err) != ACCEL_OK)
        return complain(c, "split", 0, &err);
    bad = use_group(c, group, &half, &err) || use_group(c, again, &all, &err) ||
          use_group(c, c, &all, &err) || alone(group, &err) ||
          without_the_first(c, &err) || use_group(c, group, &half, &err);
    comm_close(group);
    comm_close(again);
    return bad;
}
