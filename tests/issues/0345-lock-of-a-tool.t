#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: a run that started beside `accel ckpt repair` ended with 69 and named a dead process.
# A tool that changes the checkpoints writes its name into the lock. A run that starts meanwhile
# says whom it waits for, begins when the tool has ended, and a stop ends the wait:
# the run asks to be started again.
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
timeout "$HANG_S" "$TRAIN" $MODEL --steps 1 >first.out 2>&1 || bail_out "no first life: $(cat first.out)"
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
    wait_until not flock -n "$lock" true
}
not() { ! "$@"; }

held
# shellcheck disable=SC2086
timeout "$HANG_S" "$TRAIN" $MODEL --steps 2 >run.out 2>&1 &
run=$!
kill_at_exit $run
wait_until grep -q 'waiting for accel ckpt on ' run.out
ok $? "a run says whom it waits for"
: >end
wait $holder
wait $run
is $? 0 "and begins when the tool has ended"
unlike "$(cat $lock)" '^accel ckpt' "with its own line in the lock"

# stop_waiting OUTPUT COMMAND...: the run of COMMAND is told to stop while it waits; $? is its code.
stop_waiting() {
    waiting=$1
    shift
    held
    timeout -k 5 "$HANG_S" "$@" >"$waiting" 2>&1 &
    run=$!
    kill_at_exit $run
    wait_until grep -q 'waiting for accel ckpt on ' "$waiting"
    kill -TERM "$(pgrep -P $run)"
    wait $run
    code=$?
    : >end
    wait $holder
    return $code
}
passes "another tool" "$ACCEL_BUILD/accel" ckpt repair out
# shellcheck disable=SC2086
stop_waiting run.out "$TRAIN" $MODEL --steps 3
is $? 85 "a stop ends the wait, and the run wants to come back"
like "$(cat run.out)" 'accel: stopped \(.*\); no step was done: out/checkpoints: a tool is using this directory: accel ckpt on .*, process [0-9]+$' \
    "it names the tool"
like "$(tail -1 out/checkpoints/history)" ' restart=0 stop signal=SIGTERM seconds=[0-9.]+ reason=' \
    "the history has the stop"
like "$(cat $lock)" '^accel ckpt on' "the tool's line stays"
# shellcheck disable=SC2086
passes "the next life goes on" timeout "$HANG_S" "$TRAIN" $MODEL --steps 3
is "$(grep -c '"step"' out/log.jsonl)" 3 "and each step is there once"

if command -v mpirun >/dev/null 2>&1; then
    passes "another tool" "$ACCEL_BUILD/accel" ckpt repair out
    train_config two.yaml FULL_SHARD no 2 1 "checkpoint: {every_steps: 1}"
    # shellcheck disable=SC2086
    stop_waiting run.out "$ACCEL_BUILD/accel" launch --config two.yaml -n 2 "$TRAIN" $MODEL --steps 4
    is $? 85 "two ranks: both stop"
    is "$(grep -c 'stopped (' run.out)" 1 "and one says so"
else
    skip 3 "mpirun is not installed"
fi

# A life that only waited is a restart, too: a job that is requeued for ever ends.
train_config limit.yaml NO_SHARD no 1 1 "checkpoint: {every_steps: 1}" "preemption: {max_restarts: 1}"
ACCEL_CONFIG=limit.yaml SLURM_JOB_ID=7
export SLURM_JOB_ID
# shellcheck disable=SC2086
passes "a job's first life" timeout "$HANG_S" "$TRAIN" $MODEL --steps 4
passes "another tool" "$ACCEL_BUILD/accel" ckpt repair out
# shellcheck disable=SC2086
SLURM_RESTART_COUNT=1 stop_waiting run.out "$TRAIN" $MODEL --steps 5
is $? 85 "its second life is stopped while it waits"
# shellcheck disable=SC2086
SLURM_RESTART_COUNT=2 stop_waiting run.out "$TRAIN" $MODEL --steps 5
is $? 75 "its third life, where one restart is allowed"
contains "$(cat run.out)" 'error[A0921]: out/checkpoints: this is restart 2 of job 7' "it names the limit"
done_testing
