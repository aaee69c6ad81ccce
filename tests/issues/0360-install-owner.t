#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: `make install` said nothing where others could write to the plugin, which root's
# slurmstepd loads. Now it names each file and directory; a staged installation is not judged.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/../t/tap.sh"

[ -f "$ACCEL_BUILD/Makefile" ] || skip_all "not configured here"
grep -q '^install-exec-hook:' "$ACCEL_BUILD/Makefile" || skip_all "the plugin is not built"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
mkdir -m 755 lib
: >lib/accel_spank.so
chmod 644 lib/accel_spank.so

# hook [MAKE-ARG]...: what it says of this directory; those above are the machine's
hook() {
    make -s -C "$ACCEL_BUILD" install-exec-hook pkglibdir="$tap_tmp/lib" "$@" 2>&1 | grep "$tap_tmp/"
}
if [ "$(id -u)" = 0 ]; then
    is "$(hook)" "" "root's, closed to others"
else
    skip 1 "needs root"
fi
for mode in 664 646; do
    chmod $mode lib/accel_spank.so
    like "$(hook)" "plugstack.conf only when root owns $tap_tmp/lib/accel_spank.so" "mode $mode"
done
is "$(hook DESTDIR=/stage)" "" "staged for a package: said by nobody"
chmod 644 lib/accel_spank.so
chmod 775 lib
like "$(hook)" "root owns $tap_tmp/lib and" "its directory"
if [ "$(id -u)" = 0 ]; then
    chmod 755 lib
    chown 65534 lib/accel_spank.so
    like "$(hook)" "root owns $tap_tmp/lib/accel_spank.so" "another user's"
else
    skip 1 "needs root"
fi
done_testing
