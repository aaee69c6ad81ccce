/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the safetensors part of libaccelckpt: the header in memory, conversions.
 * Everything here has the prefix st_ and hidden visibility.
 */
#ifndef ACCEL_ST_INTERNAL_H
#define ACCEL_ST_INTERNAL_H

#include <stdbool.h>

#include "accel_safetensors.h"
#include "common/common.h"
#include "common/json_scan.h"

/* bytes; the format's own limit */
#define ST_HEADER_MAX 100000000
#define ST_INDEX_MAX  ST_HEADER_MAX
/* what five digits of a shard's name can count */
#define ST_SHARDS_MAX 99999
#define ST_SINGLE     "model.safetensors"
#define ST_INDEX      "model.safetensors.index.json"

/* ---- st_header.c: the header of one file ----------------------------------------- */

/* A dtype of the format, also those that are never converted. */
struct st_dtype {
    const char *name;
    /* of an element; those of less than 8 fill whole bytes together */
    int bits;
};

/* A tensor in memory. pub is first, so that a public pointer leads back to it. */
struct st_tensor {
    accel_safetensors_tensor_t pub;
    const struct st_dtype *dtype;
    /* byte in the data of its file; begin + pub.bytes is its end */
    int64_t begin;
    /* index into accel_safetensors.file */
    int file;
};

/* two texts that lie in a scanned text */
struct st_pair {
    const char *key, *value;
};

/* A header's tables; their texts lie in the scanned text. */
struct st_header {
    /* sorted by name */
    struct st_tensor *tensor;
    size_t count, cap;
    /* of __metadata__, sorted by key */
    struct st_pair *meta;
    size_t metas, meta_cap;
};

/* NULL for an unknown name; static. */
const struct st_dtype *st_dtype_find(const char *name);
/* A file's name of a tensor as it may stand in a message: printable, cut to
 * buf[len]. Returns buf. */
const char *st_shown(const char *name, char *buf, size_t len);
#define ST_SHOWN 128

/* Room for one more entry of `size` bytes. The list, which may have moved, or NULL;
 * then the old one is still valid. */
void *st_grow(void *list, size_t count, size_t *cap, size_t size);
/* For qsort and bsearch: tensors by name, pairs by key, texts. */
int st_tensor_compare(const void *a, const void *b);
int st_pair_compare(const void *a, const void *b);
int st_text_compare(const void *a, const void *b);

/* The problem of a text that is not the text's. */
extern const char st_no_memory[];
/* j's problem as an error with its byte. `where`: the file; `at`: " at what", or "". */
accel_status_t st_json_error(const struct json_scan *j, const char *where,
                             const char *at, accel_error_t *err);

/* Checks text[len], the header of a file with `data_bytes` behind it, and fills *h.
 * Texts stay in `text`, which must live as long as h. `where` names the file in errors.
 * ACCEL_ECORRUPT, ACCEL_ENOMEM; then h is empty. */
accel_status_t st_header_parse(struct st_header *h, char *text, size_t len,
                               int64_t data_bytes, const char *where,
                               accel_error_t *err);
void st_header_free(struct st_header *h);

/* ---- st_index.c ------------------------------------------------------------------ */

/* The weight_map of an index. */
struct st_index {
    /* key: tensor, value: file; sorted by tensor */
    struct st_pair *entry;
    size_t count, cap;
};
/* Checks text[len], the index of a sharded model, and fills *x. Texts stay in `text`.
 * ACCEL_ECORRUPT, ACCEL_ENOMEM; then x is empty. */
accel_status_t st_index_parse(struct st_index *x, char *text, size_t len,
                              const char *where, accel_error_t *err);
void st_index_free(struct st_index *x);
/* The file of a tensor; NULL: the index does not name it. */
const char *st_index_find(const struct st_index *x, const char *tensor);

/* ---- st_open.c ------------------------------------------------------------------- */

/* One open file. */
struct st_file {
    /* as in the index; of a path the last part */
    char *name;
    int fd;
    /* its header, which holds the names */
    char *text;
    /* where the data begins in the file, and its size */
    int64_t data_at, data_bytes;
    struct st_header header;
};

struct accel_safetensors {
    /* as given to accel_safetensors_open */
    char *path;
    struct st_file *file;
    int files;
    /* of all files, sorted by name */
    struct st_tensor *tensor;
    size_t count;
};

/* ---- st_convert.c: any stored float to and from float32 -------------------------- */

/* Can it be read as float32? */
bool st_is_float(const struct st_dtype *d);
/* n stored elements to float32. dst may not overlap src. */
void st_to_f32(float *dst, const void *src, size_t n, const struct st_dtype *d);
/* n floats to the stored dtype: F32, BF16 or F16. dst may not overlap src. */
void st_from_f32(void *dst, const float *src, size_t n, const struct st_dtype *d);

#endif
