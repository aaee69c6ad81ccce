# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_WITH_PMIX: --with-pmix[=DIR|no]. PMIx lets ranks find each other.
# Sets PMIX_CFLAGS and PMIX_LIBS, HAVE_PMIX (define and conditional).
AC_DEFUN([ACCEL_WITH_PMIX], [
    ACCEL_DEPENDENCY([pmix], [PMIX], [optional], [pmix], [pmix.h], [pmix], [PMIx_Init],
        [libpmix-dev], [pmix-devel],
        [PMIx lets ranks find each other])
    AM_CONDITIONAL([HAVE_PMIX], [test $accel_with_pmix = on])
    AS_IF([test $accel_with_pmix = on], [AC_DEFINE([HAVE_PMIX], [1], [PMIx is there])])
])
