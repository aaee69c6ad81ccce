#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A job that saves its state and exits 85 when preempted comes back by itself, once, and
# ends 0: batch job and bare srun, with and without a grace time, requeued by the srun
# plugin, by rank 0, or by Slurm. What was cancelled does not come back.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

need_plugin
need_stepper
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\n' >two.yaml
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\naccel:\n  preemption:\n    resubmit: false\n' >stay.yaml
# The script ends 0 whatever the step did: its exit code must not decide.
cat >job.sh <<'JOB'
#!/bin/sh
#SBATCH --ntasks=2 --accel-config=two.yaml
srun "$@"
exit 0
JOB

start_running() { # FILE
    wait_until has_steps "$1" || diag "no steps in $1"
}

# Every step once, the first run's with restart 0, the second's with 1.
steps_are_whole() { # FILE
    awk '$1 != NR || $2 < last || $2 > 1 { bad = 1 } { last = $2 }
         END { exit bad || NR < 8 || last != 1 }' "$1" || { diag "$(cat "$1")"; return 1; }
}

preempt() {
    timeout "$HANG_S" srun -p high -n1 --exclusive --accel-config=none true >high.out 2>&1
    ok $? "the job of high priority runs"
}

batch_returns() { # NAME LINE-ERE ARG...
    name=$1 line=$2
    shift 2
    job=$(timeout "$HANG_S" sbatch --parsable -o "$name.out" job.sh "$stepper" "$name.steps" "$@")
    start_running "$name.steps"
    preempt
    wait_for_job "$job" 'COMPLETED|FAILED|CANCELLED'
    is "$(job_state "$job")" COMPLETED "$name: the job comes back and completes"
    is "$(job_field "$job" Restarts)" 1 "$name: one requeue"
    steps_are_whole "$name.steps"
    ok $? "$name: every step once"
    like "$(cat "$name.out")" "$line" "$name: the output says what happened"
}

srun_returns() { # NAME LINE-ERE
    timeout "$HANG_S" srun --accel-config=two.yaml "$stepper" "$1.steps" >"$1.out" 2>&1 &
    pid=$!
    start_running "$1.steps"
    preempt
    wait $pid
    is $? 0 "$1: srun comes back and ends 0"
    steps_are_whole "$1.steps"
    ok $? "$1: every step once"
    like "$(cat "$1.out")" "$2" "$1: the output says what happened"
    is "$(grep -c 'requesting a new allocation' "$1.out")" 1 "$1: one resubmission"
}

cluster_up --nodes 1 --cpus 2 --mode plain --grace 30
mkdir state
batch_returns plugin 'accel: job [0-9]+ was preempted with its state saved \(exit 85\); requeued as restart 1 of at most 100$'
batch_returns rank0 'DUE TO JOB REQUEUE' "requeue=$tap_tmp/state"
is "$(ls state)" "requeue.$job.0" "rank0: one marker, of the first run"
unlike "$(cat rank0.out)" 'accel: job .* requeued' "rank0: the plugin did not ask again"
srun_returns srun 'accel: job [0-9]+ was preempted with its state saved \(exit 85\); requesting a new allocation \(restart 1 of at most 100\)$'

# Told not to.
timeout "$HANG_S" srun --accel-config=stay.yaml "$stepper" stay.steps >stay.out 2>&1 &
pid=$!
start_running stay.steps
preempt
wait $pid
is $? 85 "resubmit: false: srun ends 85"
like "$(cat stay.out)" 'not restarted: accel.preemption.resubmit is false; to continue, run again: srun --accel-config=stay.yaml' \
    "resubmit: false: says why and what to run"
job=$(timeout "$HANG_S" sbatch --parsable --no-requeue -o no.out job.sh "$stepper" no.steps)
start_running no.steps
preempt
wait_for_job "$job" 'COMPLETED|FAILED|PREEMPTED'
is "$(job_field "$job" Restarts)" 0 "--no-requeue: stays away"
like "$(cat no.out)" 'not requeued: it was submitted with --no-requeue' "--no-requeue: says so"

# Cancelled is cancelled.
job=$(timeout "$HANG_S" sbatch --parsable -o cancel.out job.sh "$stepper" cancel.steps "requeue=$tap_tmp/state")
start_running cancel.steps
scancel "$job"
wait_for_job "$job" CANCELLED
is "$(job_field "$job" Restarts)" 0 "scancel: the batch job is not requeued"
timeout "$HANG_S" srun -J cancelme --accel-config=two.yaml "$stepper" cancel2.steps >cancel2.out 2>&1 &
pid=$!
start_running cancel2.steps
scancel -n cancelme
wait $pid
isnt $? 0 "scancel: srun ends"
unlike "$(cat cancel2.out)" 'new allocation' "scancel: srun does not come back"

# A time limit that the warning precedes by more than its length is told.
run_srun --time=1 --accel-config=two.yaml true
is "$(printf '%s\n' "$srun_out" | grep -c 'time limit of 60 s is not longer than accel.preemption.lead_seconds 120')" 1 \
    "a time limit shorter than the lead is told"
run_srun --time=3 --accel-config=two.yaml true
is "$srun_out" "" "a longer one is not"

# In salloc the allocation is the user's: the command is named.
timeout "$HANG_S" salloc -Q -n2 srun --accel-config=two.yaml "$stepper" salloc.steps >salloc.out 2>&1 &
pid=$!
start_running salloc.steps
preempt
wait $pid
like "$(cat salloc.out)" 'not restarted: srun did not create the allocation; to continue, run again: srun --accel-config=two.yaml' \
    "salloc: the command to run again"
no_node_drained
ok $? "no node is drained"
cluster_down

cluster_up --nodes 1 --cpus 2 --mode plain --grace 0
batch_returns grace0 '.'
srun_returns srun0 'accel: job [0-9]+ was preempted with its state saved \(exit 85\); requesting a new allocation \(restart 1 of at most 100\)$'
done_testing
