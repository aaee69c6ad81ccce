/* SPDX-License-Identifier: Apache-2.0
 *
 * From samples side by side to the batch that becomes tensors: trims samples of
 * different lengths to the longest of them, pads the others, and calls the program's
 * collate function. In place; allocates nothing. Runs on the threads that fetch.
 */
#ifndef ACCEL_LOADER_COLLATE_H
#define ACCEL_LOADER_COLLATE_H

#include "numbers/element.h"
#include "data/host_batch.h"

/* The options of a loader that say how. */
struct collate {
    accel_length_f length; /* NULL: all samples are as long as their fields */
    unsigned pad;          /* bit f: field f has samples of different lengths */
    struct element fill[DATA_MAX_FIELDS];
    int64_t multiple; /* the length of a batch is a multiple of this */
    accel_collate_f own;
    void *user;
};

/* Takes them from the options. A0930: a field cannot be padded, its dtype does not have
 * the padding value, or there is no length function. */
accel_status_t collate_open(struct collate *c, const accel_loader_options_t *o,
                            const accel_field_t *field, int fields, accel_error_t *err);
/* Makes `batch` from the samples in `b`: index[count] are their numbers, lengths[count]
 * is room for their lengths. A0931: a function of the program failed. */
accel_status_t collate_batch(const struct collate *c, const struct host_batch *b,
                             const accel_field_t *field, int fields, int count,
                             const int64_t *index, int64_t *lengths,
                             accel_batch_t *batch, accel_error_t *err);

#endif
