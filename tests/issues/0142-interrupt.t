#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: Ctrl-C without Slurm ended a run without saving its last step.
# Ctrl-C without Slurm: the first one saves and ends, the second one ends at once, and says
# before what is kept. Before the first step, and where nothing is saved, one is enough. A
# program's own handler, and an ignored SIGINT, stay as they are.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/../t/train.sh"
train_alone
train_config save.yaml NO_SHARD no 1 1 "checkpoint: {every_steps: 20, keep: 1}"
train_config nosave.yaml NO_SHARD no 1 1 "checkpoint: {save: false}"
train_config off.yaml NO_SHARD no 1 1 "preemption: {enabled: false}"
MODEL="--layers 1 --heads 1 --width 16 --seq 16 --batch 1 --sample 0 --data text.txt "

# start CONFIG NAME [WORD]...: in the background as $pid. (A shell's background jobs ignore
# SIGINT unless told otherwise.)
start() {
    start_config=$1 name=$2
    shift 2
    # shellcheck disable=SC2086
    ACCEL_CONFIG=$start_config env --default-signal=INT "$@" "$TRAIN" $MODEL --steps 100000000 --out "$name" \
        >"$name.out" 2>&1 &
    pid=$!
    kill_at_exit $pid KILL
    wait_for_step "$name/log.jsonl" 25 || diag "$(cat "$name.out")"
}

not_running() {
    [ -z "$(holders_of "$tap_tmp" environ | xargs -r grep -lz -e '^ACCEL_RANK=' 2>/dev/null)" ]
}

start save.yaml one
kill -INT $pid
wait $pid
is $? 75 "the first Ctrl-C: saved, and nobody runs it again"
step=$(last_step one/log.jsonl)
like "$(cat one.out)" "stopped \\(interrupted\\); the state of step $step is saved in one/checkpoints" \
    "the last step is saved"
like "$(cat one.out)" 'run the same command to resume' "it says how to go on"
like "$(cat one.out)" 'interrupted: saving at the end of step [0-9]+; press Ctrl-C again to end at once \(the checkpoint of step [0-9]*0 is kept' \
    "it says what the second one would keep"
like "$(cat one/checkpoints/history)" ' stop step=[0-9]+ signal=SIGINT .*reason=interrupted' "the history has it"

# The save that the first one asked for hangs: the second one does not wait for it.
failcall=$ACCEL_BUILD/tests/faults/.libs/failcall.so
if [ -r "$failcall" ] && ! built_with_sanitizer; then
    train_config never.yaml NO_SHARD no 1 1 "checkpoint: {every_steps: 1000000000}"
    start never.yaml one FAILCALL_PATH=/.tmp-step_ FAILCALL_AT=2 FAILCALL_HOW=hang FAILCALL_SEEN=hangs "LD_PRELOAD=$failcall"
    wait_until _has_step one/log.jsonl $((step + 25)) || diag "$(cat one.out)"
    kill -INT $pid
    wait_until [ -e hangs ]
    like "$(cat one.out)" "press Ctrl-C again to end at once \(the checkpoint of step $step is kept" \
        "the first Ctrl-C says what the second one would keep"
    kill -INT $pid
    wait $pid
    is $? 130 "the second one ends at once, in the middle of the save"
    # shellcheck disable=SC2086
    ACCEL_CONFIG=save.yaml timeout "$HANG_S" "$TRAIN" $MODEL --steps $((step + 1)) --out one >again.out 2>&1
    like "$(cat again.out)" "resumed from .*: step $step" "and that is what the next run goes on from"
else
    skip 3 "the fault injector is not built, or this is a sanitizer build"
fi

# Nothing to save: one is enough.
for config in nosave off; do
    start $config.yaml $config
    kill -INT $pid
    wait $pid
    is $? 130 "$config: the first one ends at once"
done

# A shell's background job, which ignores it.
start save.yaml ignored --ignore-signal=INT
kill -INT $pid
step=$(last_step ignored/log.jsonl)
wait_until _has_step ignored/log.jsonl $((step + 50))
ok $? "where SIGINT is ignored it stays so"
kill -TERM $pid
wait $pid
is $? 85 "SIGTERM: saved, to be run again"

# accel launch and two ranks: a terminal's Ctrl-C goes to all of their process group; SIGTERM
# to accel launch alone. mpirun would kill the ranks a second later.
if ! command -v mpirun >/dev/null 2>&1; then
    skip 7 "mpirun is not installed"
    done_testing
fi
train_config two.yaml NO_SHARD no 2 1 "checkpoint: {every_steps: 1000000000}"
launch() { # OUT: $pid leads a process group
    # shellcheck disable=SC2086
    setsid env --default-signal=INT "$ACCEL_BUILD/accel" launch --config two.yaml -n 2 \
        "$TRAIN" $MODEL --steps 100000000 --out "$1" >"$1.out" 2>&1 &
    pid=$!
    kill_group_at_exit $pid KILL
    wait_for_step "$1/log.jsonl" 25 || diag "$(cat "$1.out")"
}
launch group
env kill -s INT -- "-$pid"
wait $pid
is $? 75 "accel launch: Ctrl-C: saved, and nobody runs it again"
like "$(cat group.out)" "stopped \\(interrupted\\); the state of step $(last_step group/log.jsonl) is saved" \
    "accel launch: the last step is saved"
launch term
kill -TERM $pid
wait $pid
is $? 85 "accel launch: SIGTERM: saved, to be run again"
like "$(cat term.out)" "; the state of step $(last_step term/log.jsonl) is saved" \
    "accel launch: the last step is saved"
launch usr1
kill -USR1 $pid
wait $pid
is $? 85 "accel launch: SIGUSR1: saved, to be run again"
launch killed
kill -9 $pid
wait $pid
wait_until grep -q '; the state of step [0-9]* is saved' killed.out
ok $? "accel launch: killed, its ranks save and end"
wait_until not_running
ok $? "and nothing is left"
done_testing
