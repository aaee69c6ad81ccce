#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# 8-bit moments in whole trainings of one process: the losses of a GPT-2-shaped model beside
# those of float32 moments after 250 steps, the plan, checkpoints of both forms, and refusals.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
train_alone
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
MODEL="--layers 2 --heads 2 --width 64 --seq 32 --warmup 10 --sample 0 --batch 4 --data text.txt"

# go DIR MOMENTS WORDS
go() {
    train_config "$1.yaml" FULL_SHARD "'no'" 1 1 "precision: {moments: $2}"
    # shellcheck disable=SC2086 # MODEL and WORDS are lists of words
    ACCEL_CONFIG=$1.yaml timeout "$HANG_S" "$TRAIN" $MODEL $3 --out "$1" >"$1.log" 2>&1
}

# near DIR DIR WHAT: their last losses are within 1 %
near() {
    losses "$1/log.jsonl" | tail -n 1 >one
    losses "$2/log.jsonl" | tail -n 1 >two
    paste one two | awk '{ d = $4 / $2 - 1; print "# " $2 " and " $4
        exit !($2 > 0 && d < 0.01 && d > -0.01) }'
    ok $? "$3"
}

for optimizer in adamw lion; do
    go "$optimizer" float32 "--steps 250 --optimizer $optimizer"
    ok $? "$optimizer with float32 moments" || diag "$(tail -n 3 "$optimizer.log")"
    go "${optimizer}8" 8bit "--steps 250 --optimizer $optimizer"
    ok $? "$optimizer with 8-bit moments" || diag "$(tail -n 3 "${optimizer}8.log")"
    near "$optimizer" "${optimizer}8" "after 250 steps within 1 %"
    same_bits "$optimizer/log.jsonl" "${optimizer}8/log.jsonl"
    isnt $? 0 "and they are other numbers"
done
like "$(cat adamw8.log)" 'adam moments +[0-9.]+ KiB +shard, 8-bit' "the plan says so"
kib() { # DIR: of the moments
    awk '/adam moments/ { print $(NF - ($0 ~ /8-bit/ ? 3 : 2)) }' "$1.log"
}
echo "$(kib adamw) $(kib adamw8)" |
    awk '{ print "# " $0; exit !($1 / $2 > 3.5 && $1 / $2 < 3.6) }'
ok $? "9 bytes instead of 32 for four parameters"

go adamw8 float32 "--steps 252"
ok $? "a checkpoint of 8 bit goes on in float32"
like "$(cat adamw8.log)" 'resuming with moments = float32 \(the checkpoint had 8bit\)' "and says so"
go adamw8 8bit "--steps 254"
ok $? "and back in 8-bit form"
like "$(cat adamw8.log)" 'resuming with moments = 8bit \(the checkpoint had float32\): they were rounded' \
    "and says what is lost"

go sgd 8bit "--steps 2 --optimizer sgd"
isnt $? 0 "SGD has no 8-bit moments"
like "$(cat sgd.log)" 'A0902.*8bit, but the optimizer is SGD' "says the error"
go words 4bit "--steps 2"
isnt $? 0 "nor is there another form"
done_testing
