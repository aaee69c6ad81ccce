#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: a start hung for ever, deaf to SIGTERM, where `history` was a fifo, a link to
# /dev/zero or a file of 10 TB of holes, or log.jsonl a fifo.
# All files that a run opens below its output directory are found by watching it. Each of
# them in turn is a fifo, a device, a link to one, a directory, or full of holes: the run
# ends, with 0 or with an error that names the file, and writes through no link.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/../t/train.sh"
built_with_sanitizer && skip_all "programs of the sanitizers do not take the shim"
train_alone
shim=$ACCEL_BUILD/tests/faults/.libs/openlog.so
[ -f "$shim" ] || skip_all "tests/faults/openlog is not built"
train_config c.yaml NO_SHARD no 1 1 "checkpoint: {every_steps: 1}"

life() { # STEPS: until then, in out; ends with the code of the run
    ACCEL_CONFIG=c.yaml timeout "$HANG_S" "$TRAIN" --layers 1 --heads 1 --width 16 --seq 16 \
        --batch 1 --sample 0 --data text.txt --steps "$1" --out out >said 2>&1
}

life 1 || bail_out "no first life: $(cat said)"
cp -r out clean
OPENLOG=$tap_tmp/log LD_PRELOAD=$shim life 2 || bail_out "no second life: $(cat said)"
# not those of the checkpoint in progress, whose directory is the run's alone
sed -n "s|^[a-z0-9]* $tap_tmp/out/||p" log | grep -v -e '^checkpoints/\.tmp-' -e '/*\.$' |
    sort -u >opened
for name in log.jsonl log.jsonl.part checkpoints/.lock checkpoints/history \
    checkpoints/retention checkpoints/step_00000001/MANIFEST; do
    grep -qx "$name" opened || echo "$name"
done >missed
is "$(cat missed)" "" "the run is seen to open its files"

: >outside
wrong='' runs=0
while read -r name; do
    case $name in *.h5) continue ;; esac
    if ! [ -d "clean/${name%"${name##*/}"}." ] || [ -d "clean/$name" ]; then
        continue
    fi
    for kind in fifo link zero directory holes; do
        rm -rf out && cp -r clean out && rm -f "out/$name"
        case $kind in
        fifo) mkfifo "out/$name" ;;
        link) ln -s "$tap_tmp/outside" "out/$name" ;;
        zero) ln -s /dev/zero "out/$name" ;;
        directory) mkdir "out/$name" ;;
        holes) truncate -s 10T "out/$name" 2>/dev/null || continue ;;
        esac
        life 2
        rc=$? runs=$((runs + 1))
        case $rc in
        0) ;;
        65 | 66 | 69 | 73 | 74 | 77) grep -q "${name##*/}" said || wrong="$wrong $name, $kind: $(cat said);" ;;
        *) wrong="$wrong $name, $kind: exit $rc;" ;;
        esac
        [ -s outside ] && wrong="$wrong $name: written through a link;" && : >outside
    done
done <opened
is "$wrong" "" "each of them a fifo, a link, a directory, 10 TB of holes: $runs runs end"
[ $runs -gt 20 ]
ok $? "of which there are many"
done_testing
