#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: `: >checkpoints/.lock` beside a run ended it with A0823 and an empty name.
# The lock of the checkpoints, emptied, removed or replaced beside a run: it goes on, saves,
# and writes the lock again, so that a second run is refused. One process, without Slurm.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/../t/train.sh"
train_alone
train_config one.yaml NO_SHARD no 1 1 "checkpoint: {every_steps: 20, keep: 1}"
ACCEL_CONFIG=$tap_tmp/one.yaml
export ACCEL_CONFIG
MODEL="--layers 1 --heads 1 --width 16 --seq 16 --batch 1 --sample 0 --data text.txt"
# shellcheck disable=SC2086
timeout "$HANG_S" "$TRAIN" $MODEL --steps 100000000 --out out >run.out 2>&1 &
pid=$!
kill_at_exit $pid
lock=out/checkpoints/.lock
wait_until grep -q 'checkpoint of step 20 saved' run.out
holder=$(cat $lock)

says_again() { # N: it was written again for the Nth time
    [ "$(grep -c 'the checkpoint lock was changed by another process; rewritten' run.out)" -ge "$1" ]
}

: >$lock
wait_until says_again 1
ok $? "emptied: it is written again"
is "$(cat $lock)" "$holder" "with the same words"
rm $lock
wait_until says_again 2
ok $? "removed: so it is"
# shellcheck disable=SC2086
timeout "$HANG_S" "$TRAIN" $MODEL --steps 10 --out out >second.out 2>&1
is $? 69 "a second run is refused"
echo "something else" >new
mv new $lock
wait_until says_again 3
ok $? "replaced by another file: so it is"
kill $pid
wait $pid
is $? 85 "the run saves its state when it is told to stop"
unlike "$(cat run.out)" 'A0823' "nobody took over"
done_testing
