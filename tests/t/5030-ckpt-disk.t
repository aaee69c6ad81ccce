#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Saves where the disk does not play along: memory file system, file size limit, no room,
# no inodes at each file in turn, and leftovers of other jobs. An error is clean: the old
# checkpoint loads, nothing is left behind.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
once=$ACCEL_BUILD/tests/faults/ckpt_once

# The script that runs inside the mount namespace: ROOT is a small tmpfs.
inside() {
    cat <<'EOS'
set -u
once=$1 mnt=$2 options=$3
mount -t tmpfs -o "$options" accel-test "$mnt" || exit 99
root=$mnt/root
"$once" save "$root" 1 2 || exit 98
"$once" save "$root" 2 2 2>"$4"
rc=$?
if [ "$rc" -eq 0 ]; then
    "$once" load "$root" 2 1 || exit 97
    exit 0
fi
"$once" load "$root" 1 1 || exit 96
[ -z "$(find "$root" -mindepth 1 -maxdepth 1 -name '.*')" ] || exit 95
[ -s "$4" ] || exit 94
exit "$rc"
EOS
}

small() {
    unshare -m sh "$tap_tmp/inside" "$once" "$tap_tmp/mnt" "$1" "$tap_tmp/err" >"$tap_tmp/out" 2>&1
}

root=$tap_tmp/limit
"$once" save "$root" 1 2 || bail_out "the plain save failed"
(
    ulimit -f 2000 2>/dev/null # blocks of 512 bytes or 1 KiB: less than a shard either way
    "$once" save "$root" 2 2
) 2>"$tap_tmp/err"
rc=$?
ok "$((rc != 74 && rc != 73))" "a file size limit: an error, no signal (exit $rc)"
like "$(cat "$tap_tmp/err")" 'rank_0000[01]-of-00002.h5: .*File too large' "and it says what is too large"
"$once" load "$root" 1 1 >"$tap_tmp/out"
is $? 0 "the old checkpoint loads ($(cat "$tap_tmp/out"))"
is "$(find "$root" -mindepth 1 -maxdepth 1 -name '.*')" "" "nothing is left behind"

# Leftovers: locked means that their owner lives.
root=$tap_tmp/others
mkdir -p "$root"
for d in .tmp-step_00000005.live.0 .tmp-step_00000005.dead.0 .trash-step_00000003.0 \
    .trash-step_00000004.0; do
    mkdir "$root/$d"
    : >"$root/$d/rank_00000-of-00001.h5"
done
flock "$root/.tmp-step_00000005.live.0" flock "$root/.trash-step_00000003.0" \
    "$once" save "$root" 1 1
is $? 0 "a save beside another job"
is "$(cd "$root" && find . -name '*.h5' -path './.*/*' | sort | tr '\n' ' ')" \
    "./.tmp-step_00000005.live.0/rank_00000-of-00001.h5 ./.trash-step_00000003.0/rank_00000-of-00001.h5 " \
    "what a live one is writing or deleting stays, what dead ones left goes"
"$once" save "$root" 2 1
is "$(find "$root" -mindepth 1 -maxdepth 1 -name '.*')" "" "once it is dead, that goes as well"

if ! unshare -m true 2>/dev/null; then
    skip 5 "no right to make a mount namespace"
else
    inside >"$tap_tmp/inside"
    mkdir "$tap_tmp/mnt"
    small size=64m
    is $? 0 "a memory file system: save and load ($(cat "$tap_tmp/out"))"
    small size=9m
    rc=$?
    is "$rc" 74 "no room for a second checkpoint: exit 74 $(cat "$tap_tmp/out")"
    like "$(cat "$tap_tmp/err")" 'needs .* but only .* free .*free space' "and it says how much is missing"
    bad=
    failed=0
    n=0
    # 1 root, 1 directory, 4 of the first checkpoint, latest: then one more each time.
    for n in 7 8 9 10 11 12 13 14; do
        small "size=64m,nr_inodes=$n"
        rc=$?
        case $rc in
        0) break ;;
        73 | 74) failed=$((failed + 1)) ;;
        98) ;; # not even the first one
        *) bad="$bad $n inodes: exit $rc $(cat "$tap_tmp/out" "$tap_tmp/err");" ;;
        esac
    done
    is "$bad" "" "no inode for one file after the other: clean errors"
    ok "$((rc != 0 || failed < 3))" "$failed saves failed, and with $n inodes it went through"
fi
done_testing
