/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_safetensors.h: weights in safetensors files, single or sharded with an index,
 * read and written. Part of libaccelckpt; nothing is executed, mapped or printed.
 *
 * A file is accepted only after its whole header has been checked: every tensor's range
 * lies in the file, none overlaps another, and together they cover the data without
 * holes.
 *
 * No function is collective. `err` may be NULL and is written only on failure.
 */
#ifndef ACCEL_SAFETENSORS_H
#define ACCEL_SAFETENSORS_H

#include "accel_ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- reading --------------------------------------------------------------------- */

/* open weights: one file, or all shards of a model */
typedef struct accel_safetensors accel_safetensors_t;

/* A stored tensor; owned by the accel_safetensors_t that it came from. */
typedef struct accel_safetensors_tensor {
    const char *name;
    /* the word in the file: "F32", "BF16" ... */
    const char *dtype;
    /* 0: a scalar */
    int ndim;
    int64_t shape[ACCEL_CKPT_MAX_DIMS];
    /* product of shape, and the bytes in the file */
    int64_t elems, bytes;
    /* name of the shard with the tensor */
    const char *file;
} accel_safetensors_tensor_t;

/* Opens `path`: a .safetensors file, an index (.json) with its shards in the same
 * directory, or a directory with model.safetensors or model.safetensors.index.json.
 * Reads the headers only, and keeps all files open until accel_safetensors_close.
 * Errors: ACCEL_ENOENT (names the missing shards), ACCEL_EIO, ACCEL_ECORRUPT,
 * ACCEL_ENOMEM. */
accel_status_t accel_safetensors_open(accel_safetensors_t **weights_out,
                                      const char *path, accel_error_t *err);
/* NULL is fine. */
void accel_safetensors_close(accel_safetensors_t *s);

/* Number of tensors in all shards. Tensors are numbered in the order of their names. */
size_t accel_safetensors_count(const accel_safetensors_t *s);
/* Tensor i, owned by s; NULL: i is beyond the count. */
const accel_safetensors_tensor_t *accel_safetensors_at(const accel_safetensors_t *s,
                                                       size_t i);
/* The tensor of that name, owned by s; NULL: there is none. */
const accel_safetensors_tensor_t *accel_safetensors_find(const accel_safetensors_t *s,
                                                         const char *name);
/* The text of `key` in the __metadata__ of the first shard that has it, owned by s;
 * NULL: there is none. */
const char *accel_safetensors_metadata(const accel_safetensors_t *s, const char *key);

/* Reads elements [begin, begin + count) of t, row-major, as float32 into
 * values_out[count]. F64 is rounded, F16 and BF16 are exact; other dtypes are
 * ACCEL_EUNSUPPORTED. Reads only these elements, with a fixed amount of memory. Several
 * threads may read at the same time. Other errors: ACCEL_EINVAL (range), ACCEL_EIO,
 * ACCEL_ECORRUPT (the file was truncated after it was opened), ACCEL_ENOMEM. After an
 * error part of values_out may be written. */
accel_status_t accel_safetensors_read(accel_safetensors_t *s,
                                      const accel_safetensors_tensor_t *t,
                                      int64_t begin, int64_t count, float *values_out,
                                      accel_error_t *err);
/* accel_safetensors_read of the transpose: t is stored [R, C], and the elements are
 * those of the [C, R] matrix, row-major. ACCEL_EINVAL: t is not a matrix. */
accel_status_t accel_safetensors_read_transposed(accel_safetensors_t *s,
                                                 const accel_safetensors_tensor_t *t,
                                                 int64_t begin, int64_t count,
                                                 float *values_out, accel_error_t *err);

/* ---- writing --------------------------------------------------------------------- */

/* weights being written */
typedef struct accel_safetensors_writer accel_safetensors_writer_t;

/* A tensor to be written; copied by accel_safetensors_create. */
typedef struct accel_safetensors_entry {
    const char *name;
    int ndim;
    int64_t shape[ACCEL_CKPT_MAX_DIMS];
    /* "I64", "U8" ...: values come from accel_safetensors_write_stored; NULL: the dtype
     * of accel_safetensors_create */
    const char *dtype;
} accel_safetensors_entry_t;

/* Begins to write tensors entry[n] into directory `dir`, which is created if its parent
 * exists. `dtype` (F32, BF16 or F16) applies to entries without their own. The file is
 * model.safetensors or, when that would have more than shard_bytes of data (0: no
 * limit), model-00001-of-0000N and so on with an index. Nothing is visible before the
 * commit, and existing weights are never replaced. Errors: ACCEL_ECREATE, ACCEL_EPERM,
 * ACCEL_EIO, ACCEL_EINVAL, ACCEL_ENOMEM. */
accel_status_t accel_safetensors_create(accel_safetensors_writer_t **writer_out,
                                        const char *dir, const char *dtype,
                                        const accel_safetensors_entry_t *entry,
                                        size_t n, int64_t shard_bytes,
                                        accel_error_t *err);
/* Writes elements [begin, begin + count) of entry i, row-major, rounded to the file's
 * dtype. Any order; each element must be written exactly once. One thread at a time.
 * ACCEL_EINVAL (range), ACCEL_EIO. */
accel_status_t accel_safetensors_write(accel_safetensors_writer_t *w, size_t i,
                                       int64_t begin, int64_t count,
                                       const float *values, accel_error_t *err);
/* The same for values that already have the entry's dtype, little-endian; they are
 * written unchanged. */
accel_status_t accel_safetensors_write_stored(accel_safetensors_writer_t *w, size_t i,
                                              int64_t begin, int64_t count,
                                              const void *values, accel_error_t *err);
/* accel_safetensors_write of the transpose: entry i is stored [R, C]; the values are
 * whole rows of the [C, R] matrix, so begin and count are multiples of R. */
accel_status_t accel_safetensors_write_transposed(accel_safetensors_writer_t *w,
                                                  size_t i, int64_t begin,
                                                  int64_t count, const float *values,
                                                  accel_error_t *err);
/* Makes everything durable and visible: first a text file `name` (such as config.json;
 * NULL: none), then the shards, the index last. ACCEL_EINVAL: elements are missing.
 * ACCEL_EIO. Call accel_safetensors_writer_close afterwards. */
accel_status_t accel_safetensors_commit(accel_safetensors_writer_t *w, const char *name,
                                        const char *text, accel_error_t *err);
/* Frees w and removes what was not committed. NULL is fine. */
void accel_safetensors_writer_close(accel_safetensors_writer_t *w);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
