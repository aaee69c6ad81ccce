#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: srun ended with 143 in place of 75 or 85 under load, and a warned run did not come back.
# A rank that takes longer to end than the others, once all is saved: the first one to end
# with 75 or 85 makes srun send the rest SIGTERM (kill-on-bad-exit). srun still ends with the
# code of the stop, and a run that is to go on does.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/../t/train.sh"
need_plugin
failcall=$ACCEL_BUILD/tests/faults/.libs/failcall.so
[ -r "$failcall" ] || skip_all "the fault injector is not built"
! built_with_sanitizer || skip_all "a sanitizer build cannot preload"
train_alone
train_config two.yaml NO_SHARD no 2 1 "checkpoint: {every_steps: 1000000000}"
MODEL="--layers 1 --heads 1 --width 16 --seq 16 --batch 1 --sample 0 --data text.txt --steps 100000000"
cluster_up --nodes 1 --cpus 2 --mode plain --kill-wait 60

begin() { # NAME RANK: as $pid
    # shellcheck disable=SC2086
    timeout -s KILL "$HANG_S" env --default-signal=INT srun --accel-config=two.yaml env FAILCALL_LEAVE="$1.leaves" \
        FAILCALL_RANK="$2" LD_PRELOAD="$failcall" "$TRAIN" $MODEL --out "$1" >"$1.out" 2>&1 </dev/null &
    limit=$!
    wait_for_step "$1/log.jsonl" 25 || diag "$(cat "$1.out")"
    read -r pid <"/proc/$limit/task/$limit/children"
    kill_at_exit "$pid"
}

for rank in 0 1; do
    begin stop$rank $rank
    kill -TERM "$pid"
    wait $limit
    is $? 75 "SIGTERM to srun, rank $rank ends late: 75" || diag "$(cat stop$rank.out)"
    [ -e stop$rank.leaves ]
    ok $? "it did end late"
    like "$(cat stop$rank.out)" 'Terminating StepId' "and was told to end by srun"
done

begin again 1
job=$(timeout "$HANG_S" squeue -h -o %A)
timeout "$HANG_S" scancel -s USR1 "$job.0"
second_life() {
    [ -e again.leaves ] && grep -q 'requesting a new allocation' again.out && grep -q 'resumed' again.out
}
wait_until second_life
ok $? "the warning, rank 1 ends late: srun asks for a new allocation, and the run goes on" ||
    diag "$(cat again.out)"
like "$(cat again.out)" "job $job stopped with its state saved \\(exit 85\\)" "as its code is that of the stop"
kill -TERM "$pid"
wait $limit
is $? 75 "until somebody ends it"
no_node_drained
ok $? "no node is drained"
done_testing
