/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch on its way to a device: two buffers in device memory, filled in turn on the
 * copy queue. So the copy of a batch neither waits for the kernels of the previous
 * batch nor blocks the calling thread until they are done. The tensors are filled from
 * the buffer, inside the device. Does nothing if memory is the host's.
 */
#ifndef ACCEL_LOADER_UPLOAD_STAGE_H
#define ACCEL_LOADER_UPLOAD_STAGE_H

#include "backend/device.h"

struct stage {
    const struct backend *be;
    /* NULL: not open */
    char *memory[2];
    /* the copy into the buffer is complete; the copy out of it is complete */
    struct backend_event *copied[2], *taken[2];
    int turn;
};

/* Opens two buffers of `bytes` bytes. The caller closes it, even after an error. */
accel_status_t stage_open(struct stage *s, const struct backend *be, size_t bytes,
                          accel_error_t *err);
static inline bool stage_is_open(const struct stage *s)
{
    return s->memory[1] != NULL;
}
/* Switches to the other buffer for the copies that follow. */
void stage_begin(struct stage *s);
/* Copies host[bytes] to `offset` in the buffer. The caller may change `host` as soon as
 * the call returns. */
void stage_put(struct stage *s, size_t offset, const void *host, size_t bytes);
/* Work that is queued for compute from here on sees the buffer's contents. */
void stage_filled(struct stage *s);
/* Queues a copy of the bytes at `offset` to dst, in device memory. */
void stage_get(struct stage *s, void *dst, size_t offset, size_t bytes);
/* Lets the buffer be filled again once the work queued for compute is complete. */
void stage_end(struct stage *s);
void stage_close(struct stage *s);

#endif
