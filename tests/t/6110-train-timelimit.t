#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A run that needs longer than its time limit: the warning that the plugin asked for comes
# before the limit, the run saves and comes back, as batch job and as bare srun, with the
# bits of a run without a limit. Slurm looks at time limits twice a minute and knows only
# whole minutes, so this takes two to three: it runs with ACCEL_LONG_TESTS=1.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
[ "${ACCEL_LONG_TESTS:-0}" = 1 ] || skip_all "takes minutes: set ACCEL_LONG_TESTS=1"
need_plugin
# shellcheck disable=SC2034
tap_tmpdir
train_text "$tap_tmp/text.txt"
# 59 s before a limit of 60 s: the warning comes 1 to 31 s after the start.
train_config "$tap_tmp/fsdp.yaml" FULL_SHARD bf16 2 1 "preemption: {lead_seconds: 59}"
train_args() { # OUT STEPS
    echo "$TRAIN --layers 2 --heads 4 --width 64 --seq 64 --batch 8 --steps $2" \
        "--sample 0 --data $tap_tmp/text.txt --out $tap_tmp/$1"
}

check() { # NAME
    like "$(cat "$tap_tmp/$1.out")" '; the state of step [0-9]+ is saved' "$1: was warned"
    like "$(cat "$tap_tmp/$1.out")" 'resumed from ' "$1: went on"
    unlike "$(cat "$tap_tmp/$1.out")" 'DUE TO TIME LIMIT' "$1: never ran into its limit"
    each_step_once "$tap_tmp/$1/log.jsonl" "$STEPS"
    ok $? "$1: the log holds every step once"
    same_bits "$tap_tmp/reference/log.jsonl" "$tap_tmp/$1/log.jsonl"
    ok $? "$1: losses equal the run without a limit bit for bit"
}

cluster_up --nodes 1
# As many steps as this machine does in about 36 s, more than the 31.
# shellcheck disable=SC2046
run_srun -N1 --accel-config="$tap_tmp/fsdp.yaml" $(train_args probe 100)
STEPS=$(sed -n 's/.*"step_ms":\([0-9.]*\).*/\1/p' "$tap_tmp/probe/log.jsonl" | sort -n |
    awk '{ v[NR] = $1 } END { print int(36000 / v[int((NR + 1) / 2)]) }')
diag "$STEPS steps"
# shellcheck disable=SC2046
run_srun -N1 --accel-config="$tap_tmp/fsdp.yaml" $(train_args reference "$STEPS")
ok $? "reference run without a limit"

printf '#!/bin/sh\n#SBATCH --accel-config=%s --time=1\n#SBATCH -o %s\nsrun %s\n' "$tap_tmp/fsdp.yaml" \
    "$tap_tmp/batch.out" "$(train_args batch "$STEPS")" >"$tap_tmp/batch.sh"
job=$(sbatch --parsable "$tap_tmp/batch.sh")
wait_for_job "$job" 'COMPLETED|FAILED|TIMEOUT'
is "$(job_state "$job")" COMPLETED "batch: completed"
[ "$(job_field "$job" Restarts)" -ge 1 ]
ok $? "batch: requeued"
check batch

# shellcheck disable=SC2046
run_srun -N1 --time=1 --accel-config="$tap_tmp/fsdp.yaml" $(train_args bare "$STEPS")
is $? 0 "bare: srun ends 0"
printf '%s\n' "$srun_out" >"$tap_tmp/bare.out"
like "$srun_out" 'stopped with its state saved \(exit 85\); requesting a new allocation \(restart 1 of at most 100\)' "bare: srun asked again"
check bare
no_node_drained
ok $? "no node is drained"
done_testing
