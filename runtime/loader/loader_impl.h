/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of a loader. Not for other rooms.
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

/* A step that has been read, or is being read. */
struct loader_slot {
    struct host_batch host;
    accel_batch_t batch;
    int64_t *index, *lengths; /* [capacity of host] */
    int64_t step;
    /* samples to read; how many positions of the step are real, over all ranks */
    int count;
    int64_t real;
    /* the epoch ended before this step; it certainly ends after it */
    bool none, last;
    accel_status_t st;
    accel_error_t error; /* if `st` is a failure */
};

/* A position in the order of a loader: `taken` positions of the epoch have been handed
 * out; over: the epoch has ended. */
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
    /* stands for a step whose wait a stop has ended */
    struct loader_slot stopped;
    struct stage stage; /* open on a device */

    int64_t epoch;
    /* the next step to hand out, counted from plan.base */
    int64_t step;
    /* reading has begun in this epoch; the epoch is over */
    bool begun, over;
    /* positions of the epoch that have been handed out */
    int64_t taken;
    /* where the last step of the run ended */
    struct loader_spot kept;
    /* the run's cursor after an epoch without a batch; -1: the last epoch had some.
     * (Steps that the loss scale skips do not advance the number of steps.) */
    int64_t idle_at;
    /* after a failure, this rank repeats the batch of this slot */
    struct loader_slot *last_good;
    /* this rank's part of the last batch: samples [offset, offset + count) */
    int offset;
    struct loader_state state;
    int64_t first_place;

    /* the run, in whose list it is; NULL: it has no run */
    accel_t *run;
    struct accel_loader *next;
};

/* Positions of an epoch; -1: not known yet. */
int64_t loader_places(const struct accel_loader *l);
/* The most samples that a slot of this rank may have to hold. */
int64_t loader_capacity(const struct accel_loader *l);

/* Ends reading ahead. The next batch begins at `taken` of `epoch`; over: at its end. */
void loader_seek(struct accel_loader *l, int64_t epoch, int64_t taken, bool over);

/* ---- fill.c: from a step to samples in its slot; the functions of the ring ------- */

extern const struct prefetch_ops loader_ring;
/* Zeros in place of the samples of slot `s`, which failed. */
void fill_zeros(struct accel_loader *l, struct loader_slot *s);

/* ---- dispatch_batch.c ------------------------------------------------------------ */

/* Sends slot `s` of rank 0 to all ranks: *slot_out: that, or its copy. Collective. */
accel_status_t dispatch_step(struct accel_loader *l, struct loader_slot *s,
                             struct loader_slot **slot_out, accel_error_t *err);

#endif
