#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Two runs never write into one checkpoint directory: the second is refused and names the
# first. A holder that died is no obstacle; one that a later incarnation of its own job
# pushed aside saves no more. One process each, without Slurm.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
train_alone
train_config one.yaml NO_SHARD no 1 1 "checkpoint: {every_steps: 20}"
ACCEL_CONFIG=$tap_tmp/one.yaml
export ACCEL_CONFIG
MODEL="--layers 1 --heads 2 --width 32 --seq 32 --batch 2 --sample 0 --data text.txt"
pids=
stop_all() {
    for p in $pids; do
        kill "$p" 2>/dev/null # timeout passes it on; the run saves and ends
    done
}
at_exit stop_all

# start OUT LOG [VAR=VALUE]...: a run without an end, in the background as $pid
start() {
    start_out=$1 start_log=$2
    shift 2
    # shellcheck disable=SC2086
    env "$@" timeout "$HANG_S" "$TRAIN" $MODEL --steps 100000000 --out "$start_out" >"$start_log" 2>&1 &
    pid=$!
    pids="$pids $pid"
}

start a a.1
first=$pid
wait_for_step a/log.jsonl 25
ok $? "the first run is at work"
start a a.2
wait $pid
is $? 69 "a second run in the same directory is refused"
like "$(cat a.2)" "another run is using this directory: a process without a job on .*, process [0-9]+, since " \
    "it names the first"
kill -0 "$first"
ok $? "the first run goes on"
kill -9 "$(sed -n 's/.* process \([0-9]*\), since.*/\1/p' a/checkpoints/.lock)"
wait "$first"
start a a.3
wait_until grep -q 'resumed from' a.3
ok $? "after kill -9 of the process it named the next run goes on"
kill "$pid"
wait "$pid"
is $? 85 "and saves its state when it is told to stop"

start b b.1 SLURM_JOB_ID=7
first=$pid
wait_for_step b/log.jsonl 25
start b b.2 SLURM_JOB_ID=8 SLURM_RESTART_COUNT=1
wait $pid
is $? 69 "another job is refused"
like "$(cat b.2)" "using this directory: job 7 \\(restart 0\\) on " "it names the job"
start b b.3 SLURM_JOB_ID=7 SLURM_RESTART_COUNT=1
wait "$first"
is $? 69 "a later incarnation of the same job takes over; the earlier one saves no more"
like "$(cat b.1)" "a later attempt of this job took over: job 7 \\(restart 1\\)" "and says why"
wait_until grep -q 'resumed from' b.3
ok $? "the later one goes on from the last checkpoint"
like "$(cat b.3)" "an earlier attempt of this job is still running \\(job 7 \\(restart 0\\)" "it says whom it pushed aside"
kill "$pid"
wait "$pid"
is $? 85 "it is the one that can save"
done_testing
