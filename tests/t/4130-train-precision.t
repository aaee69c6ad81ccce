#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The precision policy: compute and wire of the gradients in float32, bfloat16 or float16, each
# for itself. Losses within 1e-2 of float32 over 30 steps, the plan's bytes as they must be; what
# is not supported says so.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/train.sh"
need_plugin

MODEL="--layers 2 --heads 2 --width 32 --seq 32 --steps 30 --warmup 5 --sample 0 --batch 4"
tap_tmpdir
train_text "$tap_tmp/text.txt"
cluster_up --nodes 1

# go NAME PRECISION REDUCE STRATEGY
go() {
    train_config "$tap_tmp/$1.yaml" "$4" "$2" 2 1 "precision: {reduce: $3}"
    # shellcheck disable=SC2086 # MODEL is a list of words
    run_srun --accel-config="$tap_tmp/$1.yaml" "$TRAIN" $MODEL \
        --data "$tap_tmp/text.txt" --out "$tap_tmp/$1"
}

wire() { # CONFIG: planned bytes of a step
    "$ACCEL_BUILD/accel" plan "$tap_tmp/$1.yaml" --ranks 2 --nodes 1 --json 2>/dev/null |
        sed -n 's/.*"sent_bytes_per_rank_and_step": *\([0-9]*\).*/\1/p' | head -n1
}

go wide no auto FULL_SHARD
ok $? "float32" || bail_out "train does not run"
go same no float32 FULL_SHARD
same_bits "$tap_tmp/wide/log.jsonl" "$tap_tmp/same/log.jsonl"
ok $? "reduce: float32 is what float32 does by itself"
for case in "half bf16 auto" "wide-sums bf16 float32" "narrow-wire no bf16"; do
    # shellcheck disable=SC2086 # three words
    set -- $case
    go "$1" "$2" "$3" FULL_SHARD
    ok $? "mixed_precision $2, reduce $3"
    close_losses "$tap_tmp/wide/log.jsonl" "$tap_tmp/$1/log.jsonl" 30 1e-2 "near float32"
done
same_bits "$tap_tmp/half/log.jsonl" "$tap_tmp/wide-sums/log.jsonl"
isnt $? 0 "the wire of the gradients is not that of the parameters"
# Fewer digits on the wire: a bound for each, and the same bits again.
for case in "sixteen bf16 fp16 1e-2" "eight no e4m3 2e-3" "five no e5m2 2e-3"; do
    # shellcheck disable=SC2086 # four words
    set -- $case
    go "$1" "$2" "$3" FULL_SHARD
    ok $? "mixed_precision $2, reduce $3"
    close_losses "$tap_tmp/wide/log.jsonl" "$tap_tmp/$1/log.jsonl" 30 "$4" "near float32"
done
same_bits "$tap_tmp/wide/log.jsonl" "$tap_tmp/eight/log.jsonl"
isnt $? 0 "e4m3 is what it says"
go again no e4m3 FULL_SHARD
same_bits "$tap_tmp/eight/log.jsonl" "$tap_tmp/again/log.jsonl"
ok $? "e4m3 twice: the same bits"
planned=$(wire eight)
[ "${planned:-0}" -lt "$(wire narrow-wire)" ] && [ "$planned" -gt "$(wire half)" ]
ok $? "e4m3: $planned bytes planned, float32 parameters among them"
for name in wide half wide-sums narrow-wire; do
    eval "$(echo "$name" | tr - _)=$(wire "$name")"
done
# shellcheck disable=SC2154 # set by eval
[ "${wide:-0}" -gt 0 ] && [ "$wide" -eq $((2 * half)) ] && [ "$wide_sums" -gt "$half" ] &&
    [ "$narrow_wire" -gt "$half" ] && [ $((wide_sums + narrow_wire)) -eq $((wide + half)) ]
ok $? "planned bytes: $wide, $half, $wide_sums, $narrow_wire" || diag "of a step"

# Whole copies, whose gradients alone travel.
go copies no auto NO_SHARD
ok $? "whole copies"
for case in "copies2 bf16 1e-2" "copies8 e5m2 2e-2"; do
    # shellcheck disable=SC2086 # three words
    set -- $case
    go "$1" no "$2" NO_SHARD
    ok $? "whole copies, reduce $2"
    close_losses "$tap_tmp/copies/log.jsonl" "$tap_tmp/$1/log.jsonl" 30 "$3" "near float32"
done
same_bits "$tap_tmp/copies/log.jsonl" "$tap_tmp/copies2/log.jsonl"
isnt $? 0 "bf16 is what it says"
[ "$(wire copies)" -gt 0 ] && [ "$(wire copies)" -eq $((2 * $(wire copies2))) ]
ok $? "half the bytes"
# Two bytes as in bf16, but with a scale per 128 gradients.
for strategy in FULL_SHARD NO_SHARD; do
    go "fp16-$strategy" fp16 auto $strategy
    ok $? "fp16, $strategy"
    close_losses "$tap_tmp/wide/log.jsonl" "$tap_tmp/fp16-$strategy/log.jsonl" 30 1e-2 "near float32"
done
[ "$(wire fp16-FULL_SHARD)" -gt "$half" ] && [ "$(wire fp16-FULL_SHARD)" -lt "$wide_sums" ]
ok $? "$(wire fp16-FULL_SHARD) bytes planned"
# Linears in fp8, all else as in bf16: the same bytes.
go fp8 fp8 auto FULL_SHARD
ok $? "fp8"
close_losses "$tap_tmp/wide/log.jsonl" "$tap_tmp/fp8/log.jsonl" 30 2e-2 "near float32"
same_bits "$tap_tmp/half/log.jsonl" "$tap_tmp/fp8/log.jsonl"
isnt $? 0 "fp8 is not bf16"
is "$(wire fp8)" "$half" "planned bytes are those of bf16"
cluster_down
done_testing
