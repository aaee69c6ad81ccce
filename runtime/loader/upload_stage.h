/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch on its way to a device: two buffers in its memory, filled in turn on the copy
 * queue. The copy of a batch then neither waits for the kernels of the batch before nor
 * stops the calling thread until they are done; the tensors are filled from the buffer,
 * inside the device. Nothing where memory is the host's.
 */
#ifndef ACCEL_LOADER_UPLOAD_STAGE_H
#define ACCEL_LOADER_UPLOAD_STAGE_H

#include "backend/device.h"

struct stage {
    const struct backend *be;
    /* NULL: not open */
    char *memory[2];
    /* the copy into a buffer is complete; so is that out of it */
    struct backend_event *copied[2], *taken[2];
    int turn;
};

/* Two buffers of `bytes` bytes. The caller closes it, in either case. */
accel_status_t stage_open(struct stage *s, const struct backend *be, size_t bytes,
                          accel_error_t *err);
static inline bool stage_is_open(const struct stage *s)
{
    return s->memory[1] != NULL;
}
/* Takes the other buffer for the copies that follow. */
void stage_begin(struct stage *s);
/* Copies host[bytes] to `offset` of the buffer. The caller may change `host` as soon as
 * the call returns. */
void stage_put(struct stage *s, size_t offset, const void *host, size_t bytes);
/* What compute queues from here on sees the buffer. */
void stage_filled(struct stage *s);
/* Queues a copy of bytes at `offset` to dst, which is the device's. */
void stage_get(struct stage *s, void *dst, size_t offset, size_t bytes);
/* The buffer may be filled again when what compute has queued is complete. */
void stage_end(struct stage *s);
void stage_close(struct stage *s);

#endif
