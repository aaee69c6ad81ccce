/* SPDX-License-Identifier: Apache-2.0
 *
 * TensorBoard's events as bytes: records of TFRecord with a protocol buffer each. The
 * numbers of the fields are those of event.proto, summary.proto and tensor.proto of
 * TensorFlow.
 */
#ifndef ACCEL_TRACK_EVENT_BYTES_H
#define ACCEL_TRACK_EVENT_BYTES_H

#include "track/track.h"

/* What an event file begins with: its version, and the start of a session, which tells
 * readers to forget what earlier files of the directory have of first_step and later
 * steps. Appended to b, as the next is; b->failed: out of memory. */
void event_head(struct strbuf *b, double time, int64_t first_step);
/* One event with all items. */
void event_items(struct strbuf *b, int64_t step, double time, const accel_item_t *items,
                 int n);

#endif
