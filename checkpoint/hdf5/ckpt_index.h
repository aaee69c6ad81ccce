/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the files that write and check index.h5.
 */
#ifndef ACCEL_CKPT_INDEX_H
#define ACCEL_CKPT_INDEX_H

#include "manifest/ckpt_manifest.h"
#include "hdf5/ckpt_h5.h"

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
