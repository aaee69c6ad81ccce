/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_safetensors.h: weights in safetensors files, single or sharded with an index, read
 * and written. Part of libaccelckpt; nothing is executed, mapped or printed.
 *
 * A file is believed only after all of its header was checked: every tensor's range lies
 * in the file, none overlaps another, and together they cover it without a hole.
 */
#ifndef ACCEL_SAFETENSORS_H
#define ACCEL_SAFETENSORS_H

#include "accel_ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- reading ------------------------------------------------------------------------- */

typedef struct accel_safetensors accel_safetensors_t; /* one file, or all shards */

typedef struct accel_safetensors_tensor {
    const char *name;
    const char *dtype; /* as in the file: "F32", "BF16" ... */
    int ndim;          /* 0: a scalar */
    int64_t shape[ACCEL_CKPT_MAX_DIMS];
    int64_t elems, bytes;
    const char *file; /* the shard it is in */
} accel_safetensors_tensor_t;

/* Opens `path`: a .safetensors file, an index (.json) whose shards lie beside it, or a
 * directory with model.safetensors or model.safetensors.index.json. Reads the headers
 * only. Errors: ACCEL_ENOENT (naming the missing shards), ACCEL_EIO, ACCEL_ECORRUPT. */
accel_status_t accel_safetensors_open(accel_safetensors_t **out, const char *path,
                                      accel_error_t *err);
void accel_safetensors_close(accel_safetensors_t *s); /* NULL is fine */

/* Tensors of all shards, sorted by name; owned by s. `i` below the count. */
size_t accel_safetensors_count(const accel_safetensors_t *s);
const accel_safetensors_tensor_t *accel_safetensors_at(const accel_safetensors_t *s,
                                                       size_t i);
/* NULL when there is none of that name. */
const accel_safetensors_tensor_t *accel_safetensors_find(const accel_safetensors_t *s,
                                                         const char *name);
/* The text of `key` in the __metadata__ of the first shard that has it, or NULL. */
const char *accel_safetensors_metadata(const accel_safetensors_t *s, const char *key);

/* Elements [begin, begin + count) of t, row-major, as float32 into out[count]. F64 is
 * rounded, F16 and BF16 are exact; other dtypes are ACCEL_EUNSUPPORTED. Reads what is
 * asked for and holds a fixed amount of memory. Several threads may read at a time.
 * Errors: ACCEL_EINVAL (range), ACCEL_EIO, ACCEL_ECORRUPT (cut since it was opened). */
accel_status_t accel_safetensors_read(accel_safetensors_t *s,
                                      const accel_safetensors_tensor_t *t,
                                      int64_t begin, int64_t count, float *out,
                                      accel_error_t *err);
/* As accel_safetensors_read of the transpose: t is stored [R, C]; the elements are those
 * of the [C, R] matrix, row-major. */
accel_status_t accel_safetensors_read_transposed(accel_safetensors_t *s,
                                                 const accel_safetensors_tensor_t *t,
                                                 int64_t begin, int64_t count,
                                                 float *out, accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
