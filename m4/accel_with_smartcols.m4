# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_WITH_SMARTCOLS: --with-smartcols[=DIR|no]. libsmartcols prints tables.
# Sets SMARTCOLS_CFLAGS and SMARTCOLS_LIBS.
AC_DEFUN([ACCEL_WITH_SMARTCOLS], [
    ACCEL_DEPENDENCY([smartcols], [SMARTCOLS], [required], [smartcols], [libsmartcols.h], [smartcols], [scols_new_table],
        [libsmartcols-dev], [libsmartcols-devel],
        [libsmartcols prints tables])
])
