# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_WITH_HDF5: --with-hdf5[=DIR|no]. HDF5 (serial) lays out the checkpoint shard files.
# Sets HDF5_CFLAGS and HDF5_LIBS.
AC_DEFUN([ACCEL_WITH_HDF5], [
    ACCEL_DEPENDENCY([hdf5], [HDF5], [required], [hdf5], [hdf5.h], [hdf5], [H5open],
        [libhdf5-dev], [hdf5-devel],
        [HDF5 (serial) lays out the checkpoint shard files])
])
