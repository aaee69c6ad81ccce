/* SPDX-License-Identifier: Apache-2.0
 *
 * What a way of starting (PMIx, single process, ...) provides to boot.c. Each way
 * embeds struct boot_impl as the first member of its own state. boot_exchange has
 * checked the size of the blob before `exchange` runs. Private to bootstrap/, except
 * for code that brings a world of its own (comm_split.c).
 */
#ifndef ACCEL_BOOTSTRAP_BOOT_IMPL_H
#define ACCEL_BOOTSTRAP_BOOT_IMPL_H

#include "bootstrap/boot.h"

struct boot_impl {
    accel_status_t (*exchange)(struct boot *b, const void *mine, size_t bytes,
                               struct boot_blobs *all_out, accel_error_t *err);
    /* NULL: there is no server to leave */
    accel_status_t (*leave)(struct boot *b, accel_error_t *err);
    /* frees the impl itself, not the arrays of *b; NULL: it belongs to somebody else */
    void (*free)(struct boot *b);
};

/* Fill *b from one way of starting: rank, size, arrays and impl are set on success. */
accel_status_t boot_open_pmix(struct boot *b, accel_error_t *err);
accel_status_t boot_open_single(struct boot *b, accel_error_t *err);

/* One malloc for `count` blobs of `total` bytes altogether. data[0] points to the
 * bytes; the caller sets data[i] and bytes[i]. */
accel_status_t boot_blobs_alloc(struct boot_blobs *blobs, int count, size_t total,
                                accel_error_t *err);
/* Allocates node_of and local_rank_of for b->size ranks, zeroed: all on node 0. */
accel_status_t boot_alloc_ranks(struct boot *b, accel_error_t *err);
/* Takes node_of[] as any integers that are equal for ranks of one node. Renumbers
 * them from 0 in order of first appearance and fills local_rank_of, node, nodes,
 * local_rank and local_size. */
accel_status_t boot_number_nodes(struct boot *b, accel_error_t *err);

#endif
