/* SPDX-License-Identifier: Apache-2.0
 *
 * What every way of starting fills in: the blobs of an exchange, and which rank is on
 * which node. In: what the launcher reports. Out: arrays of struct boot. Talks to
 * nobody.
 */
#include <stdlib.h>
#include <string.h>

#include "bootstrap/boot_impl.h"

/* Layout of the one malloc: data[count], bytes[count], then the blobs' bytes. */
accel_status_t boot_blobs_alloc(struct boot_blobs *blobs, int count, size_t total,
                                accel_error_t *err)
{
    size_t n = (size_t)count;
    size_t head = n * (sizeof(void *) + sizeof(size_t));
    char *p = malloc(head + total + 1);

    if (!p)
        return accel_fail_nomem(err, "bootstrap exchange", head + total);
    blobs->data = (void **)(void *)p;
    blobs->bytes = (size_t *)(void *)(p + n * sizeof(void *));
    blobs->count = count;
    blobs->data[0] = p + head;
    return ACCEL_OK;
}

void boot_blobs_free(struct boot_blobs *blobs)
{
    if (!blobs)
        return;
    free(blobs->data);
    memset(blobs, 0, sizeof(*blobs));
}

accel_status_t boot_alloc_ranks(struct boot *b, accel_error_t *err)
{
    size_t n = (size_t)b->size;

    b->node_of = calloc(n, sizeof(int));
    b->local_rank_of = calloc(n, sizeof(int));
    if (!b->node_of || !b->local_rank_of)
        return accel_fail_nomem(err, "bootstrap rank table", 2 * n * sizeof(int));
    return ACCEL_OK;
}

/* By node, then by rank. */
static int compare_pairs(const void *a, const void *b)
{
    const int *x = a, *y = b;

    return x[0] != y[0] ? (x[0] < y[0] ? -1 : 1) : (x[1] > y[1]) - (x[1] < y[1]);
}

/* Sorting by (node, rank) puts the ranks of a node side by side, in rank order: the
 * position in the group is the local rank, its first member the node's lowest rank. A
 * rank that is its node's lowest opens the next number; the others look theirs up at
 * that rank, which comes before them. */
accel_status_t boot_number_nodes(struct boot *b, accel_error_t *err)
{
    size_t n = (size_t)b->size;
    int(*pair)[2] = malloc(n * sizeof(*pair)); /* (raw node, rank), sorted */
    int *first = malloc(n * sizeof(*first));   /* [rank] lowest rank of its node */

    if (!pair || !first) {
        free(pair);
        free(first);
        return accel_fail_nomem(err, "bootstrap rank table", 3 * n * sizeof(int));
    }
    for (size_t r = 0; r < n; r++) {
        pair[r][0] = b->node_of[r];
        pair[r][1] = (int)r;
    }
    qsort(pair, n, sizeof(*pair), compare_pairs);
    for (size_t i = 0, start = 0; i < n; i++) {
        if (pair[i][0] != pair[start][0])
            start = i;
        first[pair[i][1]] = pair[start][1];
        b->local_rank_of[pair[i][1]] = (int)(i - start);
    }
    b->nodes = 0;
    for (size_t r = 0; r < n; r++)
        b->node_of[r] = first[r] == (int)r ? b->nodes++ : b->node_of[first[r]];
    b->node = b->node_of[b->rank];
    b->local_rank = b->local_rank_of[b->rank];
    b->local_size = 0;
    for (size_t r = 0; r < n; r++)
        b->local_size += b->node_of[r] == b->node;
    free(pair);
    free(first);
    return ACCEL_OK;
}
