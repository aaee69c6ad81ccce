/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_ranks.h: between ranks. What the ranks of a run exchange for a program: values
 * for metrics, shares of a list, triggers, errors.
 */
#include "accel.h" /* which includes this header at its end */

#ifndef ACCEL_RANKS_H
#define ACCEL_RANKS_H

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- between ranks ------------------------------------------------------------------
 * Allowed after accel_open, between forwards, in runs with a model or with units. All
 * calls are collective unless their comment says otherwise.
 *
 * Tensors are those of the run's current micro-batch: results of an op or accel_input.
 * A result belongs to the run, lives as long as they do, and carries no gradient. NULL
 * on failure, also in `err`. Arrays (accel_array_t) are the program's own, in host
 * memory, row-major, with 0 to 4 dimensions; elems of an input is ignored. Any dtype
 * that a tensor may have.
 *
 * A wrong argument on one rank is an error of that rank only. It has not taken part,
 * and the others wait for it until it ends, at most until the deadline. With `debug:
 * true` in the config, and always for tensors on a GPU, the ranks first compare call,
 * dtype and shape. All of them then return one error that names the rank that differs
 * (ACCEL_EMISMATCH), or the error of the rank whose arguments are wrong, and the run
 * can go on. Errors of all calls: ACCEL_EINVAL (arguments; a tensor that is NULL, a
 * parameter, freed or of another run), ACCEL_EMISMATCH, ACCEL_EPEER, ACCEL_ENOMEM (the
 * run ends on all ranks). */

/* Who this process is, like accel_is_main: the first rank of its node, and the last of
 * all ranks. Local. */
int accel_is_local_main(const accel_t *run);
int accel_is_last(const accel_t *run);

/* Prints one text for all ranks: rank 0 passes each line of it to the run's logger
 * (level info), the others do nothing. Local. */
void accel_print(accel_t *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns when all ranks have called it. On a GPU, not before its work is done. */
accel_status_t accel_barrier(accel_t *run, accel_error_t *err);
/* Agrees on an error, so that no rank waits for one that has failed. `st` is the status
 * of this rank's own work, with its error in *err. Returns ACCEL_OK if `st` is ACCEL_OK
 * on all ranks. Otherwise every rank gets the status and the error of the lowest rank
 * that failed, on the others with "rank N: " in front. Also allowed in a run that has
 * failed. The run does not fail because of it, unless it has already failed on a
 * rank. */
accel_status_t accel_agree(accel_t *run, accel_status_t st, accel_error_t *err);
/* Ends the run with an error of this rank where no agreement follows: the others end
 * with the same error, as in accel_agree, in the collective in which they wait for this
 * rank. `st`, not ACCEL_OK, and *err say why. Also for functions that the library calls
 * on the run's thread and that have no status to return (an own optimizer, a gradient
 * function); the call that they are part of then fails with it. The library does the
 * same for its own failures, and for those of forwards and own ops. Local. Returns
 * `st`; ACCEL_EINVAL. */
accel_status_t accel_give_up(accel_t *run, accel_status_t st, accel_error_t *err);
/* Lets some ranks go first, say to download a file; the others wait in begin:
 *     st = accel_first_begin(run, accel_is_main(run), &err);
 *     st = accel_first_end(run, st ? st : work(&err), &err);
 * `first` is 1 on the ranks that do not wait: accel_is_main, accel_is_local_main ...
 * `st` and *err are the result of the work. If one of the first ranks fails, begin
 * returns its error on the others, as in accel_agree; they do not do the work. Every
 * rank makes both calls: begin waits, end reports. Errors: ACCEL_EINVAL (out of
 * order). */
accel_status_t accel_first_begin(accel_t *run, int first, accel_error_t *err);
accel_status_t accel_first_end(accel_t *run, accel_status_t st, accel_error_t *err);
/* A signal from any rank to all: accel_trigger_set (local) raises it on this rank; the
 * next accel_trigger_check gives 1 on all ranks and clears it, or 0 if no rank raised
 * it. */
void accel_trigger_set(accel_t *run);
accel_status_t accel_trigger_check(accel_t *run, int *set_out, accel_error_t *err);

/* A share of n items: [first, first + count), then item `last` repeated `padding`
 * times. */
typedef struct accel_share {
    int64_t first, count;
    int64_t padding, last;
} accel_share_t;
/* The share of `rank` among `world` ranks: contiguous; the first n % world ranks have
 * one more item. With `pad` all shares are made equally long by repeating the last of
 * all items. Needs no run; local. ACCEL_EINVAL (n < 0, no such rank, padding without
 * items). */
accel_status_t accel_split(int64_t n, int rank, int world, int pad,
                           accel_share_t *share_out, accel_error_t *err);

/* t [n, ...] of every rank -> [world * n, ...], in rank order; [1] -> [world]. The
 * shape must be the same on all ranks. */
accel_tensor_t *accel_gather(accel_t *run, const accel_tensor_t *t, accel_error_t *err);
/* The same for an array; a number (ndim 0) -> [world]. all->data is the caller's, has
 * the dtype of `mine` and room for all->elems elements. The call sets dims, ndim and
 * elems of *all to those of the result. */
accel_status_t accel_gather_array(accel_t *run, const accel_array_t *mine,
                                  accel_array_t *all, accel_error_t *err);

/* Which samples of a batch count, and which only fill it up; accel_loader_end returns
 * it for a loader's last batch. All zero: all samples count. */
typedef struct accel_batch_end {
    int at_end;        /* 1: the last batch of the epoch */
    int64_t remainder; /* there: how many count, over all ranks, from the first one on;
                        * 0 or -1: all. The same on all ranks */
    int counted;       /* 1, on all ranks or on none: `count` says it instead, for every
                        * batch; ranks may have different numbers of rows, or none */
    int64_t count;     /* the first `count` rows of this rank */
} accel_batch_end_t;
/* accel_gather of the samples that count: one row each, and each once. `end` NULL: all.
 * An array needs room for the rows of all ranks; with `counted`, for those that count.
 * Errors: ACCEL_EINVAL (a number, or fewer rows than count: these values are not one
 * per sample). */
accel_tensor_t *accel_gather_for_metrics(accel_t *run, const accel_tensor_t *t,
                                         const accel_batch_end_t *end,
                                         accel_error_t *err);
accel_status_t accel_gather_for_metrics_array(accel_t *run, const accel_array_t *mine,
                                              const accel_batch_end_t *end,
                                              accel_array_t *all, accel_error_t *err);

typedef enum accel_reduction {
    ACCEL_REDUCE_SUM = 0,
    ACCEL_REDUCE_MEAN = 1, /* over the ranks */
    ACCEL_REDUCE_MAX = 2,
} accel_reduction_t;
/* scale * the sum, mean or maximum of t over the ranks, element by element, in the
 * shape and dtype of t: the same bits on all ranks. Floats narrower than 32 bits are
 * summed in float32. Integers: scale must be 1, no mean; ACCEL_EINVAL if a result does
 * not fit the dtype. */
accel_tensor_t *accel_reduce(accel_t *run, const accel_tensor_t *t,
                             accel_reduction_t how, double scale, accel_error_t *err);
/* The same in place. */
accel_status_t accel_reduce_array(accel_t *run, accel_array_t *values,
                                  accel_reduction_t how, double scale,
                                  accel_error_t *err);

/* t with dimension `dim` made as long as the longest of any rank: filled up with
 * `value` after its own elements or, with `front`, before them. Returns t itself where
 * nothing is to be added, also where t has no such dimension. Shapes may differ.
 * ACCEL_EINVAL (dim < 0, a value that the dtype cannot represent). */
accel_tensor_t *accel_pad_across_ranks(accel_t *run, const accel_tensor_t *t, int dim,
                                       double value, int front, accel_error_t *err);
/* The same into `padded`, as in accel_gather_array. */
accel_status_t accel_pad_across_ranks_array(accel_t *run, const accel_array_t *mine,
                                            int dim, double value, int front,
                                            accel_array_t *padded, accel_error_t *err);

/* The values of rank `from`. t must have the same shape on all ranks. */
accel_tensor_t *accel_broadcast(accel_t *run, const accel_tensor_t *t, int from,
                                accel_error_t *err);
/* The same in place. */
accel_status_t accel_broadcast_array(accel_t *run, accel_array_t *values, int from,
                                     accel_error_t *err);

/* Gathers bytes of any kind and length on all ranks: *all_out holds mine[bytes] of
 * every rank, in rank order without gaps, and sizes_out[world] their lengths. The
 * caller frees *all_out. */
accel_status_t accel_gather_bytes(accel_t *run, const void *mine, size_t bytes,
                                  void **all_out, size_t *sizes_out,
                                  accel_error_t *err);
/* A copy of data[bytes] of rank `from`, on all ranks; the others' `data` and `bytes`
 * are not read. The caller frees *copy_out. */
accel_status_t accel_broadcast_bytes(accel_t *run, const void *data, size_t bytes,
                                     int from, void **copy_out, size_t *bytes_out,
                                     accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
