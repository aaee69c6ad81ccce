/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits of the stand-in for NCCL. In: a color and a key of every rank. Out:
 * communicators of the groups, each in memory that its first rank makes.
 */
#include <stdlib.h>

#include "tests/cuda/fake_nccl.h"

static struct wish *wish_of(struct nccl_comm *c, int rank)
{
    return &c->world->wish[c->splits % 2][rank];
}

EXPORT int ncclCommSplit(nccl_comm_t *c, int color, int key, nccl_comm_t **out,
                         struct nccl_config *config)
{
    const char *rc = wish("split=");
    struct wish *own;

    if (config || color < NCCL_NO_COLOR || c->split_out || c->launched != c->finished)
        return NCCL_INVALID_USAGE;
    if (rc)
        return atoi(rc);
    c->splits++;
    c->split_out = out;
    own = wish_of(c, c->rank);
    own->color = color;
    own->key = key;
    atomic_store(&own->asked, c->splits);
    return NCCL_IN_PROGRESS;
}

/* This rank's place in its group; the group's first rank into *first. */
static int place_in_group(struct nccl_comm *c, int *size, int *first)
{
    const struct wish *own = wish_of(c, c->rank);
    int place = 0;

    *size = 0;
    *first = -1;
    for (int r = 0; r < c->size; r++) {
        const struct wish *w = wish_of(c, r), *f = *first < 0 ? w : wish_of(c, *first);

        if (w->color != own->color)
            continue;
        ++*size;
        if (*first < 0 || w->key < f->key)
            *first = r;
        place += w->key < own->key || (w->key == own->key && r < c->rank);
    }
    return place;
}

/* The first rank of a group makes its memory, the others wait for that. As with NCCL
 * there is no communicator before the one it comes from is done with the split. */
void go_on_splitting(struct nccl_comm *c)
{
    struct wish *own = wish_of(c, c->rank), *maker;
    struct nccl_comm *part;
    int place, size, first;

    for (int r = 0; r < c->size; r++)
        if (atomic_load(&wish_of(c, r)->asked) != c->splits)
            return;
    if (own->color == NCCL_NO_COLOR) {
        c->split_out = NULL;
        return;
    }
    place = place_in_group(c, &size, &first);
    maker = wish_of(c, first);
    if (first != c->rank && atomic_load(&maker->made) != c->splits)
        return;
    part = calloc(1, sizeof(*part));
    part->rank = place;
    part->size = size;
    part->fd = first == c->rank ? make_world(own->path) : -1;
    if (attach(part, maker->path) != NCCL_SUCCESS) {
        close_made(part);
        free(part);
        c->error = SYSTEM_ERROR;
        return;
    }
    if (first == c->rank)
        atomic_store(&own->made, c->splits);
    atomic_fetch_add(&part->world->attached, 1);
    *c->split_out = part;
    c->split_out = NULL;
}

EXPORT int ncclCommCount(nccl_comm_t *c, int *out)
{
    *out = c->size;
    return NCCL_SUCCESS;
}

EXPORT int ncclCommUserRank(nccl_comm_t *c, int *out)
{
    *out = c->rank;
    return NCCL_SUCCESS;
}
