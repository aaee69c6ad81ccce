#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: `accel ckpt verify` passed checkpoints that a resume refuses, and took what a run at
# work removes for damage.
# `accel ckpt verify` refuses what `ls` and a resume refuse, says nothing of damage about
# what a run at work removes, and finds files that HDF5 tools would read differently.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/../t/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
once=$ACCEL_BUILD/tests/faults/ckpt_once
forged=$ACCEL_BUILD/tests/unit/test_ckpt_forged
root=$tap_tmp/root

"$once" save "$root" 3 1 2>"$tap_tmp/err" || skip_all "no saving here: $(cat "$tap_tmp/err")"
mv "$root/step_00000003" "$root/step_00000006"
out=$("$accel" ckpt verify "$root")
is $? 74 "step 3 under the name of step 6: verify exits 74"
like "$out" 'step_00000006 damaged .*the manifest is for step 3' "and says so"
like "$("$accel" ckpt ls "$root")" 'damaged .*the manifest is for step 3' "as ls does"
out=$("$accel" ckpt verify "$root/step_00000006/")
is $? 74 "also when it is named itself"

# A saver at work, which keeps 3, and verify beside it.
root=$tap_tmp/busy
"$once" save "$root" 1 1
(
    step=2
    while [ ! -e "$tap_tmp/enough" ] && [ "$step" -lt 5000 ]; do
        "$once" save "$root" "$step" 1 || exit 1
        step=$((step + 1))
    done
) &
saver=$!
bad=
for run in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    out=$("$accel" ckpt verify "$root")
    rc=$?
    case $rc/$out in
    0/*damaged* | [!0]*) bad="$bad run $run exits $rc: $out;" ;;
    esac
    out=$("$accel" ckpt ls "$root")
    case $out in
    *damaged*) bad="$bad run $run of ls: $out;" ;;
    esac
done
: >"$tap_tmp/enough"
wait "$saver"
is $? 0 "the saver went on"
is "$bad" "" "beside it nothing is damaged"

# Hashes hold, HDF5's structures tell another story.
if [ ! -x "$forged" ]; then
    skip 11 "built without HDF5"
else
    mkdir "$tap_tmp/forged"
    "$forged" "$tap_tmp/forged" 0 >"$tap_tmp/want"
    out=$("$accel" ckpt verify --deep "$tap_tmp/forged")
    is $? 0 "a file of the same tool that is sound"
    like "$out" 'step_00000003 whole' "is whole"
    for kind in 1 9 16; do
        want=$("$forged" "$tap_tmp/forged" $kind)
        out=$("$accel" ckpt verify --deep "$tap_tmp/forged")
        is $? 74 "forged, kind $kind: verify --deep exits 74"
        case $out in
        *damaged*"$want"*) ok 0 "and names it: $want" ;;
        *) is "$out" "$want" "and names it" ;;
        esac
        passes "every hash of it holds" "$accel" ckpt verify "$tap_tmp/forged"
    done
fi
done_testing
