/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the files that call libhdf5: what writing the layout of a shard file and
 * comparing one with its manifest have in common, and index.h5.
 */
#ifndef ACCEL_CKPT_H5_H
#define ACCEL_CKPT_H5_H

#include <hdf5.h>

#include "manifest/ckpt_manifest.h"
#include "ckpt_internal.h"

/* ---- h5.c ------------------------------------------------------------------------ */

/* bytes of the attribute accel_dtype, padded with NUL */
#define CKPT_H5_DTYPE_NAME 16
/* attribute of a dataset of codes: the dtype that they are of */
#define CKPT_H5_CODES "accel_codes"
/* of a dataset: "state/" before the name or "@index" after it, and a NUL */
#define CKPT_H5_NAME_MAX (CKPT_NAME_MAX + 40)

/* How libhdf5 printed its errors before ckpt_h5_begin silenced it. */
struct ckpt_h5_quiet {
    H5E_auto2_t fn;
    void *data;
};
/* Starts the library and holds back its own printing of errors. 0, or -1 when it does
 * not start; then there is nothing to end. */
int ckpt_h5_begin(struct ckpt_h5_quiet *q);
/* Restores what ckpt_h5_begin saved, and clears the error stack. */
void ckpt_h5_end(const struct ckpt_h5_quiet *q);

/* HDF5 types of the narrow floats, which not every libhdf5 brings. */
struct ckpt_h5_floats {
    hid_t bf16, f16, e5m2;
};
/* Makes both; -1 where one fails. To be closed in any case. */
int ckpt_h5_floats_open(struct ckpt_h5_floats *floats_out);
void ckpt_h5_floats_close(const struct ckpt_h5_floats *floats);
/* The file type of elements of dtype t. Not to be closed. -1 for a dtype that is never
 * stored. */
hid_t ckpt_h5_type(const struct ckpt_h5_floats *floats, accel_dtype_t t);
/* Name of a tensor's dataset: model/x for its first box in this file, model/x@1,
 * model/x@2 for further ones. Blobs lie below state/. */
void ckpt_h5_name(char name_out[CKPT_H5_NAME_MAX], const struct ckpt_tensor *t,
                  size_t index);

/* Writes one attribute. Sizes are fixed: variable-length ones live in a heap, where one
 * damaged byte spoils many. */
herr_t ckpt_h5_put_attribute(hid_t on, const char *name, hid_t type, hid_t space,
                             const void *data);
/* Says of a dataset what its elements are, and what their codes stand for where HDF5
 * has no such type. `type` and `space`: a scalar of CKPT_H5_DTYPE_NAME bytes. */
herr_t ckpt_h5_put_dtypes(const struct ckpt_manifest *m, const struct ckpt_tensor *t,
                          hid_t set, hid_t type, hid_t space);
/* How many attributes an object has; HSIZE_UNDEF, which equals no expected number, when
 * that cannot be told. */
hsize_t ckpt_h5_attribute_count(hid_t on);
/* Does `on` have the attribute with that type, `count` values (0: a scalar; at most
 * ACCEL_CKPT_MAX_DIMS), and the bytes of `want`? */
bool ckpt_h5_has_attribute(hid_t on, const char *name, hid_t type, int count,
                           const void *want, size_t bytes);
/* The same for an attribute with the name of dtype `want`. */
bool ckpt_h5_has_dtype(hid_t on, const char *name, accel_dtype_t want);

/* The deepest entry of libhdf5's error stack in one line; clears the stack. */
void ckpt_h5_cause(char *buf, size_t len);
/* Opens through libhdf5 what fd has open, for reading: by descriptor, so that no link
 * is followed. <0: `cause` says why, as ckpt_h5_cause does, and *error_out is the errno
 * where the system refuses another descriptor or the reading, else 0. */
hid_t ckpt_h5_open(int fd, char *cause, size_t len, int *error_out);
/* One entry of the stack in one line: "H5FD_write: file write failed: No space left on
 * device". `desc` may hold line breaks, pointers, and the system's words in its middle;
 * only the words are kept. buf[len] is printable ASCII. */
void ckpt_h5_describe(const char *func, const char *desc, char *buf, size_t len);

/* ---- h5_index.c ------------------------------------------------------------------ */

/* longest name of a source dataset, each of its bytes doubled */
#define CKPT_SOURCE_MAX (2 * CKPT_H5_NAME_MAX)

/* What a mapping calls the box that is number `index` of t in its file: the dataset's
 * name with each '%' doubled, since a single one stands for a number of blocks. */
void ckpt_index_source(char name_out[CKPT_SOURCE_MAX], const struct ckpt_tensor *t,
                       size_t index);
/* The fill value of a virtual dataset: NaN, so that a part which is missing shows. NULL
 * for integers, whose fill is 0. Static. */
const void *ckpt_index_fill(accel_dtype_t t);

#endif
