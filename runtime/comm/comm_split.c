/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of a communicator's ranks. In: a color and a key of every rank. Out: one
 * communicator per color, with the backend that fits its ranks. A group is opened like
 * any other communicator, with collectives of its parent in place of the bootstrap.
 * These are collective over all of the parent's ranks, while the groups need different
 * numbers of them. So they come in rounds: every rank takes part in every round until
 * no group is busy.
 */
#include <stdlib.h>
#include <string.h>

#include "bootstrap/boot_impl.h"
#include "comm/comm_impl.h"

/* What a rank announces first in a round. Gathered as int64, so only such fields. */
struct head {
    int64_t busy;  /* its group is still being opened */
    int64_t bytes; /* of the blob that follows */
};

/* The arguments of a rank's comm_split. Gathered as int64, too. */
struct wish {
    int64_t color, key;
};

/* The group of this rank while it is opened. Serves as its bootstrap (boot_impl.h). */
struct group {
    struct boot_impl base;
    struct comm *from; /* the parent */
    int *member;       /* [size of from] the group's ranks as ranks of `from` */
    struct head *head; /* [size of from] from the last round */
    char *data;        /* [size of from][longest] blobs of the last round */
    size_t longest;
};

/* ---- rounds ---------------------------------------------------------------------- */

/* One round: all ranks of the parent exchange their heads and then, if any rank has
 * one, their blobs. Blobs are padded to the longest, because an all_gather has equal
 * parts. The result is in g->head and g->data. */
static accel_status_t speak(struct group *g, bool busy, const void *mine, size_t bytes,
                            accel_error_t *err)
{
    struct comm *c = g->from;
    const size_t size = (size_t)c->size, me = (size_t)c->rank;
    accel_status_t st;
    char *room;

    g->head[me] = (struct head){ busy, (int64_t)bytes };
    st =
        comm_all_gather(c, g->head, sizeof(*g->head) / sizeof(int64_t), ACCEL_I64, err);
    g->longest = 0;
    for (size_t r = 0; st == ACCEL_OK && r < size; r++)
        if ((size_t)g->head[r].bytes > g->longest)
            g->longest = (size_t)g->head[r].bytes;
    if (st != ACCEL_OK || g->longest == 0)
        return st;
    room = realloc(g->data, size * g->longest);
    if (!room)
        return accel_fail_nomem(err, "communicator", size * g->longest);
    g->data = room;
    if (bytes > 0)
        memcpy(room + me * g->longest, mine, bytes);
    return comm_all_gather(c, room, g->longest, ACCEL_U8, err);
}

/* boot_exchange of a group: one round, of which only the members' blobs are kept. */
static accel_status_t group_exchange(struct boot *b, const void *mine, size_t bytes,
                                     struct boot_blobs *all_out, accel_error_t *err)
{
    struct group *g = (struct group *)b->impl;
    accel_status_t st = speak(g, true, mine, bytes, err);
    size_t total = 0;
    char *to;

    for (int r = 0; st == ACCEL_OK && r < b->size; r++)
        total += (size_t)g->head[g->member[r]].bytes;
    ACCEL_TRY(st, boot_blobs_alloc(all_out, b->size, total, err));
    if (st != ACCEL_OK)
        return st;
    to = all_out->data[0];
    for (int r = 0; r < b->size; r++) {
        size_t n = (size_t)g->head[g->member[r]].bytes;

        all_out->data[r] = to;
        all_out->bytes[r] = n;
        if (n > 0)
            memcpy(to, g->data + (size_t)g->member[r] * g->longest, n);
        to += n;
    }
    return ACCEL_OK;
}

/* Joins the rounds of the other groups until the last one is open. Ranks without a
 * group start here at once. A rank whose own group failed does not come here: the error
 * fails the parent, which ends the others' rounds. */
static accel_status_t hear_others(struct group *g, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;
    bool busy = true;

    while (st == ACCEL_OK && busy) {
        st = speak(g, false, NULL, 0, err);
        busy = false;
        for (int r = 0; r < g->from->size; r++)
            busy = busy || g->head[r].busy;
    }
    return st;
}

/* ---- groups ---------------------------------------------------------------------- */

/* Sorts the ranks of this rank's color by key and then by rank (insertion sort:
 * ranks come in ascending order, so equal keys stay so). Fills g->member,
 * b->size and b->rank. */
static void gather_members(const struct comm *c, const struct wish *wish,
                           struct group *g, struct boot *b)
{
    for (int r = 0; r < c->size; r++) {
        int at = b->size;

        if (wish[r].color != wish[c->rank].color)
            continue;
        for (; at > 0 && wish[g->member[at - 1]].key > wish[r].key; at--)
            g->member[at] = g->member[at - 1];
        g->member[at] = r;
        b->size++;
    }
    for (int i = 0; i < b->size; i++)
        if (g->member[i] == c->rank)
            b->rank = i;
}

/* Fills b as a bootstrap would have: rank, size and nodes within the group, and the
 * parent's timeout as deadline. */
static accel_status_t describe_group(struct comm *c, const struct wish *wish,
                                     struct group *g, struct boot *b,
                                     accel_error_t *err)
{
    accel_status_t st;

    gather_members(c, wish, g, b);
    b->method = "split";
    b->deadline_ns = clock_ns() + c->timeout_ns;
    b->impl = &g->base;
    st = boot_alloc_ranks(b, err);
    for (int i = 0; st == ACCEL_OK && i < b->size; i++)
        b->node_of[i] = c->node_of[g->member[i]];
    return st == ACCEL_OK ? boot_number_nodes(b, err) : st;
}

/* Opens the group and then waits for the others. The backend is the one asked for when
 * the parent was opened, not the parent's own: a group within one node gets shared
 * memory although its parent needs UCX. */
static accel_status_t open_group(struct group *g, struct wish *wish,
                                 struct comm **comm_out, accel_error_t *err)
{
    struct comm *c = g->from;
    const struct comm_options o = { .backend = c->asked,
                                    .root = c->root,
                                    .timeout_ms = (int)(c->timeout_ns / 1000000),
                                    .net_devices = c->net_devices,
                                    .nodes_first = c->nodes_first };
    struct boot b = { 0 };
    accel_status_t st;

    st = comm_all_gather(c, wish, sizeof(*wish) / sizeof(int64_t), ACCEL_I64, err);
    if (st == ACCEL_OK && wish[c->rank].color >= 0) {
        st = describe_group(c, wish, g, &b, err);
        ACCEL_TRY(st, comm_open(comm_out, &b, &o, err));
    }
    ACCEL_TRY(st, hear_others(g, err));
    if (st != ACCEL_OK && *comm_out) {
        comm_close(*comm_out);
        *comm_out = NULL;
    }
    boot_free(&b);
    return st;
}

static accel_status_t split_by_rounds(struct comm *c, int color, int key,
                                      struct comm **comm_out, accel_error_t *err)
{
    /* the group outlives its bootstrap */
    struct group g = { .base = { group_exchange, NULL, NULL }, .from = c };
    const size_t size = (size_t)c->size;
    struct wish *wish = calloc(size, sizeof(*wish));
    accel_status_t st;

    g.member = calloc(size, sizeof(*g.member));
    g.head = calloc(size, sizeof(*g.head));
    if (wish && g.member && g.head) {
        wish[c->rank] = (struct wish){ color, key };
        st = open_group(&g, wish, comm_out, err);
    } else {
        st = accel_fail_nomem(err, "communicator", size * sizeof(*wish));
    }
    free(g.data);
    free(g.head);
    free(g.member);
    free(wish);
    return st;
}

accel_status_t comm_split(struct comm *c, int color, int key, struct comm **comm_out,
                          accel_error_t *err)
{
    accel_error_t own = { 0 };
    accel_status_t st = comm_refuses(c, err);

    *comm_out = NULL;
    if (st != ACCEL_OK)
        return st;
    st = c->ops->split ? c->ops->split(c, color, key, comm_out, &own)
                       : split_by_rounds(c, color, key, comm_out, &own);
    return comm_end(c, st, &own, err);
}
