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
    # srun has no sanitizer runtime: it loads such a plugin only when the runtime is a shared
    # library that LD_PRELOAD brings along. gcc's for addresses is, the one for threads is
    # of no use, and clang puts its own into programs only.
    AS_CASE([$enable_sanitizer],
        [no], [],
        [*thread*], [accel_with_slurm=off accel_why_slurm="thread sanitizer build"],
        [accel_found=
        _ACCEL_TRY_FLAG([accel_found],
            [$accel_sanitizer -shared -fPIC -Wl,--no-undefined])
        AS_IF([test -z "$accel_found"], [accel_with_slurm=off
            accel_why_slurm="sanitizer build, and $CC cannot link its runtime into a plugin"])])
    AC_SUBST([SLURM_VERSION])
    AM_CONDITIONAL([HAVE_SLURM], [test $accel_with_slurm = on])
    AS_IF([test $accel_with_slurm = on],
        [AC_DEFINE([HAVE_SLURM], [1], [Slurm headers are there])])
])
