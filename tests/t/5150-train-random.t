#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Each example is stopped at random steps and resumed. On the same number of ranks its losses
# are those of a run that was never stopped, bit for bit. On another number each step is done
# once; where the example divides one batch among the ranks, with the same losses but for
# rounding, so with the same samples.
#     5150-train-random.t [POINTS [SEED]]    2 points, quick examples; make check-resume: 10, all
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
! built_with_sanitizer || skip_all "sanitizers and LD_PRELOAD exclude each other"
shim=$ACCEL_BUILD/tests/faults/.libs/stop_at.so
[ -r "$shim" ] || skip_all "tests/faults/stop_at is not built"
points=${1:-2} seed=${2:-$$} turn=1
# points at which the ranks change, too
far=$points
[ "$points" -gt 2 ] || far=1
command -v mpirun >/dev/null 2>&1 || far=0
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
unset SLURM_JOB_ID ACCEL_CONFIG_RESOLVED
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
cp "$ACCEL_SRC/examples/sample.txt" .
diag "$points points of each example; seed $seed"
echo "$seed" >state

random() { # LOW HIGH: LOW..HIGH
    awk -v low="$1" -v high="$2" '{ s = ($1 * 16807 + 11) % 2147483647; print s >FILENAME
        print low + int(s / 2147483647 * (high - low + 1)) }' state
}

# go RANKS DIR COMMAND: in DIR; $STOP: the step in whose log line SIGTERM comes
go() {
    train_config "$1.yaml" FULL_SHARD no "$1" 1 "checkpoint: {every_steps: 1000000}"
    mkdir -p "$2"
    if [ "$1" = 1 ]; then
        (cd "$2" && eval "ACCEL_CONFIG=../1.yaml ${STOP:+STOP_AT_STEP=$STOP LD_PRELOAD=$shim} \
            timeout $HANG_S $ACCEL_BUILD/examples/$3") >"$2.said" 2>&1
    else
        (cd "$2" && eval "${STOP:+STOP_AT_STEP=$STOP LD_PRELOAD=$shim} timeout $HANG_S \
            $ACCEL_BUILD/accel launch --config ../$1.yaml -n $1 $ACCEL_BUILD/examples/$3") \
            >"$2.said" 2>&1
    fi
}

# lives NAME FIRST SECOND COMMAND: two lives on so many ranks
lives() {
    rm -rf "$1"
    STOP=$(random 1 $((steps - 2)))
    go "$2" "$1" "$4"
    is $? 85 "$1: stopped while it logs step $STOP" || diag "$(tail -n 3 "$1.said")"
    is "$(last_step "$1/out/log.jsonl")" $((STOP + 1)) "$1: with the step after"
    STOP=
    go "$3" "$1" "$4"
    ok $? "$1: resumed" || diag "$(tail -n 3 "$1.said")"
    grep -q "resumed from .*: step" "$1.said"
    ok $? "$1: from its checkpoint"
}

# example NAME STEPS REL COMMAND: REL: how far losses of other ranks may be; "-": their
# batches are others
example() {
    steps=$2 STOP=
    go 1 "$1.whole" "$4"
    ok $? "$1: $2 steps at once" || diag "$(tail -n 3 "$1.whole.said")"
    point=0
    while [ $point -lt "$points" ]; do
        point=$((point + 1))
        lives "$1.$point" 1 1 "$4"
        same_bits "$1.whole/out/log.jsonl" "$1.$point/out/log.jsonl"
        ok $? "$1.$point: the same bits"
        [ $point -le "$far" ] || continue
        # several ranks take seconds to stop
        turn=$((turn + 1))
        if [ $((turn % 4)) = 0 ]; then
            lives "$1.$point.ranks" 2 1 "$4"
        else
            lives "$1.$point.ranks" 1 2 "$4"
        fi
        each_step_once "$1.$point.ranks/out/log.jsonl" "$2"
        ok $? "$1.$point: each step once, with other ranks"
        [ "$3" = - ] || close_losses "$1.whole/out/log.jsonl" "$1.$point.ranks/out/log.jsonl" \
            "$2" "$3" "$1.$point: the same samples"
    done
}

example gan 120 1e-3 "gan 120"
example distill 120 1e-4 "distill 120"
example streaming 50 1e-4 "streaming 'cat ../sample.txt' 50"
example custom_loop 400 1e-4 "custom_loop"
example metrics 2000 1e-3 "metrics"
# A directory of weights to begin with, which the second life does not read.
train_pairs 200 pairs.tsv vocab.txt
STOP=
go 1 weights "finetune_bert --data ../pairs.tsv --vocab ../vocab.txt --seq 12 --steps 1 \
    --save ../bert"
ok $? "finetune_bert: weights to begin with" || diag "$(tail -n 3 weights.said)"
cp vocab.txt bert/
example finetune_bert 40 - "finetune_bert --data ../pairs.tsv --model ../bert --seq 12 \
    --batch 4 --steps 40 --lr 1e-3"
if [ "$points" -gt 2 ]; then
    example mlp 300 - "mlp"
    example cnn 500 - "cnn"
    example minimal 300 - "minimal ../sample.txt"
fi
done_testing
