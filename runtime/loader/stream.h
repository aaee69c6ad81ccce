/* SPDX-License-Identifier: Apache-2.0
 *
 * The samples of an iterable dataset by their position in the epoch. To go forward, it
 * reads and drops the samples in between; to go back, it rewinds. For one thread at a
 * time.
 */
#ifndef ACCEL_LOADER_STREAM_H
#define ACCEL_LOADER_STREAM_H

#include "data/data.h"

struct stream {
    const accel_dataset_t *data;
    int64_t epoch;
    /* position of the dataset's next sample; -1: it must be rewound first */
    int64_t at;
    /* positions of the epoch; -1: not known yet */
    int64_t places;
    /* room for one sample that is dropped, field by field */
    char *dropped;
    void *dropped_field[DATA_MAX_FIELDS];
};

/* The caller closes it, even after an error. */
accel_status_t stream_open(struct stream *s, const accel_dataset_t *data,
                           accel_error_t *err);
void stream_begin(struct stream *s, int64_t epoch);
/* Reads the sample at position `place` into dst[fields] (NULL: drops it). *got_out is
 * false if the epoch ends before it; s->places is known from then on. A0713: next or
 * rewind failed. A0933: the epoch has fewer samples than the dataset announced. */
accel_status_t stream_read(struct stream *s, int64_t place, void *const *dst,
                           bool *got_out, accel_error_t *err);
void stream_close(struct stream *s);

#endif
