/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the files that call libhdf5: what the writing of a shard file and the
 * comparing of one have in common.
 */
#ifndef ACCEL_CKPT_H5_H
#define ACCEL_CKPT_H5_H

#include <hdf5.h>

#include "ckpt_internal.h"

#define CKPT_H5_DTYPE_NAME 16                   /* bytes of the attribute accel_dtype */
#define CKPT_H5_NAME_MAX   (CKPT_NAME_MAX + 40) /* of a dataset */

/* libhdf5's own printing of errors, held back. */
struct ckpt_h5_quiet {
    H5E_auto2_t fn;
    void *data;
};
/* -1: the library does not start. */
int ckpt_h5_begin(struct ckpt_h5_quiet *q);
void ckpt_h5_end(const struct ckpt_h5_quiet *q);

/* A new type, the caller's to close; -1. */
hid_t ckpt_h5_bf16(void);
/* What elements are stored as; -1: never stored. */
hid_t ckpt_h5_type(hid_t bf16, accel_dtype_t t);
/* model/x, then model/x@1, model/x@2 for further boxes of the tensor in this file. */
void ckpt_h5_name(char name_out[CKPT_H5_NAME_MAX], const struct ckpt_tensor *t,
                  size_t index);

/* The deepest entry of libhdf5's error stack, one line; clears the stack. */
void ckpt_h5_cause(char *buf, size_t len);
/* "H5FD_write: file write failed: No space left on device" of an entry's function and
 * description, which may hold line breaks, pointers and the system's words in the middle. */
void ckpt_h5_describe(const char *func, const char *desc, char *buf, size_t len);

#endif
