# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_DEPENDENCY(NAME, VAR, KIND, PKG-CONFIG, HEADER, LIBRARY, FUNCTION,
#                  DEBIAN-PACKAGE, RHEL-PACKAGE, PURPOSE)
#
# Adds --with-NAME[=DIR|no] and looks for the dependency: pkg-config first (in DIR first when
# one is given, or accel_default_NAME is set), then HEADER and FUNCTION in LIBRARY. LIBRARY may be empty (headers only),
# PKG-CONFIG too. KIND is
#   required   missing is an error, and so is --without-NAME
#   wanted     missing is an error unless --without-NAME says to build without it
#   optional   taken when it is there; missing is an error only when --with-NAME asks for it
# Sets   accel_with_NAME  on | off | missing
#        accel_why_NAME   version and place when on, else the reason
#        VAR_CFLAGS, VAR_LIBS (substituted; empty when not on)
# A missing one is remembered; ACCEL_MISSING_STOP names all of them at once.
AC_DEFUN([ACCEL_DEPENDENCY], [
    AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1@<:@=DIR|no@:>@],
        [$10 @<:@]m4_case([$3], [required], [required], [wanted], [required unless left out], [if found])[@:>@])],
        [accel_ask_$1=$withval], [accel_ask_$1=default])
    $2_CFLAGS= $2_LIBS= accel_with_$1=off accel_why_$1="--without-$1"
    AC_MSG_CHECKING([for $1])
    AS_IF([test "x$accel_ask_$1" != xno], [
        _ACCEL_FIND([$1], [$2], [$4], [$5], [$6], [$7])
        AS_IF([test $accel_with_$1 != on], [
            accel_with_$1=off
            accel_why_$1="not found ($8 / $9)"
            m4_case([$3], [required], [ACCEL_MISSING([$1], [$8], [$9])],
                [wanted], [ACCEL_MISSING([$1], [$8], [$9])],
                [AS_IF([test "x$accel_ask_$1" != xdefault],
                       [ACCEL_MISSING([$1], [$8], [$9])])])])],
        [m4_if([$3], [required],
            [AC_MSG_ERROR([accel cannot be built without $1 ($10)])])])
    AC_MSG_RESULT([$accel_with_$1, $accel_why_$1])
    AC_SUBST([$2_CFLAGS])
    AC_SUBST([$2_LIBS])
])

# The search itself: NAME, VAR, PKG-CONFIG, HEADER, LIBRARY, FUNCTION.
AC_DEFUN([_ACCEL_FIND], [
    AC_REQUIRE([PKG_PROG_PKG_CONFIG])
    accel_dir=$accel_default_$1 accel_save_pcp=$PKG_CONFIG_PATH
    accel_save_CPPFLAGS=$CPPFLAGS accel_save_LIBS=$LIBS accel_found_by=
    AS_CASE([$accel_ask_$1], [default|yes], [],
        [accel_dir=$accel_ask_$1
         AS_IF([test ! -d "$accel_dir"],
            [AC_MSG_ERROR([--with-$1=$accel_dir: there is no such directory])])])
    AS_IF([test -n "$accel_dir"],
        [PKG_CONFIG_PATH=$accel_dir/lib/pkgconfig:$accel_dir/lib64/pkgconfig:$PKG_CONFIG_PATH
         export PKG_CONFIG_PATH])
    m4_ifval([$3], [
    AS_IF([test -n "$PKG_CONFIG" && $PKG_CONFIG --exists "$3" 2>/dev/null], [
        $2_CFLAGS=`$PKG_CONFIG --cflags "$3"`
        $2_LIBS=`$PKG_CONFIG --libs "$3"`
        accel_found_by=`$PKG_CONFIG --modversion "$3"`])])
    AS_IF([test -z "$accel_found_by"], [
        AS_IF([test -n "$accel_dir"], [
            $2_CFLAGS="-I$accel_dir/include"
            m4_ifval([$5], [$2_LIBS="-L$accel_dir/lib64 -L$accel_dir/lib -Wl,-rpath,$accel_dir/lib"])])
        m4_ifval([$5], [$2_LIBS="$$2_LIBS -l$5"])
        accel_found_by="header $4${accel_dir:+ in $accel_dir}"])
    CPPFLAGS="$CPPFLAGS $$2_CFLAGS" LIBS="$$2_LIBS $LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <$4>]],
            [m4_ifval([$6], [[void *volatile use = (void *)$6; return !use;]])])],
        [accel_with_$1=on accel_why_$1=$accel_found_by],
        [accel_with_$1=missing $2_CFLAGS= $2_LIBS=])
    CPPFLAGS=$accel_save_CPPFLAGS LIBS=$accel_save_LIBS
    PKG_CONFIG_PATH=$accel_save_pcp
])

# ACCEL_MISSING(NAME, DEBIAN-PACKAGE, RHEL-PACKAGE): remembers what has to be installed.
AC_DEFUN([ACCEL_MISSING], [
    accel_missing="$accel_missing $1"
    accel_missing_deb="$accel_missing_deb $2"
    accel_missing_rpm="$accel_missing_rpm $3"
])

# ACCEL_MISSING_STOP: ends configure when anything was missing, with the cure in one line.
AC_DEFUN([ACCEL_MISSING_STOP], [
    AS_IF([test -n "$accel_missing"], [AC_MSG_ERROR([missing:$accel_missing
  Debian, Ubuntu:   apt-get install$accel_missing_deb
  RHEL and EPEL:    dnf install$accel_missing_rpm
or name the place of one with --with-NAME=DIR])])
])
