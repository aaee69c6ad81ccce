/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the safetensors part of checkpoint/: the JSON scanner, the header in
 * memory, conversions. Everything here has the prefix st_ and hidden visibility.
 */
#ifndef ACCEL_ST_INTERNAL_H
#define ACCEL_ST_INTERNAL_H

#include <stdbool.h>

#include "accel_safetensors.h"
#include "common/common.h"

#define ST_HEADER_MAX 100000000 /* the format's own limit */
#define ST_INDEX_MAX  ST_HEADER_MAX
#define ST_SHARDS_MAX 99999
#define ST_SINGLE     "model.safetensors"
#define ST_INDEX      "model.safetensors.index.json"

/* ---- st_json.c: strict JSON, one pass, strings decoded in place ------------------ */

struct st_json {
    char *begin, *s, *end;
    const char *problem; /* the first one; every call then returns false */
};

/* The problem that is not the text's. */
extern const char st_no_memory[];
/* Keeps the first problem; false. */
bool st_json_fail(struct st_json *j, const char *problem);
/* Takes the character c, blanks before it skipped; false, without a problem, if another
 * one is there. */
bool st_json_is(struct st_json *j, char c);
bool st_json_want(struct st_json *j, char c); /* the same, and a problem */
/* UTF-8 without NUL, ended by a NUL in the scanned text. */
bool st_json_string(struct st_json *j, char **text_out);
/* A whole number from 0 to INT64_MAX. */
bool st_json_whole(struct st_json *j, int64_t *value_out);
bool st_json_skip(struct st_json *j); /* any value, at most 32 deep */
bool st_json_end(struct st_json *j);  /* only blanks are left */
/* Steps through an object: opens it (first call, *n = 0), takes the next key and colon.
 * False at its end or at a problem. */
bool st_json_member(struct st_json *j, size_t *n, char **key_out);
/* The error of j's problem. `at`: " at what", or "". */
accel_status_t st_json_error(const struct st_json *j, const char *where, const char *at,
                             accel_error_t *err);

/* ---- st_header.c: the header of one file ----------------------------------------- */

struct st_dtype {
    const char *name;
    int bytes;
};

struct st_tensor {
    accel_safetensors_tensor_t pub;
    const struct st_dtype *dtype;
    int64_t begin; /* in the data of its file; begin + pub.bytes is its end */
    int file;
};

struct st_pair {
    const char *key, *value;
};

struct st_header {
    struct st_tensor *tensor; /* sorted by name */
    size_t count, cap;
    struct st_pair *meta;
    size_t metas, meta_cap;
};

/* NULL for an unknown name. */
const struct st_dtype *st_dtype_find(const char *name);
/* Name of a file's tensor as it may stand in a message: printable, `len` bytes. */
const char *st_shown(const char *name, char *buf, size_t len);
#define ST_SHOWN 128

/* Checks text[len], the header of a file with `data_bytes` behind it. Strings stay in
 * `text`, which must live as long as h. `where` names the file in errors. */
accel_status_t st_header_parse(struct st_header *h, char *text, size_t len,
                               int64_t data_bytes, const char *where,
                               accel_error_t *err);
void st_header_free(struct st_header *h);

/* ---- st_index.c ------------------------------------------------------------------ */

struct st_index {
    struct st_pair *entry; /* key: tensor, value: file; sorted by tensor */
    size_t count, cap;
};
/* Checks text[len], the index of a sharded model; strings stay in `text`. */
accel_status_t st_index_parse(struct st_index *x, char *text, size_t len,
                              const char *where, accel_error_t *err);
void st_index_free(struct st_index *x);

/* ---- st_open.c ------------------------------------------------------------------- */

struct st_file {
    char *name; /* as in the index; the path's last part */
    int fd;
    char *text; /* its header, which holds the names */
    int64_t data_at, data_bytes;
    struct st_header header;
};

struct accel_safetensors {
    char *path; /* as given */
    struct st_file *file;
    int files;
    struct st_tensor *tensor; /* of all files, sorted by name */
    size_t count;
};

/* ---- st_convert.c: any stored float to and from float32 -------------------------- */

bool st_is_float(const struct st_dtype *d);
/* dst may not overlap src. */
void st_to_f32(float *dst, const void *src, size_t n, const struct st_dtype *d);
void st_from_f32(void *dst, const float *src, size_t n, const struct st_dtype *d);

#endif
