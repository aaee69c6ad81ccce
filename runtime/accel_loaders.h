/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_loaders.h: loaders, which make batches of any dataset: train, validation and
 * test data side by side, in an order of your choice, read ahead by threads.
 */
#include "accel.h" /* which includes this header at its end */
#include "accel_ranks.h"

#ifndef ACCEL_LOADERS_H
#define ACCEL_LOADERS_H

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- datasets -------------------------------------------------------------------- */

/* Samples that come one after the other. `next` writes the next sample into dst[i], one
 * array per field, and returns 1, or 0 at the end of the epoch, or anything else on
 * failure. `rewind` goes to the first sample of an epoch; it returns 0, or anything
 * else on failure. After the same rewind the same samples must follow: a resumed run
 * goes on by reading up to its place, and an epoch that does not fill its last batch is
 * completed with its first samples. An epoch without a sample is an error. A loader
 * that reads ahead calls both on a thread of its own. System calls in which they wait
 * fail (EINTR) some seconds after the run was told to stop. */
typedef struct accel_iterable {
    int (*next)(void *user, void *const *dst);
    int (*rewind)(void *user, int64_t epoch);
    void *user;      /* must outlive the dataset */
    int64_t samples; /* per epoch; 0: not known before its end */
} accel_iterable_t;
/* A dataset for loaders only. Copies `source` and `fields`. Errors: ACCEL_EINVAL. */
accel_status_t accel_dataset_iterable_new(accel_dataset_t **out,
                                          const accel_iterable_t *source,
                                          const accel_field_t *fields, int n,
                                          accel_error_t *err);
/* Promises that the dataset's fetch function may run on this many threads at once; 1
 * unless said. A loader that reads ahead calls it on threads of its own. Token files
 * may be read on any number. Errors: ACCEL_EINVAL (an iterable dataset, fewer than
 * 1). */
accel_status_t accel_dataset_set_threads(accel_dataset_t *d, int threads,
                                         accel_error_t *err);

/* ---- loaders --------------------------------------------------------------------- */

typedef struct accel_loader accel_loader_t;

/* The order of an epoch: the same for every number of ranks. */
typedef enum accel_sampler {
    /* a permutation computed place by place, without a table */
    ACCEL_SAMPLER_KEYED = 0,
    /* 0, 1, 2, ... */
    ACCEL_SAMPLER_SEQUENTIAL = 1,
    /* torch.randperm seeded with seed + epoch: the samples of Accelerate's seedable
     * sampler; a table in memory */
    ACCEL_SAMPLER_TORCH = 2,
    /* drawn by weights[], with or without replacement */
    ACCEL_SAMPLER_WEIGHTED = 3,
    /* what the index function says */
    ACCEL_SAMPLER_OWN = 4,
} accel_sampler_t;

/* Who reads. AUTO: one rank for iterable datasets, every rank for others. */
typedef enum accel_dispatch {
    ACCEL_DISPATCH_AUTO = 0,
    ACCEL_DISPATCH_ON,  /* rank 0 reads, and sends each rank its part */
    ACCEL_DISPATCH_OFF, /* each rank reads its part */
} accel_dispatch_t;

/* The sample at `place` (0 .. samples - 1) of an epoch; the same on all ranks.
 * Negative: failed. May run on the threads that fetch, one at a time. */
typedef int64_t (*accel_index_f)(void *user, int64_t epoch, int64_t place);
/* The length of a sample along its first dimension. `sample` is what was fetched, one
 * array per field, or NULL while samples are sorted into buckets; `index` is -1 for
 * iterable datasets. Negative: failed. May run on the threads that fetch. */
typedef int64_t (*accel_length_f)(void *user, int64_t index, void *const *sample);

/* A batch in host memory, before it becomes tensors. */
typedef struct accel_batch {
    int count;            /* samples */
    int fields;           /* of each */
    const int64_t *index; /* [count] sample numbers; -1 for iterable datasets */
    struct accel_batch_field {
        void *data; /* samples side by side: [count][dims of the field] */
        accel_dtype_t dtype;
        int ndim;        /* the batch's dimension included */
        int64_t dims[4]; /* count, then those of the field */
    } field[8];
} accel_batch_t;
/* May rearrange the samples in place, change ndim, and reduce dims behind the first:
 * what the field holds then is row-major with those dims, in the room it has. Returns
 * 0, or anything else on failure. May run on the threads that fetch. */
typedef int (*accel_collate_f)(void *user, accel_batch_t *batch);

typedef struct accel_loader_options {
    int batch;               /* samples per rank; of all ranks with split_batches */
    accel_sampler_t sampler; /* for datasets that are not iterable */
    uint64_t seed;           /* of the order; an epoch's order depends on its number */
    int64_t samples;         /* per epoch, WEIGHTED and OWN; 0: as the dataset */
    const double *weights;   /* [samples of the dataset], not negative; copied */
    int once;                /* WEIGHTED: no sample twice in an epoch */
    accel_index_f index;     /* OWN */
    int held_out;            /* walk over the held-out part of the dataset */
    int drop_last;           /* leave out a last step that is not full */
    /* A last step that is not full is completed with the first samples of the epoch,
     * unless this is set; then some ranks have smaller batches or one less. */
    int uneven;
    /* With uneven: all ranks get as many batches. One without a sample gets a copy of
     * the epoch's first, which does not count: accel_loader_real says 0, and
     * accel_loader_loss makes its loss 0. */
    int join;
    int split_batches; /* cut one batch into equal parts for the ranks */
    accel_dispatch_t dispatch_batches;
    int prefetch; /* batches that are read ahead by threads; 0: read when asked */
    int threads;  /* that read; 0: one */

    /* Samples of different length: fetch fills the first `length` rows of these fields
     * (bit i: field i), whose first dimension is the longest; batches are as long as
     * their longest sample, and the rest is filled with pad_value[i], a value of
     * the field's dtype (int64: up to 2^53). */
    accel_length_f length;
    unsigned pad;
    double pad_value[8];
    int pad_multiple; /* batches are as long as a multiple of this; 0: 1 */
    /* Sorts each `bucket` samples of the epoch's order by length, so that batches hold
     * samples of like length; 0: never. */
    int64_t bucket;
    accel_collate_f collate;
    void *user; /* of index, length and collate; must outlive the loader */
} accel_loader_options_t;

/* A loader of the run over `data`, which must outlive it. `name` identifies it in
 * checkpoints: at most 63 letters, digits, underscores, hyphens and dots, which no
 * other loader of the run has. Copies `options`. Checkpoints hold its epoch and how
 * many samples of it all ranks have been given; a resumed run goes on with the next
 * sample, on any number of ranks, whether the loader is opened before or after
 * accel_prepare. Options may change as long as the order stays. A place that no loader
 * asks for is warned of, and stays in later checkpoints; accel_loader_close forgets
 * the loader's. Errors: ACCEL_EINVAL (names the option), ACCEL_EMISMATCH (the place is
 * of another order; A0932), ACCEL_ENOMEM. */
accel_status_t accel_loader_new(accel_loader_t **out, accel_t *run, const char *name,
                                accel_dataset_t *data,
                                const accel_loader_options_t *options,
                                accel_error_t *err);
/* The next batch of this rank: one tensor per field, [samples, dims of the field ...],
 * n of them, and *got_out = 1; or *got_out = 0 at the end of the epoch, and the call
 * after that begins the next one. Begins a micro-batch as accel_next does: earlier
 * tensors are freed, float fields come in the compute dtype. After accel_inference_mode
 * it begins none, only frees. Collective at the first and last batch of an epoch, with
 * dispatch always. A sample that cannot be had on one rank ends the run on all ranks
 * with that rank's message: in the first batch of an epoch and with dispatch at once;
 * else at the next accel_step or the end of the epoch, and until then that rank repeats
 * its batch before. Errors: ACCEL_EINVAL (another n; an epoch without a batch),
 * ACCEL_EIO (fetch, next, rewind, index, length or collate failed), and those of
 * accel_step where a stop does not wait for a sample. */
accel_status_t accel_loader_next(accel_loader_t *l, accel_tensor_t **batch, int n,
                                 int *got_out, accel_error_t *err);
/* Batches of this rank in a whole epoch; -1: not known. */
int64_t accel_loader_length(const accel_loader_t *l);
/* The epoch of the last batch, from 0; before the first, the one that will begin. */
int64_t accel_loader_epoch(const accel_loader_t *l);
/* 1 when the last batch was the last of its epoch: known as soon as it is there. */
int accel_loader_at_end(const accel_loader_t *l);
/* Samples of the epoch's last step over all ranks, 0 when it is full, -1 where it is
 * dropped or, before the end, not known. */
int64_t accel_loader_remainder(const accel_loader_t *l);
/* How many samples of the last batch count: the first ones. Those behind repeat others
 * to fill the batch. */
int accel_loader_real(const accel_loader_t *l);
/* The loss of the last batch as it counts in the step: `loss` itself, or where none of
 * the samples counts (join) a loss of 0, whose gradients are 0, in every precision. For
 * accel_backward. Errors: as an op. */
accel_tensor_t *accel_loader_loss(const accel_loader_t *l, accel_tensor_t *loss);
/* The same of all ranks, as accel_gather_for_metrics takes it: with it the gather has
 * each sample of the epoch once, in every mode. Where ranks have different numbers of
 * batches (uneven without join), gather once, after the last one. */
accel_batch_end_t accel_loader_end(const accel_loader_t *l);
/* Goes to the start of `epoch` (0 or more). The same on all ranks. */
accel_status_t accel_loader_set_epoch(accel_loader_t *l, int64_t epoch,
                                      accel_error_t *err);
/* Leaves out the next `batches` batches of each rank, at most to the end of the epoch.
 * The same on all ranks. */
accel_status_t accel_loader_skip(accel_loader_t *l, int64_t batches,
                                 accel_error_t *err);
/* Ends its threads and frees it; accel_close does so for those that are left. NULL is
 * fine. */
void accel_loader_close(accel_loader_t *l);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
