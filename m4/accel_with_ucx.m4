# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_WITH_UCX: --with-ucx[=DIR|no]. UCX carries data between nodes.
# Sets UCX_CFLAGS and UCX_LIBS, HAVE_UCX (define and conditional).
AC_DEFUN([ACCEL_WITH_UCX], [
    ACCEL_DEPENDENCY([ucx], [UCX], [optional], [ucx], [ucp/api/ucp.h], [ucp], [ucp_get_version],
        [libucx-dev], [ucx-devel],
        [UCX carries data between nodes])
    AM_CONDITIONAL([HAVE_UCX], [test $accel_with_ucx = on])
    AS_IF([test $accel_with_ucx = on], [AC_DEFINE([HAVE_UCX], [1], [UCX is there])])
])
