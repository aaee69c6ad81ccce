#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# fp16 in whole trainings of one process: the losses of a GPT-2-shaped model beside bf16's
# after 100 steps, the plan, a loss scale that must fall first, and a resume in another precision.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
train_alone
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
MODEL="--layers 2 --heads 2 --width 64 --seq 32 --warmup 10 --sample 0 --batch 4 --data text.txt"

# go DIR PRECISION WORDS [LINE]: LINE goes below "accel:"
go() {
    train_config "$1.yaml" FULL_SHARD "$2" 1 1 ${4:+"$4"}
    # shellcheck disable=SC2086 # MODEL and WORDS are lists of words
    ACCEL_CONFIG=$1.yaml timeout "$HANG_S" "$TRAIN" $MODEL $3 --out "$1" >"$1.log" 2>&1
}

last_loss() { # DIR
    losses "$1/log.jsonl" | awk 'END { print $2 }'
}

go bf16 bf16 "--steps 100"
ok $? "bf16" || diag "$(tail -n 3 bf16.log)"
go fp16 fp16 "--steps 100"
ok $? "fp16" || diag "$(tail -n 3 fp16.log)"
echo "$(last_loss fp16) $(last_loss bf16)" |
    awk '{ d = $1 / $2 - 1; print "# " $1 " and " $2; exit !(d < 0.01 && d > -0.01) }'
ok $? "after 100 steps within 1 % of bf16's"
same_bits bf16/log.jsonl fp16/log.jsonl
isnt $? 0 "and it is another precision"
sed -n 's/.*"step_ms":\([0-9.]*\),"tokens_per_s":\([0-9.]*\),.*/\1 \2/p' bf16/log.jsonl |
    awk '{ t = $1 * $2 / 1000; near += t > 127 && t < 129 } END { exit near != 100 }'
ok $? "the log's tokens per second are 4 samples of 32 in the time of a step"
like "$(cat fp16.log)" 'precision +fp16 compute and wire, loss scaled' "the plan says so"

go high fp16 "--steps 12" "precision: {loss_scale_init_scale: 1e12}"
ok $? "a loss scale that is far too high"
like "$(cat high.log)" 'overflow at a loss scale of 1e\+12; the step is skipped' "is lowered step by step"
go high bf16 "--steps 14"
ok $? "a checkpoint of fp16 goes on in bf16"
like "$(cat high.log)" 'resuming with mixed_precision = bf16 \(the checkpoint had fp16\)' "and says so"
go high fp16 "--steps 16"
ok $? "and back in fp16"

cp "$ACCEL_SRC/examples/sample.txt" .
timeout "$HANG_S" "$ACCEL_BUILD/accel" launch --config fp16.yaml -n 1 "$ACCEL_BUILD/examples/minimal" \
    >minimal.log 2>&1
ok $? "the shortest example by accel launch" || diag "$(tail -n 3 minimal.log)"
like "$(cat minimal.log)" 'precision +fp16 ' "in fp16"
done_testing
