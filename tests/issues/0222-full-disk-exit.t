#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: a save that met a full, failing or read-only disk while it made its directory ended
# with 73, as if the path were wrong; other calls of the same save ended with 74.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/../t/tap.sh"

tap_tmpdir
shim=$ACCEL_BUILD/tests/faults/.libs/failcall.so
once=$ACCEL_BUILD/tests/faults/ckpt_once
[ -f "$shim" ] || skip_all "no shim (shared libraries are off)"
ldd "$once" 2>/dev/null | grep -q -e libasan -e libtsan && skip_all "sanitizers and LD_PRELOAD exclude each other"
"$once" save "$tap_tmp/root" 1 1 || skip_all "no saving here"

for how in EIO ENOSPC EDQUOT EROFS; do
    bad=
    for at in 1 2 3 4 5 6; do
        FAILCALL_AT=$at FAILCALL_TIMES=0 FAILCALL_HOW=$how LD_PRELOAD=$shim \
            "$once" save "$tap_tmp/root" 2 1 2>"$tap_tmp/err"
        rc=$?
        [ $rc -eq 74 ] || bad="$bad from call $at: exit $rc $(cat "$tap_tmp/err");"
    done
    is "$bad" "" "$how: exit 74"
done
FAILCALL_AT=1 FAILCALL_HOW=EACCES LD_PRELOAD=$shim "$once" save "$tap_tmp/root" 2 1 2>"$tap_tmp/err"
is $? 73 "a directory that may not be made is still 73"
passes "the checkpoint before is there" "$once" load "$tap_tmp/root" 1 1
done_testing
