/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the CUDA backend. device.h, kernels.h and sizes.h have their
 * contracts; table.cu puts them into the struct.
 */
#ifndef ACCEL_BACKEND_CUDA_ENTRIES_H
#define ACCEL_BACKEND_CUDA_ENTRIES_H

#include "backend/device.h"

/* core.cu, queues.cu, memory.cu, ranges.cu, copies.cu */
void cuda_close(struct backend *be);
void cuda_use(const struct backend *be, enum backend_queue q);
enum backend_queue cuda_queue(const struct backend *be);
struct backend_event *cuda_event_new(const struct backend *be);
void cuda_event_free(const struct backend *be, struct backend_event *e);
void cuda_record(const struct backend *be, struct backend_event *e,
                 enum backend_queue q);
void cuda_wait(const struct backend *be, enum backend_queue q, struct backend_event *e);
void *cuda_native(const struct backend *be, enum backend_queue q);
void *cuda_lend(const struct backend *be, enum backend_queue q);
accel_status_t cuda_check(const struct backend *be, accel_error_t *err);
accel_status_t cuda_recover(const struct backend *be, accel_error_t *err);
accel_status_t cuda_sync(const struct backend *be, accel_error_t *err);
accel_status_t cuda_alloc(const struct backend *be, enum backend_memory kind,
                          size_t bytes, void **memory_out, accel_error_t *err);
void cuda_free(const struct backend *be, void *p);
void cuda_count(const struct backend *be, enum backend_memory kind, int64_t bytes);
accel_status_t cuda_reserve_workspace(const struct backend *be, accel_error_t *err);
void cuda_usage(const struct backend *be, struct backend_usage *out);
void *cuda_reserve(const struct backend *be, size_t bytes);
bool cuda_commit(const struct backend *be, void *base, size_t from, size_t to);
bool cuda_uncommit(const struct backend *be, void *base, size_t committed);
void cuda_release(const struct backend *be, void *base, size_t reserved,
                  size_t committed);
void *cuda_host_alloc(const struct backend *be, size_t bytes);
void cuda_host_free(const struct backend *be, void *p, size_t bytes);
void cuda_copy(const struct backend *be, void *dst, const void *src, size_t bytes);
void cuda_to_host(const struct backend *be, float *host, const void *src,
                  accel_dtype_t type, int64_t n);
void cuda_to_host_bytes(const struct backend *be, void *host, const void *src,
                        size_t bytes);
void cuda_from_host(const struct backend *be, void *dst, const void *host,
                    size_t bytes);

/* sum_ends.cu */
void cuda_settle(const struct backend *be);

/* graph.cu */
void cuda_region_begin(const struct backend *be, const char *name);
void cuda_region_end(const struct backend *be);
void cuda_step_begin(const struct backend *be);
void cuda_step_end(const struct backend *be);
void cuda_mark(const struct backend *be, const struct backend_mark *mark);

/* cuda_gemm and all other kernels; grep finds the file. */
#define KERNEL(type, name, ...) type cuda_##name(const struct backend *be, __VA_ARGS__);
#include "backend/kernels.h"
#define SCRATCH(name, ...) size_t cuda_##name(const struct backend *be, __VA_ARGS__);
#include "backend/sizes.h"

/* wire.cu: cuda_sum_parts for scaled wire types; at least one part. */
void cuda_sum_blocks(const struct backend *be, float *out, bool accumulate,
                     const float *first, const void *parts, accel_dtype_t type,
                     int count, int64_t n, float scale);
/* update_lanes.cu: cuda_update where numbers share scales. */
void cuda_update_lanes(const struct backend *be, const struct update_span *x, int count,
                       const struct optim_step *k);
/* columns.cu: cuda_reduce for dim[2] other than 1. */
void cuda_reduce_columns(const struct backend *be, void *y, accel_dtype_t y_type,
                         const void *x, accel_dtype_t type, const int64_t dim[3],
                         float scale);

#endif
