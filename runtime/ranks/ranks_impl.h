/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of ranks/ share: the records that ranks compare before a collective,
 * values in whatever memory they are, and the rules.
 */
#ifndef ACCEL_RANKS_IMPL_H
#define ACCEL_RANKS_IMPL_H

#include "handle/run.h"

/* ---- compare.c: records of calls, and who differs -------------------------------- */

/* Ranks exchange these numbers: every rank of a run has the same build. */
enum ranks_call {
    RANKS_NOTHING,
    RANKS_BARRIER,
    RANKS_TRIGGER,
    RANKS_GATHER,
    RANKS_METRICS,
    RANKS_REDUCE,
    RANKS_PAD,
    RANKS_BROADCAST,
    RANKS_GATHER_BYTES,
    RANKS_BROADCAST_BYTES,
    RANKS_CALLS
};

/* One rank's call. All bytes are set, so that they may be sent to the others. */
struct ranks_record {
    int32_t call, dtype, ndim;
    /* reduction, dimension or sending rank; 0: none */
    int32_t option;
    int64_t dims[TENSOR_MAX_DIMS];
    /* how many rows count (RANKS_METRICS) */
    int64_t count;
    /* elements that the caller's buffer holds; -1: no limit */
    int64_t room;
    /* accel_status_t of this rank's arguments: not ACCEL_OK if they are wrong */
    int64_t status;
};

/* What must be the same on all ranks, besides the call and its option. */
enum ranks_same { SAME_CALL, SAME_BUT_ROWS, SAME_SHAPE };

/* "accel_gather"; static. */
const char *ranks_call_name(enum ranks_call call);
/* ACCEL_OK, or A0940 with each different record and the ranks that have it. The largest
 * group counts as right; among groups of equal size, the one with the lowest rank. */
accel_status_t ranks_compare(const struct ranks_record *all, int ranks,
                             enum ranks_same same, accel_error_t *err);

/* ---- collective_entry.c: before a collective ------------------------------------- */

/* Checks that there is a run, which has not failed and is not inside a forward. */
accel_status_t ranks_ready(accel_t *run, const char *call, accel_error_t *err);
/* Ends a call that began with ranks_ready: reports its error to the caller, and to the
 * other ranks if they cannot know it. Returns st. */
accel_status_t ranks_end(accel_t *run, accel_status_t st, const accel_error_t *e,
                         accel_error_t *err);
/* Gives all ranks the error of rank `from`. Collective. */
accel_status_t ranks_share(accel_t *run, int from, accel_error_t *err);
/* Does this call exchange records? */
bool ranks_meets(const accel_t *run, bool device);
/* Exchanges records and compares them. `st` and *err are the result of checking this
 * rank's arguments. The caller frees *all_out, [world], or passes NULL. Collective. */
accel_status_t ranks_meet(accel_t *run, struct ranks_record *mine, enum ranks_same same,
                          accel_status_t st, struct ranks_record **all_out,
                          accel_error_t *err);

/* ---- pieces.c: values in host memory or a device's ------------------------------- */

/* Values, and what moves them. */
struct piece {
    struct comm *comm;
    /* NULL: host memory */
    const struct backend *be;
    accel_dtype_t dtype;
    int ndim;
    int64_t dims[TENSOR_MAX_DIMS];
    int64_t elems;
    void *data;
};

/* Where a result goes: into a new tensor, or into the caller's array. */
struct ranks_result {
    accel_tensor_t *tensor;
    accel_array_t *array;
};

/* The tensor's values. Errors: A0611, or that of the forward that made no tensor. */
accel_status_t piece_of_tensor(accel_t *run, const char *call, const accel_tensor_t *t,
                               struct piece *piece_out, accel_error_t *err);
/* A0941 */
accel_status_t piece_of_array(accel_t *run, const accel_array_t *a,
                              struct piece *piece_out, accel_error_t *err);
/* Checks that the caller's array for a result has memory. A0941 */
accel_status_t ranks_room(const accel_array_t *a, accel_error_t *err);
/* The record to compare for p; `to` NULL: the caller has no buffer. */
struct ranks_record ranks_record(enum ranks_call call, const struct piece *p,
                                 const accel_array_t *to);
/* Is it in memory that the host cannot access? */
bool piece_on_device(const struct piece *p);
size_t piece_bytes(const struct piece *p);
/* Copies within the memory that p is in, in the order of its queue. */
void piece_copy(const struct piece *p, void *dst, const void *src, size_t bytes);
/* Memory of the kind that p is in, until piece_drop. */
accel_status_t piece_scratch(accel_t *run, const struct piece *p, size_t bytes,
                             void **memory_out, accel_error_t *err);
void piece_drop(accel_t *run, const struct piece *p, void *memory);
/* Makes a result of ndim dimensions dims, in p's dtype: *out_out is where its values
 * go. The array keeps its sizes until result_done. A0941: it is too small. */
accel_status_t result_make(accel_t *run, const struct piece *p, struct ranks_result *to,
                           int ndim, const int64_t *dims, struct piece *out_out,
                           accel_error_t *err);
/* Sets the sizes of the array to those of `out`. */
void result_done(const struct ranks_result *to, const struct piece *out);

/* ---- rules.c --------------------------------------------------------------------- */

/* How many of the `held` rows of all ranks count. A0942: more than are held. */
accel_status_t metrics_rows(const accel_batch_end_t *end, int64_t held,
                            int64_t *rows_out, accel_error_t *err);

#endif
