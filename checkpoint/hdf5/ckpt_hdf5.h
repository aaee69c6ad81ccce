/* SPDX-License-Identifier: Apache-2.0
 *
 * What calls libhdf5; hdf5/no_hdf5.c replaces it in a build without that library.
 */
#ifndef ACCEL_CKPT_HDF5_H
#define ACCEL_CKPT_HDF5_H

#include "load/ckpt_load.h"

/* ---- h5_layout.c, h5_tree.c: what calls libhdf5; no_hdf5.c in a build without it - */

/* Creates file `rank` of m in dirfd with one contiguous dataset per box; sets at
 * of each box and bytes of the file. Writes no data. Local: the ranks lay out
 * their files side by side. */
accel_status_t ckpt_layout(int dirfd, struct ckpt_manifest *m, int rank,
                           accel_error_t *err);

/* ---- h5_tree.c ------------------------------------------------------------------- */

/* Compares the HDF5 structures of a file with the manifest, through libhdf5: see
 * accel_ckpt_verify_hdf5. An error only when the comparison itself cannot run. */
accel_status_t ckpt_h5_compare(const accel_ckpt_t *c, int file,
                               ckpt_finding_fn *finding, void *user,
                               accel_error_t *err);

#endif
