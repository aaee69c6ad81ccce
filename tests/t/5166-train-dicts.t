#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# fsdp_state_dict_type: a run that saves FULL_STATE_DICT has one file, in which every tensor is
# whole, the bits of a run that saves shards, and goes on from it on any number of ranks and
# with either kind of checkpoint. LOCAL_STATE_DICT goes on with the same bits, too, and is
# refused by other ranks, shards and forms.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
need_program mpirun
train_alone
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
accel=$ACCEL_BUILD/accel
STEPS=6

# config FILE RANKS KIND [STRATEGY]
config() {
    train_config "$1" "${4:-FULL_SHARD}" bf16 "$2" 1 "checkpoint: {every_steps: 2, keep: 9}"
    sed -i "s/SHARDED_STATE_DICT/$3/" "$1"
}

# go NAME RANKS FILE [ENV...]: a life of the run NAME; the global batch is 4
go() {
    name=$1 n=$2 file=$3
    shift 3
    env "$@" timeout "$HANG_S" "$accel" launch --config "$file" -n "$n" "$TRAIN" \
        --layers 1 --heads 2 --width 32 --seq 32 --batch $((4 / n)) --steps $STEPS --sample 0 \
        --data text.txt --out "$name" >"$name.said" 2>&1
}

# without_newest FROM TO: TO is FROM after step 2
without_newest() {
    cp -R "$1" "$2"
    rm -rf "$2"/checkpoints/step_00000004 "$2"/checkpoints/step_00000006 "$2"/checkpoints/latest
}

for n in 1 2 4; do
    config "full-$n.yaml" "$n" FULL_STATE_DICT
    config "shards-$n.yaml" "$n" SHARDED_STATE_DICT
done
config copies.yaml 4 FULL_STATE_DICT NO_SHARD
go shards 2 shards-2.yaml
ok $? "a run that saves shards, as the reference" || bail_out "$(tail -n 3 shards.said)"

go full 2 full-2.yaml ACCEL_CHECKPOINT_ASYNC=true
ok $? "a run that saves whole" || bail_out "$(tail -n 3 full.said)"
like "$(cat full.said)" 'accel.checkpoint.async has no effect on FULL_STATE_DICT' \
    "it says that it does not save in the background"
like "$(cat full.said)" 'checkpoint +.* in one file, by rank 0' "the plan says what is saved"
same_bits shards/log.jsonl full/log.jsonl
ok $? "the same bits"
step=full/checkpoints/step_00000002
is "$(cd $step && echo *)" "MANIFEST rank_00000-of-00001.h5" "one file"
"$accel" ckpt verify full/checkpoints >verified 2>&1
ok $? "whole" || diag "$(cat verified)"
is "$("$accel" ckpt show --json $step | jq -r '[.tensors[].boxes] | unique | tostring')" "[1]" \
    "every tensor is in one piece"
"$accel" ckpt diff --tol 0 $step shards/checkpoints/step_00000002 >differ 2>&1
ok $? "with the numbers of the run that saves shards" || diag "$(cat differ)"

for n in 2 1 4; do
    without_newest full "whole-on-$n"
    go "whole-on-$n" $n full-$n.yaml
    ok $? "goes on from it on $n ranks" || diag "$(tail -n 3 "whole-on-$n.said")"
    like "$(cat "whole-on-$n.said")" "resumed from .*step_00000002: step 2, 8 samples seen" \
        "$n ranks: it says from where"
    close_losses shards/log.jsonl "whole-on-$n/log.jsonl" $STEPS 1e-2 "$n ranks: near the reference"
done
same_bits shards/log.jsonl whole-on-2/log.jsonl
ok $? "on as many ranks with the same bits"

without_newest full to-shards
go to-shards 2 shards-2.yaml
ok $? "a run that saves shards goes on from it" || diag "$(tail -n 3 to-shards.said)"
same_bits shards/log.jsonl to-shards/log.jsonl
ok $? "with the same bits"
without_newest shards to-full
go to-full 2 full-2.yaml
ok $? "and the other way round" || diag "$(tail -n 3 to-full.said)"
same_bits shards/log.jsonl to-full/log.jsonl
ok $? "with the same bits"
is "$(cd to-full/checkpoints/step_00000006 && echo *)" "MANIFEST rank_00000-of-00001.h5" \
    "what it saves is one file"
unlike "$(cat to-full.said)" 'async|background|training waits' "nothing is said where nobody asked"

# ---- LOCAL_STATE_DICT ----
# local_case NAME STRATEGY [LINE...]: saves flat shards, goes on from step 2, and again by
# shards with names. Lines go below "accel:".
local_case() {
    what=$1 strategy=$2
    shift 2
    for kind in SHARDED LOCAL; do
        train_config "$what-$kind.yaml" "$strategy" bf16 2 1 "checkpoint: {every_steps: 2, keep: 9}" "$@"
        sed -i "s/SHARDED_STATE_DICT/${kind}_STATE_DICT/" "$what-$kind.yaml"
    done
    go "$what" 2 "$what-LOCAL.yaml" ACCEL_CHECKPOINT_ASYNC="$async"
    ok $? "$what: saves flat shards" || diag "$(tail -n 3 "$what.said")"
    passes "$what: whole" "$accel" ckpt verify --deep "$what/checkpoints"
    for kind in LOCAL SHARDED; do
        without_newest "$what" "$what-$kind"
        go "$what-$kind" 2 "$what-$kind.yaml"
        ok $? "$what: goes on and saves $kind" || diag "$(tail -n 3 "$what-$kind.said")"
        same_bits "$what/log.jsonl" "$what-$kind/log.jsonl"
        ok $? "$what: with the same bits"
    done
}
async=true
local_case flat FULL_SHARD
same_bits shards/log.jsonl flat/log.jsonl
ok $? "with the bits of the run that saves shards"
async=false
local_case zero2 SHARD_GRAD_OP
local_case whole NO_SHARD
local_case narrow FULL_SHARD "precision: {masters: fp16, moments: 8bit}"
step=flat/checkpoints/step_00000002
is "$("$accel" ckpt show --json $step | jq -r '[.tensors[] | select(.name | test("^(optim/)?flat/")) |
    .shape | length] | unique | tostring')" "[1]" "tensors are flat"
is "$("$accel" ckpt show --json $step | jq -r '[.tensors[] | select(.name | test("^model/"))] | length')" 0 \
    "and have no names of parameters"

# refused NAME RANKS FILE WHY
refused() {
    without_newest flat "no-$1"
    go "no-$1" "$2" "$3"
    is $? 65 "$1: refused"
    like "$(cat "no-$1.said")" "A0847.*$4" "$1: it says why"
    like "$(cat "no-$1.said")" 'SHARDED_STATE_DICT' "$1: and what to do"
    is "$(cd "no-$1/checkpoints" && echo step_*)" "step_00000002" "$1: nothing is lost"
}
refused ranks 1 shards-1.yaml 'flat shards of 2 ranks \(LOCAL_STATE_DICT\), but this run has 1'
refused strategy 2 zero2-SHARDED.yaml 'cut in another way'
sed 's/^  checkpoint/  precision: {masters: fp16}\n&/' shards-2.yaml >masters.yaml
refused masters 2 masters.yaml 'cut in another way'
sed 's/^  checkpoint/  precision: {moments: 8bit}\n&/' shards-2.yaml >moments.yaml
refused moments 2 moments.yaml 'cut in another way'
sed 's/TRANSFORMER_BASED_WRAP/NO_WRAP/' shards-2.yaml >unwrapped.yaml
refused units 2 unwrapped.yaml 'cut in another way'
out=$("$accel" ckpt export $step exported 2>&1)
is $? 65 "weights without names are not exported"
like "$out" 'A0847.*flat shards' "it says why"
passes "flat shards are merged" "$accel" ckpt merge $step merged
rm -r flat/checkpoints/step_*
mv merged/step_00000002 flat/checkpoints
go flat 2 shards-2.yaml
ok $? "and taken up from one file" || diag "$(tail -n 3 flat.said)"
same_bits shards/log.jsonl flat/log.jsonl
ok $? "with the same bits"

go copies 4 copies.yaml
ok $? "whole copies on 4 ranks save whole" || diag "$(tail -n 3 copies.said)"
"$accel" ckpt verify copies/checkpoints >verified 2>&1
ok $? "which is whole, too" || diag "$(cat verified)"
done_testing
