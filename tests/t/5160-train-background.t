#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Checkpoints in the background: kill -9, a full disk and I/O errors at random calls of the
# writer. A run that goes on keeps its bits; a run that died goes on from a whole checkpoint,
# and in the end the log holds every step once with the bits of the uninterrupted run.
#     5160-train-background.t [POINTS [SEED]]    8 points
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
! built_with_sanitizer || skip_all "sanitizers and LD_PRELOAD exclude each other"
shim=$ACCEL_BUILD/tests/faults/.libs/failcall.so
[ -r "$shim" ] || skip_all "tests/faults/failcall is not built"
points=${1:-8} seed=${2:-$$}
train_alone
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
diag "$points points; seed $seed"
echo "$seed" >state
STEPS=24

random() { # LOW HIGH: LOW..HIGH
    awk -v low="$1" -v high="$2" '{ s = ($1 * 16807 + 11) % 2147483647; print s >FILENAME
        print low + int(s / 2147483647 * (high - low + 1)) }' state
}

# go NAME RANKS [ENV...]: a life of the run NAME
go() {
    name=$1 n=$2
    shift 2
    env "$@" timeout "$HANG_S" "$ACCEL_BUILD/accel" launch --config "$n.yaml" -n "$n" "$TRAIN" \
        --layers 1 --heads 2 --width 32 --seq 32 --batch 2 --steps $STEPS --sample 0 \
        --data text.txt --out "$name" >>"$name.said" 2>&1
}

for n in 1 2; do
    train_config "$n.yaml" FULL_SHARD bf16 "$n" 1 \
        "checkpoint: {every_steps: 3, keep: 3, async: false}"
    go "once-$n" "$n"
    ok $? "$n ranks: at once, as the reference" || diag "$(tail -n 3 "once-$n.said")"
    train_config "$n.yaml" FULL_SHARD bf16 "$n" 1 \
        "checkpoint: {every_steps: 3, keep: 3, async: true, when_busy: wait}"
    go "late-$n" "$n" "LD_PRELOAD=$shim" "FAILCALL_COUNT=$tap_tmp/count-$n"
    ok $? "$n ranks: in the background" || diag "$(tail -n 3 "late-$n.said")"
    same_bits "once-$n/log.jsonl" "late-$n/log.jsonl"
    ok $? "$n ranks: the same bits"
    is "$(grep -c '^checkpoint of step .*the training waited' "late-$n.said")" 7 \
        "$n ranks: all but the last one are in the background"
    is "$(cd "late-$n/checkpoints" && echo step_*)" \
        "step_00000018 step_00000021 step_00000024" "$n ranks: older ones are deleted"
    "$ACCEL_BUILD/accel" ckpt verify "late-$n/checkpoints" >verified 2>&1
    ok $? "$n ranks: whole" || diag "$(cat verified)"
done

point=0
while [ $point -lt "$points" ]; do
    point=$((point + 1)) n=$((point % 2 + 1))
    calls=$(cat "count-$n".* | sort -n | tail -n 1)
    at=$(random 1 "${calls:-1}")
    case $((point % 4)) in
    0) how=EIO ;;
    1) how=ENOSPC ;;
    *) how="kill" ;;
    esac
    what="$how at call $at of $calls, $n ranks"
    go "at-$point" "$n" "LD_PRELOAD=$shim" "FAILCALL_AT=$at" "FAILCALL_HOW=$how" \
        "FAILCALL_SEEN=$tap_tmp/seen-$point"
    rc=$?
    [ -e "seen-$point" ]
    ok $? "$what: met (exit $rc)"
    if [ $rc -ne 0 ]; then
        go "at-$point" "$n"
        ok $? "$what: the next life ends" || diag "$(tail -n 5 "at-$point.said")"
    fi
    each_step_once "at-$point/log.jsonl" $STEPS
    ok $? "$what: every step once"
    same_bits "once-$n/log.jsonl" "at-$point/log.jsonl"
    ok $? "$what: the same bits"
    is "$(find "at-$point/checkpoints" -mindepth 1 -maxdepth 1 -name '.tmp*')" "" \
        "$what: nothing is left behind"
done
done_testing
