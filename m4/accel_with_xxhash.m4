# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_WITH_XXHASH: --with-xxhash[=DIR|no]. xxHash guards checkpoint bytes.
# Sets XXHASH_CFLAGS and XXHASH_LIBS.
AC_DEFUN([ACCEL_WITH_XXHASH], [
    ACCEL_DEPENDENCY([xxhash], [XXHASH], [required], [libxxhash], [xxhash.h], [xxhash], [XXH3_128bits],
        [libxxhash-dev], [xxhash-devel],
        [xxHash guards checkpoint bytes])
])
