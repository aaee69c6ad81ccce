# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_SUMMARY: the table at the end of configure: what is on, what is off, and why.
# Reads what the other macros left behind; changes nothing.
AC_DEFUN([_ACCEL_ROW], [printf '  %-11s %-4s %s\n' "$1" "$2" "$3"])
AC_DEFUN([_ACCEL_ROW_DEP], [
    AS_IF([test $accel_with_$1 = on],
        [_ACCEL_ROW([$1], [on], [$accel_why_$1])],
        [_ACCEL_ROW([$1], [off], [$accel_why_$1: m4_default([$2], [needed])])])
])
AC_DEFUN([ACCEL_SUMMARY], [
    AS_IF([test "x$silent" != xyes], [
        echo
        echo "accel $PACKAGE_VERSION"
        _ACCEL_ROW_DEP([slurm], [no srun --accel-config])
        _ACCEL_ROW_DEP([pmix], [one process only])
        _ACCEL_ROW_DEP([ucx], [one node only])
        m4_foreach_w([accel_dep], [yaml hwloc xxhash jansson smartcols random123],
            [_ACCEL_ROW_DEP(accel_dep)])
        _ACCEL_ROW_DEP([hdf5], [checkpoints are read, not written])
        _ACCEL_ROW([openmp], [], [$accel_openmp])
        _ACCEL_ROW_DEP([mpi], [no comparison in the benchmarks])
        _ACCEL_ROW_DEP([cuda], [no GPUs])
        _ACCEL_ROW_DEP([nccl], [our declarations are not compared with its header; runs look for libnccl.so.2])
        _ACCEL_ROW([sanitizer], [], [$accel_sanitizer])
        _ACCEL_ROW([hardening], [], [$accel_hardening])
        _ACCEL_ROW([CFLAGS], [], [$CFLAGS])
        _ACCEL_ROW([prefix], [], [$prefix])
        echo])
])
