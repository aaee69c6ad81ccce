/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for the layout and the comparison of shard files in a build without HDF5:
 * each call refuses and says what to do. Checkpoints are still read.
 */
#include "manifest/ckpt_manifest.h"
#include "hdf5/ckpt_hdf5.h"
#include "load/ckpt_load.h"
#include "ckpt_internal.h"
#include "ckpt_tools.h"

accel_status_t accel_ckpt_can_save(accel_error_t *err)
{
    return accel_fail(
        err, A0831,
        "install libhdf5-dev (Debian) or hdf5-devel (RHEL) and build accel "
        "again, or train without checkpoints (accel.checkpoint.save: false)",
        "this accel was built without HDF5 and cannot write checkpoints");
}

accel_status_t ckpt_layout(int dirfd, struct ckpt_manifest *m, int rank,
                           accel_error_t *err)
{
    (void)dirfd;
    (void)m;
    (void)rank;
    return accel_ckpt_can_save(err);
}

accel_status_t ckpt_h5_compare(const accel_ckpt_t *c, int file,
                               ckpt_finding_fn *finding, void *user, accel_error_t *err)
{
    (void)finding;
    (void)user;
    return accel_fail_at(
        err, A0842, c->m.file[file].name, "verify with a build that has HDF5",
        "the HDF5 structures were not compared with the manifest: this "
        "accel was built without HDF5");
}

accel_status_t ckpt_index(const accel_ckpt_t *c, ckpt_progress_f *progress, void *user,
                          accel_error_t *err)
{
    (void)c;
    (void)progress;
    (void)user;
    return accel_ckpt_can_save(err);
}

accel_status_t ckpt_index_check(const accel_ckpt_t *c, ckpt_report_f *report,
                                void *user, accel_error_t *err)
{
    (void)report;
    (void)user;
    return accel_fail_at(err, A0842, c->dir, "verify with a build that has HDF5",
                         "index.h5 was not compared with the manifest: this accel was "
                         "built without HDF5");
}
