#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# sbatch and salloc ask for as many tasks as the config says where the user gave no
# number, on the command line or in the script; nothing else of the job differs from one
# submitted with the options typed. A script from stdin is left alone, and the step's
# refusal says what to give.
# What the tasks expand stands in single quotes.
# shellcheck disable=SC2016
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

need_plugin
can_mnt_mode || skip_all "two nodes need namespaces, which this system does not allow"
cluster_up --nodes 2 --cpus 4
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\n' >two.yaml
printf 'distributed_type: MULTI_CPU\nnum_processes: 4\nnum_machines: 2\n' >spread.yaml
printf 'distributed_type: MULTI_CPU\nnum_processes: 3\n' >three.yaml
printf 'num_processes: 0x\n' >bad.yaml

# script FILE LINE...: a batch script with these #SBATCH lines that only shows its size
script() {
    script_name=$1
    shift
    {
        echo '#!/bin/sh'
        printf '#SBATCH %s\n' "$@"
        echo 'echo "step $(srun sh -c "echo ran" | grep -c ran)"'
    } >"$script_name"
}

# sizes DESCRIPTION WANT ARG...: tasks, nodes, and tasks per node of the held job that
# sbatch makes of ARG
sizes() {
    sizes_what=$1 sizes_want=$2
    shift 2
    job=$(timeout "$HANG_S" sbatch --parsable --hold -o /dev/null "$@" 2>err)
    [ -n "$job" ] || diag "$(cat err)"
    is "$(timeout "$HANG_S" squeue -h -j "$job" -o '%C')/$(job_field "$job" NumNodes | cut -d- -f1)" \
        "$sizes_want" "$sizes_what"
    scancel "$job"
}

# A job that runs: the complaint that started it all.
script job.sh '--accel-config=two.yaml' '-o job.out'
job=$(timeout "$HANG_S" sbatch --parsable job.sh)
wait_for_job "$job" 'COMPLETED|FAILED'
is "$(cat job.out)" "step 2" "#SBATCH --accel-config alone: srun gets its two tasks"
is "$(job_field "$job" NumTasks)" 2 "NumTasks is the config's"

sizes "option on the command line" 2/1 --accel-config=two.yaml --wrap true
sizes "option and value apart, abbreviated" 2/1 --accel-conf two.yaml --wrap true
sizes "machines of the config" 4/2 --accel-config=spread.yaml --wrap true
sizes "-n wins" 1/1 -n1 --accel-config=two.yaml --wrap true
sizes "-n among other letters wins" 1/1 -Hn1 --accel-config=two.yaml --wrap true
sizes "--ntasks apart wins" 3/1 --ntasks 3 --accel-config=two.yaml --wrap true
sizes "--ntasks-per-node wins" 2/2 -N2 --ntasks-per-node=1 --accel-config=spread.yaml --wrap true
sizes "-N stays" 4/1 -N1 --accel-config=spread.yaml --wrap true
sizes "--cpus-per-task stays" 4/1 -c2 --accel-config=two.yaml --wrap true
sizes "not in use" 1/1 --wrap true
sizes "switched off" 1/1 --accel-config=none --wrap true
script n.sh '-n 3 --accel-config=two.yaml'
sizes "-n of the script wins" 3/1 n.sh
script ntasks.sh '--accel-config="two.yaml" # the file' '--ntasks=3'
sizes "--ntasks of the script wins" 3/1 ntasks.sh
script comment.sh '--accel-config=two.yaml # --ntasks=3'
sizes "a comment gives nothing" 2/1 comment.sh
script nodes.sh '-N1' '--accel-config=spread.yaml'
sizes "-N of the script stays" 4/1 nodes.sh
sizes "the command line's file wins over the script's" 3/1 --accel-config=three.yaml comment.sh
script late.sh '-J late'
printf '#SBATCH --accel-config=two.yaml\n' >>late.sh
sizes "a line behind the first command is none" 1/1 late.sh
mkdir bin
script bin/onpath.sh '--accel-config=two.yaml'
chmod 755 bin/onpath.sh
old_path=$PATH
PATH=$tap_tmp/bin:$PATH
sizes "a script found by PATH" 2/1 onpath.sh
PATH=$old_path

# Every element of an array gets its tasks.
script array.sh '--accel-config=two.yaml' '-o array.%a' '--array=1-2'
job=$(timeout "$HANG_S" sbatch --parsable array.sh)
wait_for_job "${job}_1" 'COMPLETED|FAILED'
wait_for_job "${job}_2" 'COMPLETED|FAILED'
is "$(cat array.1 array.2 | paste -sd ' ')" "step 2 step 2" "a job array: two tasks in each element"

# Components have no size of the file's, and their steps are refused.
timeout "$HANG_S" srun -n1 --accel-config=two.yaml true : -n1 true >het.out 2>&1
isnt $? 0 "a heterogeneous step is refused"
like "$(cat het.out)" 'error\[A0313\]: SLURM_HET_SIZE: heterogeneous jobs are not supported yet' "and it says so"
script hetjob.sh '--accel-config=two.yaml -o het2.out -n1' 'hetjob' '-n1'
job=$(timeout "$HANG_S" sbatch --parsable hetjob.sh)
wait_for_job "$job" 'COMPLETED|FAILED'
like "$(cat het2.out)" 'error\[A0313\]: SLURM_HET_SIZE: heterogeneous jobs are not supported yet' "so is a step of a heterogeneous batch job"

# Nothing of the second start shows: environment, limits, signals, descriptors.
show='env | grep -v -e "^SLURM_JOB_ID\|^SLURM_JOBID\|^SLURM_TASK_PID\|^SLURM_JOB_START\|^SLURM_JOB_END\|^SLURMD_\|^_=" | sort; grep "^Sig[BIC]" /proc/self/status; ls /proc/self/fd'
for how in typed config; do
    typed=
    [ $how = typed ] && typed=--ntasks=2
    # shellcheck disable=SC2086
    job=$(timeout "$HANG_S" sbatch --parsable $typed --accel-config=two.yaml -J same -o $how.batch --wrap "$show")
    wait_for_job "$job" 'COMPLETED|FAILED'
    # shellcheck disable=SC2086
    timeout "$HANG_S" salloc -Q $typed --accel-config=two.yaml -J same sh -c "$show" >$how.salloc 2>&1
done
is "$(diff typed.batch config.batch)" "" "sbatch: the job is as if --ntasks had been typed"
is "$(diff typed.salloc config.salloc)" "" "salloc: so is its command"
like "$(cat config.salloc)" '^SLURM_NTASKS=2$' "salloc: asks for the config's tasks"
unlike "$(cat config.batch config.salloc)" 'ACCEL_SIZED' "the guard does not show"
is "$(timeout "$HANG_S" salloc -Q --accel-config=two.yaml srun sh -c 'echo $RANK' | sort | paste -sd ' ')" \
    "0 1" "salloc: the inner srun has its tasks"
is "$(printf 'a line\n' | timeout "$HANG_S" salloc -Q --accel-config=two.yaml cat)" "a line" "salloc: stdin is untouched"

# A bad file is told once, and nothing is queued.
script bad.sh '--accel-config=bad.yaml'
for client in 'sbatch bad.sh' 'sbatch --accel-config=bad.yaml --wrap true' 'salloc --accel-config=bad.yaml true'; do
    # shellcheck disable=SC2086
    timeout "$HANG_S" $client >out 2>&1 </dev/null
    is $? 255 "bad file: $client exits 255"
    is "$(grep -c 'bad.yaml:1' out)" 1 "bad file: said once"
done

# From stdin it cannot be known; the step says what to give.
printf '#!/bin/sh\n#SBATCH --accel-config=two.yaml\nsrun true\n' >stdin.sh
job=$(timeout "$HANG_S" sbatch --parsable -o stdin.out <stdin.sh)
wait_for_job "$job" 'COMPLETED|FAILED'
like "$(cat stdin.out)" 'this allocation has 1 CPU, but the config asks for 2 tasks$' \
    "from stdin: the step says what to give"
job=$(timeout "$HANG_S" sbatch --parsable -n2 -o stdin2.out <stdin.sh)
wait_for_job "$job" 'COMPLETED|FAILED'
is "$(cat stdin2.out)" "" "from stdin with -n2: runs"
no_node_drained
ok $? "no node is drained"
done_testing
