# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_WITH_JANSSON: --with-jansson[=DIR|no]. Jansson writes and reads JSON.
# Sets JANSSON_CFLAGS and JANSSON_LIBS.
AC_DEFUN([ACCEL_WITH_JANSSON], [
    ACCEL_DEPENDENCY([jansson], [JANSSON], [required], [jansson], [jansson.h], [jansson], [json_loads],
        [libjansson-dev], [jansson-devel],
        [Jansson writes and reads JSON])
])
