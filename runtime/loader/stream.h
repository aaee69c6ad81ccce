/* SPDX-License-Identifier: Apache-2.0
 *
 * The samples of an iterable dataset by their place in the epoch. Going forward it
 * reads and drops what lies between, going back it rewinds. For one thread at a time.
 */
#ifndef ACCEL_LOADER_STREAM_H
#define ACCEL_LOADER_STREAM_H

#include "data/data.h"

struct stream {
    const accel_dataset_t *data;
    int64_t epoch;
    /* place of the next sample that the dataset gives; -1: it must be rewound first */
    int64_t at;
    /* places of the epoch; -1: not known yet */
    int64_t places;
    /* [1] sample that is dropped, field by field */
    char *dropped;
    void *dropped_field[DATA_MAX_FIELDS];
};

/* The caller closes it, in either case. */
accel_status_t stream_open(struct stream *s, const accel_dataset_t *data,
                           accel_error_t *err);
void stream_begin(struct stream *s, int64_t epoch);
/* Reads the sample at `place` into dst[fields] (NULL: drops it). *got_out is false
 * where the epoch ends before it, and s->places is known from then on. A0713: next or
 * rewind failed. A0933: the epoch ends before the samples that the dataset
 * announced. */
accel_status_t stream_read(struct stream *s, int64_t place, void *const *dst,
                           bool *got_out, accel_error_t *err);
void stream_close(struct stream *s);

#endif
