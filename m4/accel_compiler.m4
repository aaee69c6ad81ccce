# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_COMPILER: warnings, hardening, --enable-sanitizer=LIST, --enable-fuzz,
# --enable-werror.
# Sets ACCEL_CFLAGS and ACCEL_LDFLAGS (Makefile.am puts them before the user's own CFLAGS and
# LDFLAGS), ACCEL_BASE_CFLAGS (the same without OpenMP, for the plugin), accel_sanitizer and
# accel_hardening (for the summary). No -march: the instruction set is chosen at run time.

# _ACCEL_TRY_FLAG(VARIABLE, FLAG): adds FLAG to VARIABLE if the compiler and linker take it
# without a warning beside the user's flags.
AC_DEFUN([_ACCEL_TRY_FLAG], [
    AC_MSG_CHECKING([whether $CC takes $2])
    accel_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -Werror $2"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <stdio.h>]], [[return puts("") < 0;]])],
        [$1="$$1 $2"; AC_MSG_RESULT([yes])], [AC_MSG_RESULT([no])])
    CFLAGS=$accel_save_CFLAGS
])

AC_DEFUN([ACCEL_COMPILER], [
    AC_ARG_ENABLE([sanitizer], [AS_HELP_STRING([--enable-sanitizer=LIST],
        [build with gcc sanitizers: address,undefined or thread])],
        [], [enable_sanitizer=no])
    AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror],
        [turn warnings into errors (for developers)])], [], [enable_werror=no])

    ACCEL_CFLAGS="-std=gnu11 -Wall -Wextra -ffp-contract=off -fvisibility=hidden"
    ACCEL_CXXFLAGS=
    ACCEL_LDFLAGS=
    accel_hardening=
    AS_CASE([$enable_sanitizer],
        [no], [
            _ACCEL_TRY_FLAG([accel_hardening], [-fstack-protector-strong])
            _ACCEL_TRY_FLAG([accel_hardening], [-fstack-clash-protection])
            _ACCEL_TRY_FLAG([accel_hardening], [-D_FORTIFY_SOURCE=2])
            ACCEL_CFLAGS="$ACCEL_CFLAGS$accel_hardening"
            _ACCEL_TRY_FLAG([ACCEL_LDFLAGS], [-Wl,-z,relro,-z,now])
            _ACCEL_TRY_FLAG([ACCEL_LDFLAGS], [-Wl,-z,noexecstack])
            accel_hardening="$accel_hardening$ACCEL_LDFLAGS"
            accel_sanitizer="off (--enable-sanitizer=address,undefined or thread)"],
        [address|undefined|address,undefined|undefined,address|thread], [
            accel_sanitizer="-fsanitize=$enable_sanitizer"
            accel_found=
            _ACCEL_TRY_FLAG([accel_found], [$accel_sanitizer])
            AS_IF([test -z "$accel_found"], [AC_MSG_ERROR(
                [$CC cannot link with $accel_sanitizer (Debian: libgcc-12-dev; RHEL: libasan libubsan libtsan)])])
            ACCEL_CXXFLAGS="$accel_sanitizer -fno-sanitize-recover=all -fno-omit-frame-pointer"
            ACCEL_CXXFLAGS="$ACCEL_CXXFLAGS -fno-optimize-sibling-calls" # stacks have every caller
            ACCEL_CFLAGS="$ACCEL_CFLAGS $ACCEL_CXXFLAGS"
            accel_hardening="off (sanitizer build)"],
        [AC_MSG_ERROR([--enable-sanitizer=$enable_sanitizer: say address, undefined, address,undefined or thread])])
    AC_ARG_ENABLE([fuzz], [AS_HELP_STRING([--enable-fuzz],
        [drive the fuzz targets by libFuzzer (needs CC=clang; `make fuzz`)])],
        [], [enable_fuzz=no])
    AS_IF([test "x$enable_fuzz" = xyes], [
        accel_found=
        _ACCEL_TRY_FLAG([accel_found], [-fsanitize=fuzzer-no-link])
        AS_IF([test -z "$accel_found"], [AC_MSG_ERROR(
            [$CC knows no libFuzzer: configure with CC=clang (Debian: clang libclang-rt-14-dev; RHEL: clang compiler-rt)])])
        ACCEL_CFLAGS="$ACCEL_CFLAGS -fsanitize=fuzzer-no-link"
    ])
    AM_CONDITIONAL([LIBFUZZER], [test "x$enable_fuzz" = xyes])
    AS_IF([test "x$enable_werror" = xyes], [ACCEL_CFLAGS="$ACCEL_CFLAGS -Werror"])
    ACCEL_BASE_CFLAGS=$ACCEL_CFLAGS
    AC_OPENMP
    AS_IF([test -z "$OPENMP_CFLAGS"],
        [accel_openmp="off: $CC does not know OpenMP, each rank computes on one core"],
        [accel_openmp="on ($OPENMP_CFLAGS)"])
    ACCEL_CFLAGS="$ACCEL_CFLAGS $OPENMP_CFLAGS"
    AC_SUBST([ACCEL_BASE_CFLAGS])
    AC_SUBST([ACCEL_CFLAGS])
    AC_SUBST([ACCEL_LDFLAGS])
])

# After ACCEL_COMPILER: is there a C++ compiler, and does it know the sanitizers asked for? Sets
# the conditional HAVE_CXX. The thread sanitizer does not see that threads of the stand-in for
# CUDA are fibers of one.
AC_DEFUN([ACCEL_CXX], [
    AC_LANG_PUSH([C++])
    AC_MSG_CHECKING([whether the C++ compiler works])
    accel_save_CXXFLAGS=$CXXFLAGS
    CXXFLAGS="$CXXFLAGS $ACCEL_CXXFLAGS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [accel_cxx=yes], [accel_cxx=no])
    CXXFLAGS=$accel_save_CXXFLAGS
    AC_MSG_RESULT([$accel_cxx])
    AC_LANG_POP([C++])
    AM_CONDITIONAL([HAVE_CXX],
        [test $accel_cxx = yes && test "${enable_sanitizer:-no}" != thread])
    AM_CONDITIONAL([SANITIZER], [test "${enable_sanitizer:-no}" != no])
    AC_SUBST([ACCEL_CXXFLAGS])
])
