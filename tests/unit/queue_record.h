/* SPDX-License-Identifier: Apache-2.0
 *
 * A backend that computes on the CPU and writes down what a device would have been
 * told:
 * every kernel with its queue and the memory it reads and writes, every event recorded
 * and waited for. And a judge of such a record: is everything that touches the same
 * memory ordered, whatever the speed of the queues?
 */
#ifndef ACCEL_TESTS_QUEUE_RECORD_H
#define ACCEL_TESTS_QUEUE_RECORD_H

#include "backend/device.h"

struct queue_record;

/* One record per process. The backend is a copy of the CPU's: `be` must outlive it. */
struct queue_record *queue_record_open(const struct backend *be,
                                       const struct backend **recording_out);
void queue_record_close(struct queue_record *r);

/* A kernel on the queue in use that the backend has not seen: the test's own, or a
 * collective's. A range of 0 bytes is none. */
void queue_record_kernel(struct queue_record *r, const char *name, const void *in,
                         size_t in_bytes, void *out, size_t out_bytes);

int queue_record_waits(const struct queue_record *r);
/* Is every read behind the write before it, and every write behind all that touched the
 * memory before it? Events order; that calls came one after the other does not. Without
 * wait number `skip` (-1: with all). A fault is told in `why`. */
bool queue_record_ordered(const struct queue_record *r, int skip, char why[160]);
/* "gather waits for event 3": which wait that is. */
const char *queue_record_wait_text(const struct queue_record *r, int wait);

#endif
