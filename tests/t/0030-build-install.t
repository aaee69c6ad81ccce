#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A full installation in a folder of its own: a program outside the tree is built by pkg-config
# alone, runs, and gets the version; nothing is installed outside the prefix.
. "$(dirname "$0")/tap.sh"

command -v pkg-config >/dev/null || skip_all "no pkg-config"
[ -f "$ACCEL_BUILD/Makefile" ] || skip_all "$ACCEL_BUILD is not configured"
tap_tmpdir
unset MAKEFLAGS MFLAGS MAKELEVEL
prefix=$(sed -n 's/^prefix = //p' "$ACCEL_BUILD/Makefile")
(cd "$ACCEL_BUILD" && make -s install DESTDIR="$tap_tmp/dest") >"$tap_tmp/log" 2>&1
ok $? "make install" || diag "$(tail -n 5 "$tap_tmp/log")"
is "$(find "$tap_tmp/dest" -type f ! -path "$tap_tmp/dest$prefix/*")" "" \
    "nothing is installed outside the prefix"

cat >"$tap_tmp/version.c" <<'END'
#include <accel.h>
#include <accel_ckpt.h>
#include <stdio.h>
int main(void)
{
    printf("%s %s\n", accel_version(), accel_status_name(ACCEL_ERESUME));
    return accel_exit_code(ACCEL_ERESUME);
}
END
root=$tap_tmp/dest$prefix
PKG_CONFIG_PATH=$(dirname "$(find "$root" -name accel.pc)")
export PKG_CONFIG_PATH
for package in accel accelckpt; do
    is "$(pkg-config --modversion $package 2>&1)" \
        "$(sed -n 's/^PACKAGE_VERSION = //p' "$ACCEL_BUILD/Makefile")" "$package.pc: version"
done
flags=$(pkg-config --define-variable=prefix="$root" --cflags --libs accel accelckpt)
libdir=$(pkg-config --define-variable=prefix="$root" --variable=libdir accel)
# shellcheck disable=SC2086
passes "a program is built with what pkg-config says" \
    ${CC:-cc} -Wall -Wextra -Werror -o "$tap_tmp/version" "$tap_tmp/version.c" $flags
got=$(LD_LIBRARY_PATH=$libdir "$tap_tmp/version" 2>&1)
is "$?" 85 "it runs and gets the exit code of a status"
like "$got" '^[0-9]+\.[0-9]+\.[0-9]+ ACCEL_ERESUME$' "it prints the library's version"

# The example that README.md begins with, as a user would build it.
# shellcheck disable=SC2086
passes "examples/minimal.c is built the same way" \
    ${CC:-cc} -Wall -Wextra -Werror -o "$tap_tmp/minimal" "$ACCEL_SRC/examples/minimal.c" $flags
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED CUDA_VISIBLE_DEVICES
LD_LIBRARY_PATH=$libdir OMP_NUM_THREADS=1
export LD_LIBRARY_PATH OMP_NUM_THREADS
cd "$tap_tmp" || bail_out "cannot enter $tap_tmp"
got=$(./minimal "$ACCEL_SRC/examples/sample.txt" 2>&1)
is "$?" 0 "it trains"
like "$got" '^step 300/300 loss [0-2]\.' "to its last step"
got=$(./minimal missing.txt 2>&1)
is "$?" 66 "without its data it ends with the code of a missing file"
like "$got" '^error\[A[0-9]*\]: missing.txt: cannot open' "and says so"
done_testing
