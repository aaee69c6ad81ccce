/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of ranks/ share: the records that ranks compare before a collective,
 * values wherever they are, and the rules.
 */
#ifndef ACCEL_RANKS_IMPL_H
#define ACCEL_RANKS_IMPL_H

#include "handle/run.h"

/* ---- compare.c: records of calls, and who differs -------------------------------- */

/* The values travel: every rank of a run has the same build. */
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

/* One rank's call. All bytes are set, so that the others may be sent them. */
struct ranks_record {
    int32_t call, dtype, ndim;
    /* reduction, dimension or sending rank; 0: none */
    int32_t option;
    int64_t dims[TENSOR_MAX_DIMS];
    /* rows that count (RANKS_METRICS) */
    int64_t count;
    /* elements that the caller's buffer holds; -1: no limit */
    int64_t room;
    /* accel_status_t: this rank's arguments are wrong */
    int64_t status;
};

/* What must be the same on all ranks, beside the call and its option. */
enum ranks_same { SAME_CALL, SAME_BUT_ROWS, SAME_SHAPE };

/* "accel_gather"; static. */
const char *ranks_call_name(enum ranks_call call);
/* ACCEL_OK, or A0940 with every kind of record and the ranks that have it. The largest
 * group is right, the one with the lowest rank among equals. */
accel_status_t ranks_compare(const struct ranks_record *all, int ranks,
                             enum ranks_same same, accel_error_t *err);

/* ---- collective_entry.c: before a collective ------------------------------------- */

/* The run is there, has not failed and is not inside a forward. */
accel_status_t ranks_ready(accel_t *run, const char *call, accel_error_t *err);
/* How a call ends that began with it: its error to the caller, and to the others where
 * they cannot know. Returns st. */
accel_status_t ranks_end(accel_t *run, accel_status_t st, const accel_error_t *e,
                         accel_error_t *err);
/* Gives all ranks the error of rank `from`. Collective. */
accel_status_t ranks_share(accel_t *run, int from, accel_error_t *err);
/* Does this call exchange records? */
bool ranks_meets(const accel_t *run, bool device);
/* Exchanges records and compares them. `st` and *err are what the own arguments gave.
 * all_out[world] is the caller's to free; it may be NULL. Collective. */
accel_status_t ranks_meet(accel_t *run, struct ranks_record *mine, enum ranks_same same,
                          accel_status_t st, struct ranks_record **all_out,
                          accel_error_t *err);

/* ---- pieces.c: values in host memory or a device's ------------------------------- */

/* Values, and what moves them. */
struct piece {
    struct comm *comm;
    /* NULL: memory of the host */
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

/* The tensor's values. Errors: A0611, or that of the forward that made none. */
accel_status_t piece_of_tensor(accel_t *run, const char *call, const accel_tensor_t *t,
                               struct piece *piece_out, accel_error_t *err);
/* A0941 */
accel_status_t piece_of_array(accel_t *run, const accel_array_t *a,
                              struct piece *piece_out, accel_error_t *err);
/* The caller's array for a result: memory must be there. A0941 */
accel_status_t ranks_room(const accel_array_t *a, accel_error_t *err);
/* What is compared of p; `to` NULL: no buffer of the caller. */
struct ranks_record ranks_record(enum ranks_call call, const struct piece *p,
                                 const accel_array_t *to);
/* Is the memory of the host out of reach from it? */
bool piece_on_device(const struct piece *p);
size_t piece_bytes(const struct piece *p);
/* Copies within the memory of p, in the order of its queue. */
void piece_copy(const struct piece *p, void *dst, const void *src, size_t bytes);
/* Memory of the kind that p is in, until piece_drop. */
accel_status_t piece_scratch(accel_t *run, const struct piece *p, size_t bytes,
                             void **memory_out, accel_error_t *err);
void piece_drop(accel_t *run, const struct piece *p, void *memory);
/* Makes the result of those sizes, in p's dtype: *out_out is where its values go. The
 * array keeps its sizes until result_done. A0941: the array is too small. */
accel_status_t result_make(accel_t *run, const struct piece *p, struct ranks_result *to,
                           int ndim, const int64_t *dims, struct piece *out_out,
                           accel_error_t *err);
/* The array has the sizes of `out` now. */
void result_done(const struct ranks_result *to, const struct piece *out);

/* ---- rules.c --------------------------------------------------------------------- */

/* How many of the `held` rows of all ranks count. A0942: more than are held. */
accel_status_t metrics_rows(const accel_batch_end_t *end, int64_t held,
                            int64_t *rows_out, accel_error_t *err);

#endif
