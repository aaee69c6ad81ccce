#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# --accel-dry-run in srun, sbatch (option and #SBATCH line) and salloc: the plan with the
# origin of its values on stdout, exit 0, and nothing queued; 1 for what would be refused.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

need_plugin
cluster_up --nodes 1 --cpus 4
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
printf 'distributed_type: MULTI_CPU\nmixed_precision: bf16\nnum_machines: 2\nnum_processes: 4\n' >four.yaml
printf 'distributed_type: MULTI_CPU\nnum_procesess: 4\n' >bad.yaml
printf '#!/bin/sh\n#SBATCH --accel-config=four.yaml\n#SBATCH --accel-dry-run\ntouch ran\n' >job.sh
next_job=$(sbatch --parsable --hold --wrap true -o /dev/null) || bail_out "sbatch does not work"
scancel "$next_job"

plan_of() { # WANTED-EXIT ARG...: stdout to `out`, stderr to `err`
    plan_want=$1
    shift
    timeout "$HANG_S" "$@" >out 2>err </dev/null
    is $? "$plan_want" "$*: exit $plan_want"
}

for client in 'srun --accel-config=four.yaml --accel-dry-run touch ran' \
    'srun --accel-dry-run --accel-config four.yaml touch ran' \
    'sbatch --accel-dry-run --accel-config=four.yaml --wrap true' 'sbatch job.sh' \
    'salloc --accel-config=four.yaml --accel-dry-run touch ran'; do
    # shellcheck disable=SC2086
    plan_of 0 $client
    is "$(cat err)" "" "$client: nothing on stderr"
    is "$(sed -n 1p out)" "accel: dry run: nothing is queued" "$client: says so first"
    is "$(sed -n 's/^  \(config\|tasks\|nodes\|per node\)  *//p' out | paste -sd ' ')" \
        "$tap_tmp/four.yaml 4 2 2" "$client: file, tasks, nodes"
    like "$(cat out)" '^  mixed_precision +bf16 +line 2$' "$client: a value of the file has its line"
    like "$(cat out)" '^  accel.checkpoint.keep +2 +default$' "$client: a default is called one"
    is "$(sed -n 's/^  \(\(ACCEL_\|GROUP_\|LOCAL_\|\)\(RANK\|WORLD_SIZE\)=\)/\1/p' out | paste -sd ' ')" \
        "ACCEL_RANK=0..3 ACCEL_WORLD_SIZE=4 RANK=0..3 LOCAL_RANK=0..1 LOCAL_WORLD_SIZE=2 WORLD_SIZE=4 GROUP_RANK=0..1 GROUP_WORLD_SIZE=2" \
        "$client: the place of the tasks"
    like "$(cat out)" '^  ACCELERATE_MIXED_PRECISION=bf16$' "$client: what the config sets for them"
done
# The list is the one that the tasks get: name by name, and by value where it is known.
printf 'distributed_type: FSDP\nmixed_precision: bf16\nfsdp_config: {fsdp_version: 2}\n' >open.yaml
WORLD_SIZE=7 && export WORLD_SIZE
plan_of 0 srun -n1 -N1 --accel-config=open.yaml --accel-dry-run true
plan_of_names() { # FILE
    sed -n '/^each task gets$/,$s/^  \([A-Z0-9_]*\)[=:].*/\1/p' "$1" | sort
}
sed -n '/^each task gets$/,$s/^  \([A-Z0-9_]*=.*\)/\1/p' out | sed 's/ (yours)$//' | sort >planned
plan_of_names out >names
like "$(cat out)" '^  WORLD_SIZE=7 \(yours\)$' "what the user exported stays, and is shown"
timeout "$HANG_S" srun -n1 -N1 -Q --accel-config=open.yaml sh -c 'env | sort' >real 2>err
next_job=$((next_job + 1)) # that one was a job
is "$(comm -23 planned real)" "" "every value of the plan is one of the task's"
is "$(sed -n 's/^\(\(ACCEL\|FSDP\|PARALLELISM\|TORCH\|ROLE\|GROUP\|MASTER\|LOCAL\)[A-Z0-9_]*\|RANK\|WORLD_SIZE\|OMP_NUM_THREADS\|KMP_[A-Z]*\)=.*/\1/p' real |
    grep -v '^ACCEL_\(CLUSTER\|SRC\|BUILD\|ASAN_BUILD\|OMP\|CONFIG_DIGEST\|PREEMPTION_NOTICE\|WARNING\)' | comm -13 names -)" "" \
    "and the task has none that the plan does not name"
unset WORLD_SIZE
plan_of 0 srun --accel-config=open.yaml --accel-dry-run true
like "$(cat out)" '^  ACCEL_RANK: as Slurm places the tasks$' "an open size is said to be open"
like "$(cat out)" '^  WORLD_SIZE: the number of tasks$' "also in the number of tasks"
printf 'distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2}\n' >deep.yaml
plan_of 0 srun -n1 -N1 --accel-config=deep.yaml --accel-dry-run true
like "$(cat out)" "^  PYTHONPATH: its value, then the task's directory\$" \
    "what is added to a variable is told"
plan_of 0 srun --accel-config=four.yaml --accel-resume=none --accel-dry-run ./train --data x
like "$(cat out)" '^  options set +--mpi=pmix --ntasks=4 --ntasks-per-node=2 --kill-on-bad-exit=1 --disable-status --signal=USR1@120$' \
    "srun: the options it would set"
like "$(cat out)" '^  command +\./train --data x$' "the command"
like "$(cat out)" '^  resume +none: from the beginning' "the resume choice"
plan_of 0 srun -n4 --mpi=none --accel-config=four.yaml --accel-dry-run true
like "$(cat out)" '^  options set +--ntasks-per-node=2 --kill-on-bad-exit=1 --disable-status --signal=USR1@120$' \
    "what the user typed is not set"
plan_of 0 sbatch --no-requeue --accel-config=four.yaml --accel-dry-run --wrap true
like "$(cat out)" '^  options set .*--open-mode=append.*--signal=USR1@120$' "sbatch: its own"

plan_of 1 srun -n2 --accel-config=four.yaml --accel-dry-run touch ran
like "$(cat err)" 'four.yaml:4: num_processes is 4, but this step has 2 tasks$' "a wrong size is told"
plan_of 0 salloc -Q -n2 --accel-config=four.yaml --accel-dry-run touch ran
like "$(cat out)" '^note: a step of all 2 tasks would be refused: num_processes is 4' "salloc: as a note"
plan_of 255 srun --accel-config=bad.yaml --accel-dry-run touch ran
like "$(cat err)" 'bad.yaml:2:1: error' "a bad file is refused as ever"
for client in 'srun --accel-dry-run touch ran' 'sbatch --accel-dry-run --wrap true' \
    'salloc --accel-config=none --accel-dry-run touch ran'; do
    # shellcheck disable=SC2086
    plan_of 1 $client
    like "$(cat err)" '--accel-dry-run: there is nothing to show without --accel-config; nothing was queued' \
        "$client: without a config it is refused, not run"
done
if [ -w /dev/full ]; then
    timeout "$HANG_S" srun --accel-config=four.yaml --accel-dry-run true >/dev/full 2>err
    is $? 74 "a full disk under stdout: 74"
else
    skip 1 "no /dev/full"
fi

[ ! -e ran ]
ok $? "no program was run"
is "$(squeue -h)" "" "nothing is queued"
is "$(sbatch --parsable --hold --wrap true -o /dev/null)" "$((next_job + 1))" "no job id was used"
scancel "$((next_job + 1))"
done_testing
