/* SPDX-License-Identifier: Apache-2.0
 *
 * What is behind a loader. Not for other rooms.
 */
#ifndef ACCEL_LOADER_LOADER_IMPL_H
#define ACCEL_LOADER_LOADER_IMPL_H

#include "loader/batch_plan.h"
#include "loader/collate.h"
#include "data/host_batch.h"
#include "loader/loader.h"
#include "loader/prefetch.h"
#include "loader/sampler.h"
#include "loader/upload_stage.h"
#include "loader/stream.h"

/* A step that is read, or being read. */
struct loader_slot {
    struct host_batch host;
    accel_batch_t batch;
    int64_t *index, *lengths; /* [capacity of host] */
    int64_t step;
    /* samples to read; those of its places that are real, over all ranks */
    int count;
    int64_t real;
    /* the epoch ended before this step; certainly ends behind it */
    bool none, last;
    accel_status_t st;
    accel_error_t error; /* where st is one */
};

/* A place in the order of a loader: `taken` places of the epoch are handed out, which
 * may be over. */
struct loader_spot {
    int64_t epoch, taken;
    bool over;
};

struct accel_loader {
    char name[64];
    struct loader_place place;
    const struct backend *backend;
    const accel_dataset_t *data;
    const accel_field_t *field;
    int fields;
    bool held_out, iterable;
    struct batch_plan plan;
    struct sampler sampler; /* not iterable */
    struct stream stream;   /* iterable */
    struct collate collate;

    struct prefetch ahead;
    struct loader_slot *slot; /* [slots] */
    int slots;
    /* stands for a step that a stop did not wait for */
    struct loader_slot stopped;
    struct stage stage; /* open on a device */

    int64_t epoch;
    /* the next step to hand out, counted from plan.base */
    int64_t step;
    /* reading has begun in this epoch; it is at its end */
    bool begun, over;
    /* places of the epoch that are handed out */
    int64_t taken;
    /* where the last step of the run ended */
    struct loader_spot kept;
    /* the run's cursor after an epoch without a batch; -1: the last one had some. Steps
     * that the loss scale skips do not move the number of steps. */
    int64_t idle_at;
    /* a rank that failed repeats the batch of this slot */
    struct loader_slot *last_good;
    /* this rank's part of the last batch: samples [offset, offset + count) */
    int offset;
    struct loader_state state;
    int64_t first_place;

    /* of the run's list; NULL: it has no run */
    accel_t *run;
    struct accel_loader *next;
};

/* Places of an epoch; -1: not known yet. */
int64_t loader_places(const struct accel_loader *l);
/* Samples that a slot of this rank may have to hold. */
int64_t loader_capacity(const struct accel_loader *l);

/* Ends reading ahead; the next batch begins at place `taken` of `epoch`, or is the end
 * of it. */
void loader_seek(struct accel_loader *l, int64_t epoch, int64_t taken, bool over);

/* ---- fill.c: from a step to samples in its slot; the functions of the ring ------- */

extern const struct prefetch_ops loader_ring;

/* ---- dispatch_batch.c ------------------------------------------------------------ */

/* Sends slot `s` of rank 0 to all ranks: *slot_out is rank 0's or the copy of it.
 * Collective. */
accel_status_t dispatch_step(struct accel_loader *l, struct loader_slot *s,
                             struct loader_slot **slot_out, accel_error_t *err);

#endif
