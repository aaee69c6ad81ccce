# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_WITH_OPENBLAS: --with-openblas[=DIR|no]. OpenBLAS multiplies matrices on the CPU.
# Sets OPENBLAS_CFLAGS, OPENBLAS_LIBS and accel_openblas_threads (openmp | other).
# The OpenMP build is preferred (libopenblaso on RHEL, the openblas-openmp folder on Debian):
# another build starts threads of its own beside ours. Nothing is run, so cross builds work:
# that libgomp or libomp is behind the library shows in pkg-config or at link time.
AC_DEFUN([ACCEL_WITH_OPENBLAS], [
    ACCEL_DEPENDENCY([openblas], [OPENBLAS], [required], [openblas], [cblas.h], [openblas],
        [cblas_sgemm], [libopenblas-openmp-dev], [openblas-devel],
        [OpenBLAS multiplies matrices on the CPU])
    accel_openblas_threads=other
    AS_IF([test $accel_with_openblas = on], [
        accel_save_LIBS=$LIBS accel_save_CPPFLAGS=$CPPFLAGS
        CPPFLAGS="$CPPFLAGS $OPENBLAS_CFLAGS"
        AC_MSG_CHECKING([for the OpenMP build of OpenBLAS])
        accel_openblas_L=
        for accel_i in $OPENBLAS_LIBS; do
            AS_CASE([$accel_i], [-L*], [accel_openblas_L="$accel_openblas_L $accel_i"])
        done
        for accel_i in "$accel_openblas_L -lopenblaso" "$OPENBLAS_LIBS"; do
            LIBS="-Wl,--copy-dt-needed-entries $accel_i $accel_save_LIBS"
            AC_LINK_IFELSE([AC_LANG_PROGRAM(
                [[#include <cblas.h>
                  int omp_get_max_threads(void);]],
                [[void *volatile use = (void *)cblas_sgemm;
                  return !use + omp_get_max_threads();]])],
                [accel_openblas_threads=openmp OPENBLAS_LIBS=$accel_i; break])
        done
        LIBS=$accel_save_LIBS CPPFLAGS=$accel_save_CPPFLAGS
        AC_MSG_RESULT([$accel_openblas_threads])
        AS_IF([test $accel_openblas_threads = openmp],
            [accel_why_openblas="$accel_why_openblas, OpenMP build"],
            [accel_why_openblas="$accel_why_openblas, NOT the OpenMP build: its threads compete with ours"])])
])
