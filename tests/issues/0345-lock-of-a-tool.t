#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: a run that started beside `accel ckpt repair` ended with 69 and named a dead process.
# A tool that changes the checkpoints writes its name into the lock. A run that starts meanwhile
# says whom it waits for, begins when the tool has ended, and a stop ends the wait.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/../t/train.sh"
need_program flock
train_alone
train_config c.yaml NO_SHARD no 1 1 "checkpoint: {every_steps: 1}"
ACCEL_CONFIG=$tap_tmp/c.yaml
export ACCEL_CONFIG
MODEL="--layers 1 --heads 1 --width 16 --seq 16 --batch 1 --sample 0 --data text.txt --out out"
# shellcheck disable=SC2086
timeout 60 "$TRAIN" $MODEL --steps 1 >first.out 2>&1 || bail_out "no first life: $(cat first.out)"
lock=out/checkpoints/.lock
passes "repair" "$ACCEL_BUILD/accel" ckpt repair out
like "$(cat $lock)" '^accel ckpt on .*, process [0-9]+$' "the tool has written who it is"

# Stands in for a tool that takes long: the lock and its line, until `end` is there.
held() {
    rm -f end
    mkfifo end
    flock "$lock" sh -c 'cat end' >held.out &
    holder=$!
    kill_at_exit $holder
    wait_until 20 not flock -n "$lock" true
}
not() { ! "$@"; }

held
# shellcheck disable=SC2086
timeout 120 "$TRAIN" $MODEL --steps 2 >run.out 2>&1 &
run=$!
kill_at_exit $run
wait_until 60 grep -q 'waiting for accel ckpt on ' run.out
ok $? "a run says whom it waits for"
: >end
wait $holder
wait $run
is $? 0 "and begins when the tool has ended"
unlike "$(cat $lock)" '^accel ckpt' "with its own line in the lock"

passes "another tool" "$ACCEL_BUILD/accel" ckpt repair out
held
# shellcheck disable=SC2086
timeout 120 "$TRAIN" $MODEL --steps 3 >run.out 2>&1 &
run=$!
kill_at_exit $run
wait_until 60 grep -q 'waiting for accel ckpt on ' run.out
kill -TERM "$(pgrep -P $run)"
wait $run
is $? 69 "a stop ends the wait"
contains "$(cat run.out)" "error[A0822]: out/checkpoints: a tool is using this directory: accel ckpt on" "the error names the tool"
: >end
wait $holder
done_testing
