# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_WITH_MPI: --with-mpi[=DIR|no]. Finds MPI (Open MPI's or MPICH's .pc file). libaccel does
# not use it; benchmarks compare with it. Sets MPI_CFLAGS, MPI_LIBS and the conditional
# HAVE_MPI.
AC_DEFUN([ACCEL_WITH_MPI], [
    ACCEL_DEPENDENCY([mpi], [MPI], [optional], [ompi-c], [mpi.h], [mpi], [MPI_Init],
        [libopenmpi-dev], [openmpi-devel],
        [MPI, compared with in benchmarks])
    AM_CONDITIONAL([HAVE_MPI], [test $accel_with_mpi = on])
])
