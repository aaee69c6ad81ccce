#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A preempted job whose notice is too short for the shared disk saves on its node; requeued, it
# copies that to the shared directory and goes on from the very step, with the bits of the
# uninterrupted run.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
need_plugin
[ -x "$TRAIN" ] || skip_all "examples/train is not built"
! built_with_sanitizer || skip_all "sanitizers and LD_PRELOAD exclude each other"
shim=$ACCEL_BUILD/tests/faults/.libs/failcall.so
[ -r "$shim" ] || skip_all "tests/faults/failcall is not built"
STEPS=300
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
train_text text.txt
train_config two.yaml FULL_SHARD bf16 2 1 "checkpoint: {every_steps: 100, local_dir: $tap_tmp/node}"
MODEL="--layers 2 --heads 4 --width 64 --seq 64 --batch 8 --steps $STEPS --sample 0 --data text.txt"
cat >job.sh <<'JOB'
#!/bin/sh
exec srun env LD_PRELOAD="$SHIM" "$@"
JOB

cluster_up --nodes 1 --cpus 2 --mode plain --kill-wait 6
timeout "$HANG_S" scontrol update PartitionName=low GraceTime=6
# shellcheck disable=SC2086
run_srun -N1 --accel-config=two.yaml "$TRAIN" $MODEL --out reference
ok $? "the uninterrupted run" || bail_out "the trainer does not run"

SHIM=$shim FAILCALL_SLOW=8000 FAILCALL_SLOW_FROM=30000 FAILCALL_SLOW_PATH=/run/checkpoints/
export SHIM FAILCALL_SLOW FAILCALL_SLOW_FROM FAILCALL_SLOW_PATH
# shellcheck disable=SC2086
job=$(timeout "$HANG_S" sbatch --parsable --accel-config=two.yaml -N1 -o run.out job.sh \
    "$TRAIN" $MODEL --out run)
wait_for_step run/log.jsonl 40
ok $? "it runs"
high=$(timeout "$HANG_S" sbatch --parsable -p high --exclusive -o /dev/null --wrap true)
wait_for_job "$high" COMPLETED
ok $? "a job of higher priority had the node in between"
wait_for_job "$job" COMPLETED
ok $? "it came back and completed" || diag "$(tail -n 20 run.out)"
is "$(job_field "$job" Restarts)" 1 "after one restart"
step=$(sed -n 's/.*; the state of step \([0-9]*\) is saved in .* on the nodes$/\1/p' run.out)
[ "${step:-0}" -ge 40 ] && [ "$step" -lt $STEPS ]
ok $? "stopped in the middle, saved on the node (step ${step:-none})" || diag "$(cat run.out)"
for line in "received SIG[A-Z0-9]*: saving step $step on the nodes \\(about [0-9.]+ s, in place of one of " \
    "the checkpoint of step $step was on the nodes: copied to run/checkpoints in " \
    "resumed from run/checkpoints/step_0*$step: step $step,"; do
    like "$(cat run.out)" "$line" "line: $line"
done
each_step_once run/log.jsonl $STEPS
ok $? "every step once"
same_bits reference/log.jsonl run/log.jsonl
ok $? "the bits of the uninterrupted run"
is "$(find node -name 'rank_*' | wc -l)" 0 "nothing is left on the node"
done_testing
