# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_WITH_HDF5: --with-hdf5[=DIR|no]. HDF5 (serial) lays out the checkpoint shard files.
# Sets HDF5_CFLAGS, HDF5_LIBS and the conditional HAVE_HDF5. Without it checkpoints are read,
# not written; only --without-hdf5 chooses that, because who does not ask wants to resume.
AC_DEFUN([ACCEL_WITH_HDF5], [
    ACCEL_DEPENDENCY([hdf5], [HDF5], [wanted], [hdf5], [hdf5.h], [hdf5], [H5open],
        [libhdf5-dev], [hdf5-devel],
        [HDF5 (serial) lays out the checkpoint shard files])
    AM_CONDITIONAL([HAVE_HDF5], [test $accel_with_hdf5 = on])
])
