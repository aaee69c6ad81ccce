# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_WITH_RANDOM123: --with-random123[=DIR|no]. Random123 (headers only) makes random numbers independent of the world size.
# Sets RANDOM123_CFLAGS and RANDOM123_LIBS.
AC_DEFUN([ACCEL_WITH_RANDOM123], [
    ACCEL_DEPENDENCY([random123], [RANDOM123], [required], [], [Random123/philox.h], [], [],
        [librandom123-dev], [Random123-devel],
        [Random123 (headers only) makes random numbers independent of the world size])
])
