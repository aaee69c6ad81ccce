# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_WITH_HWLOC: --with-hwloc[=DIR|no]. hwloc finds the cores and devices of a task.
# Sets HWLOC_CFLAGS and HWLOC_LIBS.
AC_DEFUN([ACCEL_WITH_HWLOC], [
    ACCEL_DEPENDENCY([hwloc], [HWLOC], [required], [hwloc], [hwloc.h], [hwloc], [hwloc_topology_init],
        [libhwloc-dev], [hwloc-devel],
        [hwloc finds the cores and devices of a task])
])
