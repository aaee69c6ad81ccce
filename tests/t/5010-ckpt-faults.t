#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Every intercepted call of a save fails or kills the process in turn: the old checkpoint
# loads, an error leaves nothing behind, a survived fault leaves the new one. Then saves and
# loads where O_DIRECT is refused.
# FAULT_KINDS widens it to EDQUOT, EXDEV and EROFS; the suite runs a short form, make
# check-saves all.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
shim=$ACCEL_BUILD/tests/faults/.libs/failcall.so
once=$ACCEL_BUILD/tests/faults/ckpt_once
[ -f "$shim" ] || skip_all "no shim (shared libraries are off)"
ldd "$once" 2>/dev/null | grep -q -e libasan -e libtsan && skip_all "sanitizers and LD_PRELOAD exclude each other"
root=$tap_tmp/root

for how in ${FAULT_KINDS:-EIO ENOSPC EINTR short kill}; do
    rm -rf "$root"
    "$once" save "$root" 1 1 || bail_out "the plain save failed"
    step=2
    n=0
    bad=
    while :; do
        n=$((n + 1))
        rm -f "$tap_tmp/seen"
        FAILCALL_AT=$n FAILCALL_HOW=$how FAILCALL_SEEN=$tap_tmp/seen LD_PRELOAD=$shim \
            "$once" save "$root" $step 1 2>"$tap_tmp/err"
        rc=$?
        [ -e "$tap_tmp/seen" ] || break
        case $rc in
        0) ;;
        71 | 73 | 74)
            [ -s "$tap_tmp/err" ] || bad="$bad call $n: no message;"
            left=$(find "$root" -mindepth 1 -maxdepth 1 -name '.*' | wc -l)
            [ "$left" -eq 0 ] || bad="$bad call $n: $left left behind;"
            ;;
        137) [ "$how" = kill ] || bad="$bad call $n: killed;" ;;
        *) bad="$bad call $n: exit $rc $(cat "$tap_tmp/err");" ;;
        esac
        case $how/$rc in
        EINTR/0 | short/0) ;;
        # The one call we cannot retry: the ftruncate inside HDF5's H5Fclose.
        EINTR/*) grep -q 'HDF5 H5FD_.*truncate: unable to extend file' "$tap_tmp/err" ||
            bad="$bad call $n: not retried ($(cat "$tap_tmp/err"));" ;;
        short/*) bad="$bad call $n: $how is not survived ($(cat "$tap_tmp/err"));" ;;
        esac
        if [ "$rc" -eq 0 ]; then
            want=$step
        else
            want=$((step - 1))
        fi
        # A kill between the rename and the end may leave the new one: both are right.
        if ! "$once" load "$root" "$want" 1 >"$tap_tmp/load"; then
            [ "$rc" -eq 137 ] && "$once" load "$root" $step 1 >/dev/null && want=$step ||
                bad="$bad call $n: exit $rc but $(cat "$tap_tmp/load");"
        fi
        [ "$want" -eq "$step" ] && step=$((step + 1))
        [ "$n" -lt 3000 ] || break
    done
    is "$bad" "" "$how at each of $((n - 1)) calls"
    [ "$n" -gt 10 ]
    ok $? "$how: the shim was met"
done
for how in noopen nowrite; do
    rm -rf "$root" "$tap_tmp/seen"
    FAILCALL_HOW=$how FAILCALL_SEEN=$tap_tmp/seen LD_PRELOAD=$shim "$once" save "$root" 1 2
    is $? 0 "$how: a save where O_DIRECT is refused"
    passes "$how: it was refused" test -e "$tap_tmp/seen"
    passes "$how: and it loads" env FAILCALL_HOW=$how LD_PRELOAD="$shim" "$once" load "$root" 1 3
done
done_testing
