/* SPDX-License-Identifier: Apache-2.0
 *
 * What a way of starting (PMIx, single process, ...) must provide to boot.c.
 * Each way embeds struct boot_impl as the first member of its own state. boot_exchange
 * has checked the blob size before `exchange` runs. Never seen outside bootstrap/, except
 * by whoever brings a world of their own.
 */
#ifndef ACCEL_BOOTSTRAP_BOOT_IMPL_H
#define ACCEL_BOOTSTRAP_BOOT_IMPL_H

#include "bootstrap/boot.h"

struct boot_impl {
    accel_status_t (*exchange)(struct boot *b, const void *mine, size_t bytes,
                               struct boot_blobs *all_out, accel_error_t *err);
    accel_status_t (*leave)(struct boot *b, accel_error_t *err);
    void (*free)(struct boot *b); /* frees the impl itself, not the arrays of *b */
};

/* Fill *b from a way of starting; rank, size, arrays and impl are set on success. */
accel_status_t boot_open_pmix(struct boot *b, accel_error_t *err);
accel_status_t boot_open_single(struct boot *b, accel_error_t *err);

/* One malloc for `count` blobs of `total` bytes altogether: data[0] points to the room,
 * the caller sets data[i] and bytes[i]. */
accel_status_t boot_blobs_alloc(struct boot_blobs *blobs, int count, size_t total,
                                accel_error_t *err);
/* Allocates node_of and local_rank_of for b->size ranks. */
accel_status_t boot_alloc_ranks(struct boot *b, accel_error_t *err);
/* From node_of[] (any small integers): node numbers 0.. in order of first appearance,
 * local ranks in rank order, node, nodes, local_rank, local_size. */
accel_status_t boot_number_nodes(struct boot *b, accel_error_t *err);

#endif
