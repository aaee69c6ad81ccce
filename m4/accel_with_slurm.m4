# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_WITH_SLURM: --with-slurm[=DIR|no]. Slurm's spank.h, for the srun plugin.
# Slurm has no .pc file; its version comes from slurm/slurm_version.h, without running
# anything. Sets SLURM_CFLAGS, SLURM_VERSION, HAVE_SLURM (define and conditional).
# The plugin links nothing of Slurm (srun and slurmd carry the symbols), so SLURM_LIBS is empty.
AC_DEFUN([ACCEL_WITH_SLURM], [
    ACCEL_DEPENDENCY([slurm], [SLURM], [optional], [], [slurm/spank.h], [], [],
        [libslurm-dev], [slurm-devel],
        [Slurm headers, for the srun plugin])
    SLURM_VERSION=
    AS_IF([test $accel_with_slurm = on], [
        accel_save_CPPFLAGS=$CPPFLAGS
        CPPFLAGS="$CPPFLAGS $SLURM_CFLAGS"
        AC_COMPUTE_INT([accel_slurm_number], [SLURM_VERSION_NUMBER],
            [[#include <slurm/slurm_version.h>]], [accel_slurm_number=0])
        CPPFLAGS=$accel_save_CPPFLAGS
        SLURM_VERSION=`printf '%d.%02d.%d' $((accel_slurm_number >> 16)) \
            $((accel_slurm_number >> 8 & 255)) $((accel_slurm_number & 255))`
        AC_MSG_NOTICE([Slurm version $SLURM_VERSION: the plugin fits this release only])
        accel_why_slurm="Slurm $SLURM_VERSION; rebuild for another one"])
    # srun has no sanitizer runtime, so it could not load the plugin.
    AS_IF([test "x$enable_sanitizer" != xno],
        [accel_with_slurm=off accel_why_slurm="sanitizer build"])
    AC_SUBST([SLURM_VERSION])
    AM_CONDITIONAL([HAVE_SLURM], [test $accel_with_slurm = on])
    AS_IF([test $accel_with_slurm = on],
        [AC_DEFINE([HAVE_SLURM], [1], [Slurm headers are there])])
])
