#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The promise of the project: a run that is preempted in the middle, as sbatch and as bare
# srun, with GraceTime and without, told by the warning signal or by SIGTERM, comes back by
# itself, ends 0, and its log holds every step once with the bits of the uninterrupted run. So
# does a run after kill -9 of one rank and a rerun by hand. With ACCEL_LONG_TESTS=1 each way to
# start meets each way to be told; without, every one of them is there once (6130 has all, with
# tasks that do not train).
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/train.sh"
need_plugin

STEPS=400
tap_tmpdir
train_text "$tap_tmp/text.txt"
train_config "$tap_tmp/fsdp.yaml" FULL_SHARD bf16 2 1 "checkpoint: {every_steps: 100}"
train_args() { # OUT
    echo "$TRAIN --layers 2 --heads 4 --width 64 --seq 64 --batch 8 --steps $STEPS" \
        "--sample 0 --data $tap_tmp/text.txt --out $tap_tmp/$1"
}

# Takes the whole node in the high partition for a moment, once the run NAME is at work,
# and waits until that job had its turn: then the run was really stopped.
preempt() { # NAME
    wait_for_step "$tap_tmp/$1/log.jsonl" 40
    ok $? "$1: runs"
    high=$(timeout "$HANG_S" sbatch --parsable -p high --exclusive -o /dev/null --wrap true)
    wait_for_job "$high" COMPLETED
    ok $? "$1: a job of higher priority had the node in between"
}

# The run stopped in the middle with its state saved, at once, and went on from there.
check_resume() { # NAME
    stopped=$(sed -n 's/.*; the state of step \([0-9]*\) is saved.*/\1/p' "$tap_tmp/$1.out")
    resumed=$(sed -n 's/^resumed from .*: step \([0-9]*\),.*/\1/p' "$tap_tmp/$1.out")
    [ "${stopped:-0}" -ge 40 ] && [ "$stopped" -lt $STEPS ]
    ok $? "$1: stopped in the middle (step ${stopped:-none})"
    is "$resumed" "$stopped" "$1: went on from that very step"
    # Told once is enough: it saves at every 100th step, when it stops, and at the end.
    is "$(grep -c '^checkpoint of step' "$tap_tmp/$1.out")" \
        "$((STEPS / 100 + (stopped % 100 != 0)))" "$1: stopped at once"
}

check_log() { # NAME
    each_step_once "$tap_tmp/$1/log.jsonl" $STEPS
    ok $? "$1: the log holds every step once"
    same_bits "$tap_tmp/reference/log.jsonl" "$tap_tmp/$1/log.jsonl"
    ok $? "$1: losses equal the uninterrupted run bit for bit"
}

# by_sbatch NAME: submits, preempts in the middle, waits for the end
by_sbatch() {
    printf '#!/bin/sh\n#SBATCH --accel-config=%s\n#SBATCH -o %s -N1\nsrun %s\n' \
        "$tap_tmp/fsdp.yaml" "$tap_tmp/$1.out" "$(train_args "$1")" >"$tap_tmp/$1.sh"
    job=$(sbatch --parsable "$tap_tmp/$1.sh")
    ok $? "$1: submitted"
    preempt "$1"
    wait_for_job "$job" COMPLETED
    ok $? "$1: came back and completed"
    like "$(scontrol show job "$job")" "Restarts=1 " "$1: exactly one restart"
    check_resume "$1"
    check_log "$1"
}

# by_srun NAME
by_srun() {
    # shellcheck disable=SC2046
    timeout "$HANG_S" srun -N1 --accel-config="$tap_tmp/fsdp.yaml" $(train_args "$1") \
        >"$tap_tmp/$1.out" 2>&1 </dev/null &
    srun_pid=$!
    preempt "$1"
    wait $srun_pid
    is $? 0 "$1: srun ends 0 after it was preempted"
    is "$(grep -c 'was preempted with its state saved (exit 85); requesting a new allocation (restart 1 of at most 100)$' \
        "$tap_tmp/$1.out")" 1 "$1: srun says so, once"
    check_resume "$1"
    check_log "$1"
}

# Kills one rank; srun fails; the same command again finishes the run.
by_kill() {
    # shellcheck disable=SC2046
    timeout "$HANG_S" srun -N1 --accel-config="$tap_tmp/fsdp.yaml" $(train_args killed) \
        >"$tap_tmp/killed.out" 2>&1 </dev/null &
    srun_pid=$!
    wait_for_step "$tap_tmp/killed/log.jsonl" 150
    ok $? "killed: runs"
    # Processes end while we look.
    for p in /proc/[0-9]*; do
        tr '\0' '\n' 2>/dev/null <"$p/cmdline" | grep -q "^$tap_tmp/killed\$" || continue
        tr '\0' '\n' <"$p/environ" 2>/dev/null | grep -q '^SLURM_PROCID=1$' || continue
        kill -9 "${p#/proc/}"
    done
    wait $srun_pid
    isnt $? 0 "killed: srun reports the death of rank 1"
    # shellcheck disable=SC2046
    run_srun -N1 --accel-config="$tap_tmp/fsdp.yaml" $(train_args killed)
    ok $? "killed: the same command again ends 0"
    like "$srun_out" "resumed from" "killed: resumed from a checkpoint"
    check_log killed
}

cluster_up --nodes 1 --grace 20
# shellcheck disable=SC2046
run_srun -N1 --accel-config="$tap_tmp/fsdp.yaml" $(train_args reference)
ok $? "uninterrupted reference run" || bail_out "the trainer does not run"
by_sbatch batch-grace
by_srun srun-grace
by_kill
no_node_drained
ok $? "no node is drained"
cluster_down
cluster_up --nodes 1 --grace 20 --notice term
by_srun srun-term
[ "${ACCEL_LONG_TESTS:-0}" != 1 ] || by_sbatch batch-term
cluster_down
cluster_up --nodes 1 --grace 0
by_sbatch batch-nograce
[ "${ACCEL_LONG_TESTS:-0}" != 1 ] || by_srun srun-nograce
done_testing
