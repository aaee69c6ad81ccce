/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_loaders.h: loaders, which make batches from any dataset: train, validation and
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

/* Samples that are read one after another. `next` writes the next sample into dst[i],
 * one array per field, and returns 1; it returns 0 at the end of the epoch and any
 * other value on failure. `rewind` goes to the first sample of an epoch; it returns 0,
 * or any other value on failure. The same samples must follow the same rewind: a
 * resumed run reads up to its position, and an epoch that does not fill its last batch
 * is completed with its first samples. An epoch without samples is an error. A loader
 * that reads ahead calls both functions on its own thread. Some seconds after the run
 * was told to stop, blocking system calls in them fail with EINTR. */
typedef struct accel_iterable {
    size_t bytes;
    int (*next)(void *user, void *const *dst);
    int (*rewind)(void *user, int64_t epoch);
    void *user;      /* must outlive the dataset */
    int64_t samples; /* per epoch; 0: not known before its end */
} accel_iterable_t;
/* A dataset for loaders only. `source` and `fields` are copied. Errors:
 * ACCEL_EINVAL. */
accel_status_t accel_dataset_iterable_new(accel_dataset_t **out,
                                          const accel_iterable_t *source,
                                          const accel_field_t *fields, int n,
                                          accel_error_t *err);
/* Promises that the dataset's fetch function may run on this many threads at once; the
 * default is 1. A loader that reads ahead calls it on threads of its own. Token files
 * may be read by any number of threads. Errors: ACCEL_EINVAL (an iterable dataset,
 * fewer than 1). */
accel_status_t accel_dataset_set_threads(accel_dataset_t *d, int threads,
                                         accel_error_t *err);

/* ---- loaders --------------------------------------------------------------------- */

typedef struct accel_loader accel_loader_t;

/* The order of an epoch, the same for any number of ranks. */
typedef enum accel_sampler {
    /* a permutation computed position by position, without a table */
    ACCEL_SAMPLER_KEYED = 0,
    /* 0, 1, 2, ... */
    ACCEL_SAMPLER_SEQUENTIAL = 1,
    /* torch.randperm seeded with seed + epoch: the samples of Accelerate's seedable
     * sampler; a table in memory */
    ACCEL_SAMPLER_TORCH = 2,
    /* drawn by weights[], with or without replacement */
    ACCEL_SAMPLER_WEIGHTED = 3,
    /* as the index function says */
    ACCEL_SAMPLER_OWN = 4,
} accel_sampler_t;

/* Who reads. AUTO: one rank for iterable datasets, every rank for others. */
typedef enum accel_dispatch {
    ACCEL_DISPATCH_AUTO = 0,
    ACCEL_DISPATCH_ON,  /* rank 0 reads, and sends each rank its part */
    ACCEL_DISPATCH_OFF, /* each rank reads its part */
} accel_dispatch_t;

/* The sample at position `place` (0 .. samples - 1) of an epoch, the same on all ranks.
 * Negative: failed. May run on the threads that fetch, one at a time. */
typedef int64_t (*accel_index_f)(void *user, int64_t epoch, int64_t place);
/* The length of a sample along its first dimension. `sample` is the fetched sample, one
 * array per field, or NULL while samples are sorted into buckets. `index` is -1 for
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
/* May rearrange the samples in place, change ndim, and reduce dims after the first. The
 * field's data must then be row-major with the new dims, in the same memory. Returns 0,
 * or any other value on failure. May run on the threads that fetch. */
typedef int (*accel_collate_f)(void *user, accel_batch_t *batch);

typedef struct accel_loader_options {
    size_t bytes;
    int batch;               /* samples per rank; with split_batches: of all ranks */
    accel_sampler_t sampler; /* for datasets that are not iterable */
    uint64_t seed;           /* of the order, together with the epoch's number */
    int64_t samples;         /* per epoch, WEIGHTED and OWN; 0: the dataset's */
    const double *weights;   /* [samples of the dataset], not negative; copied */
    int once;                /* WEIGHTED: no sample twice in an epoch */
    accel_index_f index;     /* OWN */
    int held_out;            /* read the held-out samples of the dataset */
    int drop_last;           /* leave out a last step that is not full */
    /* A last step that is not full is completed with the first samples of the epoch,
     * unless this is set; then some ranks have a smaller batch or one batch less. */
    int uneven;
    /* With uneven: all ranks get the same number of batches. A batch without a sample
     * gets a copy of the epoch's first one, which does not count: accel_loader_real
     * returns 0, and accel_loader_loss makes its loss 0. */
    int join;
    int split_batches; /* split one batch into equal parts for the ranks */
    accel_dispatch_t dispatch_batches;
    int prefetch; /* batches that are read ahead by threads; 0: read when asked */
    int threads;  /* that read; 0: one */

    /* Samples of different length. fetch fills the first `length` rows of the fields
     * chosen here (bit i: field i), whose first dimension is the maximum. Batches are
     * as long as their longest sample; pad_value[i] fills the rest, a value of the
     * field's dtype (int64: up to 2^53). */
    accel_length_f length;
    unsigned pad;
    double pad_value[8];
    int pad_multiple; /* lengths of batches are rounded up to a multiple; 0: 1 */
    /* Sorts every `bucket` samples of the epoch's order by length, so that batches hold
     * samples of similar length; 0: never. */
    int64_t bucket;
    accel_collate_f collate;
    void *user; /* of index, length and collate; must outlive the loader */
} accel_loader_options_t;

/* A loader of the run over `data`, which must outlive it. `name` identifies it in
 * checkpoints: at most 63 letters, digits, underscores, hyphens and dots, unique in the
 * run. `options` is copied. Checkpoints hold its epoch and the number of samples of the
 * epoch given to all ranks; a resumed run continues with the next sample, on any number
 * of ranks, whether the loader is opened before or after accel_prepare. Options may
 * change as long as the order stays the same. The library warns about a saved position
 * that no loader asks for, and keeps it in later checkpoints; accel_loader_close
 * discards the loader's position. Errors: ACCEL_EINVAL (names the option),
 * ACCEL_EMISMATCH (the position belongs to another order; A0932), ACCEL_ENOMEM. */
accel_status_t accel_loader_new(accel_loader_t **out, accel_t *run, const char *name,
                                accel_dataset_t *data,
                                const accel_loader_options_t *options,
                                accel_error_t *err);
/* The next batch of this rank: n tensors, one per field, [samples, dims of the field
 * ...], and *got_out = 1. At the end of the epoch *got_out = 0, and the next call
 * begins the next epoch. Begins a micro-batch as accel_next does: earlier tensors are
 * freed, float fields come in the compute dtype. In inference mode
 * (accel_inference_mode) it begins none and only frees them. Collective at the first
 * and last batch of an epoch, with dispatch always. A sample that one rank cannot read
 * ends the run on all ranks with that rank's message: at once in the first batch of an
 * epoch and with dispatch; otherwise at the next accel_step or the end of the epoch,
 * and until then that rank repeats its previous batch. Errors: ACCEL_EINVAL (wrong n;
 * an epoch without a batch), ACCEL_EIO (fetch, next, rewind, index, length or collate
 * failed), and those of accel_step when the run stops without waiting for a sample. */
accel_status_t accel_loader_next(accel_loader_t *l, accel_tensor_t **batch, int n,
                                 int *got_out, accel_error_t *err);
/* Batches of this rank in a whole epoch; -1: not known. */
int64_t accel_loader_length(const accel_loader_t *l);
/* The epoch of the last batch, from 0; before the first batch, the epoch that will
 * begin. */
int64_t accel_loader_epoch(const accel_loader_t *l);
/* 1 when the last batch was the last of its epoch; known as soon as that batch is
 * returned. */
int accel_loader_at_end(const accel_loader_t *l);
/* Samples of the epoch's last step over all ranks; 0 when it is full; -1 where it is
 * dropped or, before the end, not known. */
int64_t accel_loader_remainder(const accel_loader_t *l);
/* How many samples of the last batch count: the first ones. The rest repeat others to
 * fill the batch. */
int accel_loader_real(const accel_loader_t *l);
/* The loss of the last batch for accel_backward: `loss` itself or, where no sample
 * counts (join), a loss of 0 whose gradients are 0 in every precision. Errors: as an
 * op. */
accel_tensor_t *accel_loader_loss(const accel_loader_t *l, accel_tensor_t *loss);
/* What accel_gather_for_metrics needs to know about the last batch of all ranks. It
 * then gathers each sample of the epoch once, in every mode. Where ranks have different
 * numbers of batches (uneven without join), gather once, after the last one. */
accel_batch_end_t accel_loader_end(const accel_loader_t *l);
/* Goes to the start of `epoch` (0 or more). The same on all ranks. */
accel_status_t accel_loader_set_epoch(accel_loader_t *l, int64_t epoch,
                                      accel_error_t *err);
/* Leaves out the next `batches` batches of each rank, at most to the end of the epoch.
 * The same on all ranks. */
accel_status_t accel_loader_skip(accel_loader_t *l, int64_t batches,
                                 accel_error_t *err);
/* Ends the loader's threads and frees it; accel_close does so for the remaining
 * loaders. NULL is fine. */
void accel_loader_close(accel_loader_t *l);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
