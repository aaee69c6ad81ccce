#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The lives of a training: every event has its line, restarts are counted beside the
# checkpoints and limited, times that are too short for a checkpoint are told, a suspended
# job goes on where it was, and after the loss of a node the old life saves no more.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
need_plugin
[ -x "$TRAIN" ] || skip_all "examples/train is not built"
STEPS=300
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
train_text text.txt
train_config two.yaml FULL_SHARD bf16 2 1 "checkpoint: {every_steps: 50}" "preemption: {max_restarts: 1}"
cat >job.sh <<'JOB'
#!/bin/sh
exec srun "$@"
JOB
MODEL="--layers 2 --heads 4 --width 64 --seq 64 --batch 8 --steps $STEPS --sample 0 --data text.txt"

submit() { # NAME [OPTION]...: sets $job
    name=$1
    shift
    # shellcheck disable=SC2086
    job=$(timeout "$HANG_S" sbatch --parsable --accel-config=two.yaml -N1 -o "$name.out" "$@" job.sh \
        "$TRAIN" $MODEL --out "$name")
    wait_for_step "$name/log.jsonl" 5
    ok $? "$name: runs"
}

starts() { # NAME N: N lives began
    [ "$(grep -c ' start ' "$1/checkpoints/history")" = "$2" ]
}

tasks_of() { # JOB: pids
    grep -lzx "SLURM_JOB_ID=$1" /proc/[0-9]*/environ 2>/dev/null | while IFS=/ read -r _ _ p _; do
        [ "$(cat "/proc/$p/comm" 2>/dev/null)" = train ] && echo "$p"
    done
}

finished() { # NAME
    each_step_once "$1/log.jsonl" $STEPS
    ok $? "$1: every step once"
    same_bits reference/log.jsonl "$1/log.jsonl"
    ok $? "$1: the bits of the uninterrupted run"
}

cluster_up --nodes 2 --cpus 2 --mode plain --kill-wait 3 --set SlurmdTimeout=5
# shellcheck disable=SC2086
run_srun -N1 --accel-config=two.yaml "$TRAIN" $MODEL --out reference
ok $? "the uninterrupted run" || bail_out "the trainer does not run"
unlike "$srun_out" 'a checkpoint takes' "nothing to say about its times"

# One restart is allowed: the second stop is the last.
submit twice
timeout "$HANG_S" scancel -s USR1 "$job"
wait_until starts twice 2
ok $? "it comes back"
wait_for_job "$job" RUNNING
timeout "$HANG_S" scancel -s USR1 "$job"
wait_for_job "$job" FAILED
ok $? "the second stop is the last one" || diag "$(cat twice.out)"
is "$(job_field "$job" ExitCode)" 75:0 "with exit code 75"
is "$(job_field "$job" Restarts)" 1 "after one restart"
out=$(cat twice.out)
for line in 'received SIGUSR1: saving step [0-9]+' 'checkpoint of step [0-9]+ saved in ' \
    'accel: stopped \(warned\); the state of step [0-9]+ is saved in twice/checkpoints' \
    "restart 1 of at most 1 of job $job \\(warned\\)" 'resumed from .*: step [0-9]+,' \
    'not restarted: accel.preemption.max_restarts is reached; submit the job again to resume'; do
    like "$out" "$line" "line: $line"
done
like "$(cat twice/checkpoints/history)" \
    "^[-0-9T:]+Z job=$job of=$job restart=0 stop step=[0-9]+ signal=SIGUSR1 seconds=[0-9.]+ reason=warned$" \
    "the history says it, too"
# The same job once more, by hand: one restart too many, before anything is changed.
timeout "$HANG_S" scontrol requeue "$job"
wait_until grep -q 'this is restart 2' twice.out
ok $? "a restart beyond the limit is refused" || diag "$(tail -n 5 twice.out)"
like "$(cat twice.out)" "this is restart 2 of job $job, but accel.preemption.max_restarts is 1" "with the numbers"

# A new job counts from 0. What the last one measured is held against the site's times.
echo '2026-01-01T00:00:00Z job=1 of=1 restart=0 save step=1 seconds=200.000' >>twice/checkpoints/history
# shellcheck disable=SC2086
run_srun -N1 --accel-config=two.yaml "$TRAIN" $MODEL --out twice
ok $? "a new job goes on"
finished twice
like "$srun_out" 'a checkpoint takes 200.0 s, but partition low has GraceTime 30 s: ' "a short GraceTime is told"
like "$srun_out" 'a checkpoint takes 200.0 s, but accel.preemption.lead_seconds is 120: ' "so is a short lead"
timeout "$HANG_S" scontrol update PartitionName=low GraceTime=0
echo '2026-01-01T00:00:00Z job=1 of=1 restart=0 save step=1 seconds=9.000' >>twice/checkpoints/history
# shellcheck disable=SC2086
run_srun -N1 --accel-config=two.yaml "$TRAIN" $MODEL --out twice
like "$srun_out" "takes 9.0 s, but partition low has no GraceTime and the cluster's KillWait is 3 s: " \
    "and a short KillWait"

# A warning of the user's own, before the program can handle it, ends the task: it comes back.
# shellcheck disable=SC2016
run_srun --signal=USR1@120 -n2 -N1 --accel-config=two.yaml sh -c '[ "$ACCEL_RESTART_COUNT" != 0 ] || kill -USR1 $$'
ok $? "a signal at the very start ends well"
like "$srun_out" 'was told to stop while starting \(exit 138\); requesting a new allocation \(restart 1 of at most 1\)$' \
    "because srun asks again"

# Slurm gives the node of a job up whose tasks live on; they wake when the next life runs.
submit lost
node=$(job_field "$job" BatchHost)
lost=$(tasks_of "$job")
for p in $(tasks_of "$job"); do kill -STOP "$p"; done
kill -9 "$(pgrep -f "slurmd -D -N $node -f $cluster_dir/")"
wait_until starts lost 2
ok $? "lost: Slurm starts the job again on another node" || diag "$(scontrol show job "$job")"
for p in $lost; do kill -CONT "$p"; done
wait_for_job "$job" COMPLETED
ok $? "lost: and it completes"
is "$(job_field "$job" Restarts)" 1 "lost: after one restart"
finished lost
still_there() {
    for p in $lost; do [ -d "/proc/$p" ] && [ "$(cat "/proc/$p/comm")" = train ] && return 1; done
    return 0
}
wait_until still_there
ok $? "lost: the old life ended by itself"
cluster_down

# Suspended for longer than the deadline of a collective: nobody notices.
cluster_up --nodes 1 --cpus 2 --mode plain --set PreemptMode=SUSPEND,GANG \
    --set 'PartitionName=DEFAULT OverSubscribe=FORCE:1'
ACCEL_COMM_TIMEOUT_MS=5000
export ACCEL_COMM_TIMEOUT_MS
submit suspended
timeout "$HANG_S" srun -p high -n2 --accel-config=none sleep 8
ok $? "the job of high priority ran meanwhile"
isnt "$(job_field "$job" SuspendTime)" None "suspended: Slurm says so"
wait_for_job "$job" COMPLETED
ok $? "suspended: completes" || diag "$(cat suspended.out)"
is "$(job_field "$job" Restarts)" 0 "suspended: without a restart"
starts suspended 1
ok $? "suspended: in one life"
finished suspended
done_testing
