/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that a save takes beside what it saves: the figures that checkpoint/
 * allocates by, and plan/ counts.
 */
#ifndef ACCEL_CKPT_SIZES_H
#define ACCEL_CKPT_SIZES_H

#include <stddef.h>

/* unit of reading and writing; a multiple of the piece */
#define CKPT_IO_BYTES (4 << 20)
/* what O_DIRECT wants of memory, offset and length */
#define CKPT_PAGE 4096

/* Bytes that ckpt_stage_map takes for them: whole huge pages. */
#define CKPT_HUGE_BYTES ((size_t)2 << 20)
static inline size_t ckpt_stage_bytes(size_t bytes)
{
    return (bytes + CKPT_HUGE_BYTES - 1) / CKPT_HUGE_BYTES * CKPT_HUGE_BYTES;
}

/* Spans in memory while files are read: one being taken, one being hashed, two ready,
 * two being read. Behind them lies one of another rank. O_DIRECT reads whole pages: a
 * span may begin and end inside one. */
#define CKPT_SLOTS      6
#define CKPT_SLOT_BYTES (CKPT_IO_BYTES + 2 * CKPT_PAGE)

/* Bytes of a round of small tensors that go to rank 0, which writes the one file of all
 * ranks; a larger tensor is a round of its own. */
#define CKPT_ROUND_BYTES (32 << 20)

/* A copy of a staged checkpoint: a buffer to copy with, and the reader's, which checks
 * a part before. */
static inline size_t ckpt_drain_bytes(void)
{
    return ckpt_stage_bytes(CKPT_IO_BYTES) +
           ckpt_stage_bytes((CKPT_SLOTS + 1) * (size_t)CKPT_SLOT_BYTES);
}

#endif
