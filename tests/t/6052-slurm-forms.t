#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Every way to start a step: salloc, a step with another config, a step that is no training,
# job arrays, uneven tasks per node, steps side by side, --multi-prog, --pty, --chdir, a
# config that is edited or removed between two starts, tasks that see nothing of Slurm.
# What the tasks expand stands in single quotes.
# shellcheck disable=SC2016
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"

need_plugin
can_mnt_mode || skip_all "two nodes with PMIx need mount namespaces"
probe=$ACCEL_BUILD/tests/helpers/probe
[ -x "$probe" ] || skip_all "tests/helpers/probe is not built"
cluster_up --nodes 2 --mode mnt --cpus 4
tap_tmpdir
mkdir "$tap_tmp/jobs" "$tap_tmp/elsewhere"
cd "$tap_tmp/jobs" || bail_out "no directory"
printf 'distributed_type: MULTI_CPU\nnum_processes: 4\n' >four.yaml
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\n' >two.yaml
printf 'distributed_type: MULTI_CPU\n' >any.yaml

# A batch script from stdin; its output as $job_out.
batch() { # NAME ARG...
    batch_name=$1
    shift
    cat >"$batch_name.sh"
    job=$(timeout "$HANG_S" sbatch --parsable -o "$batch_name.out" "$@" "$batch_name.sh") || diag "sbatch failed"
    wait_for_job "$job" 'COMPLETED|FAILED'
    job_out=$(cat "$batch_name.out")
}

places() { # the first three columns of the probes' lines, sorted, on one line
    printf '%s\n' "$1" | sed -n 's/ gpus=.*//p' | sort | paste -sd ,
}

# ---- steps of one job
batch steps -n4 -N2 --ntasks-per-node=2 <<JOB
#!/bin/sh
#SBATCH --accel-config=four.yaml
srun -Q $probe
srun -Q -n1 -N1 sh -c 'echo "copy: \${RANK-none} \${ACCEL_CONFIG_RESOLVED-none} \${SLURM_MPI_TYPE-none}"'
srun -Q -n2 --accel-config=four.yaml true
echo "refused: \$?"
timeout "$HANG_S" srun -n2 -N1 --accel-config=two.yaml $probe
srun -Q --accel-config=none sh -c 'echo "off: \${RANK-none}"' | sort -u
JOB
is "$(places "$(sed -n 1,4p steps.out)")" "0/4 0/2 0/2,1/4 1/2 0/2,2/4 0/2 1/2,3/4 1/2 1/2" "a step of all tasks"
like "$job_out" '^copy: none none none$' "a step with a size of its own runs without accel"
is "$(printf '%s\n' "$job_out" | grep -c 'it runs without accel')" 1 "and one line says so"
like "$job_out" '^refused: 1$' "one with a file of another size is refused"
is "$(places "$(printf '%s\n' "$job_out" | grep '/2 [0-9]/[0-9] 0/1')")" "0/2 0/2 0/1,1/2 1/2 0/1" \
    "and does not stand in the way of the next, which has its own config"
like "$job_out" '^off: none$' "=none switches it off"

run_srun -Q -N2 -n4 -m plane=3 --accel-config=any.yaml "$probe"
is "$(places "$srun_out")" "0/4 0/3 0/2,1/4 1/3 0/2,2/4 2/3 0/2,3/4 0/1 1/2" "3 + 1 tasks: each node has its own local world"
run_srun -Q -N2 -n4 --ntasks-per-node=2 -m cyclic --accel-config=any.yaml "$probe"
is "$(places "$srun_out")" "0/4 0/2 0/2,1/4 1/2 0/2,2/4 0/2 1/2,3/4 1/2 1/2" "cyclic: ranks count node by node, as torch expects"

is "$(places "$(timeout "$HANG_S" salloc -Q -n4 -N2 --ntasks-per-node=2 --accel-config=four.yaml \
    sh -c "srun -Q $probe; srun -Q -n2 -N1 --accel-config=two.yaml $probe" 2>&1)")" \
    "0/2 0/2 0/1,0/4 0/2 0/2,1/2 1/2 0/1,1/4 1/2 0/2,2/4 0/2 1/2,3/4 1/2 1/2" \
    "salloc: its steps inherit; one has another config"

printf '#!/bin/sh\necho "other $RANK"\n' >other.sh
chmod +x other.sh
printf '0 %s\n1-3 ./other.sh\n' "$probe" >multi.conf
run_srun -Q -N1 -n4 --accel-config=four.yaml --multi-prog multi.conf
is "$(printf '%s\n' "$srun_out" | sed 's/ gpus=.*//' | sort | paste -sd ,)" \
    "0/4 0/4 0/1,other 1,other 2,other 3" "--multi-prog: both programs, ranks of one step"

if command -v script >/dev/null 2>&1; then
    pty=$(timeout "$HANG_S" script -qec "srun -Q -n1 --pty --accel-config=any.yaml sh -c 'tty >/dev/null && echo tty \$RANK/\$WORLD_SIZE'" /dev/null </dev/null | tr -d '\r\000')
    like "$pty" 'tty 0/1$' "--pty: a terminal and its rank"
else
    skip 1 "no script(1)"
fi

run_srun -Q -n1 --chdir="$tap_tmp/elsewhere" --accel-config=any.yaml sh -c 'echo "$PWD $ACCEL_CONFIG"'
is "$srun_out" "$tap_tmp/elsewhere $tap_tmp/jobs/any.yaml" "--chdir: the file is found where srun was called"
run_srun -Q -n1 --accel-config=../jobs/./any.yaml "$probe"
is "$(places "$srun_out")" "0/1 0/1 0/1" "a relative path"

# ---- side by side: each waits for the other, so both are there at once
cat >meet.sh <<MEET
#!/bin/sh
: >"\$1.\$RANK"
n=0
until [ -e left.0 ] && [ -e right.0 ]; do
    n=\$((n + 1))
    [ \$n -lt $((HANG_S * 20)) ] || exit 9
    sleep 0.05
done
echo "\$1 \$RANK/\$WORLD_SIZE \$MASTER_PORT"
MEET
chmod +x meet.sh
batch overlap -n2 -N1 <<JOB
#!/bin/sh
#SBATCH --accel-config=two.yaml
timeout "$HANG_S" srun --overlap -o left.log ./meet.sh left &
timeout "$HANG_S" srun --overlap -o right.log ./meet.sh right
echo "right \$?"
wait \$!
echo "left \$?"
JOB
is "$(printf '%s\n' "$job_out" | sort | paste -sd ' ')" "left 0 right 0" "--overlap: two steps at the same time"
is "$(cut -d' ' -f2 left.log right.log | sort | paste -sd ' ')" "0/2 0/2 1/2 1/2" "each with its own ranks"
is "$(cut -d' ' -f3 left.log right.log | sort -u | wc -l)" 2 "and its own port"

# ---- arrays: elements are runs of their own; one comes back alone
cat >array.sh <<JOB
#!/bin/sh
#SBATCH --accel-config=two.yaml --array=1-2
srun $stepper steps.\$SLURM_ARRAY_TASK_ID
JOB
if [ -x "$stepper" ]; then
    job=$(timeout "$HANG_S" sbatch --parsable -o array.%a array.sh)
    wait_until has_steps steps.1 && wait_until has_steps steps.2
    ok $? "array: both elements run"
    timeout "$HANG_S" scontrol requeue "${job}_1"
    wait_for_job "${job}_1" COMPLETED
    is "$(cut -d' ' -f2 steps.1 | sort -u | paste -sd ' ')" "0 1" "the requeued element goes on as restart 1"
    is "$(cut -d' ' -f2 steps.2 | sort -u | paste -sd ' ')" "0" "the other one is not touched"
    awk '$1 != NR { bad = 1 } END { exit bad }' steps.1 && awk '$1 != NR { bad = 1 } END { exit bad }' steps.2
    ok $? "every step once in both"
    timeout "$HANG_S" scancel "$job"
else
    skip 4 "tests/helpers/stepper is not built"
fi

# Elements that share a directory of checkpoints: one is refused, the other goes on.
if [ -x "$TRAIN" ]; then
    train_text text.txt
    train_config share.yaml NO_SHARD no 1 1 "checkpoint: {every_steps: 20}"
    cat >share.sh <<JOB
#!/bin/sh
#SBATCH --accel-config=share.yaml --array=1-2
srun $TRAIN --layers 1 --heads 2 --width 32 --seq 32 --batch 2 --sample 0 --data text.txt \
    --steps 100000000 --out shared
JOB
    job=$(timeout "$HANG_S" sbatch --parsable -o share.%a share.sh)
    refused_one() {
        loser=$(grep -l 'another run is using this directory' share.[12] 2>/dev/null)
        [ -n "$loser" ]
    }
    wait_until refused_one
    ok $? "array with one directory: an element is refused"
    like "$(cat "$loser")" "a directory of its own .--out .*in a job array, use one per .SLURM_ARRAY_TASK_ID" \
        "the cure names --out and the element's number"
    wait_for_job "${job}_${loser#share.}" FAILED
    is "$(job_field "${job}_${loser#share.}" ExitCode)" 69:0 "it ends with 69"
    steps=$(last_step shared/log.jsonl)
    passes "the other one goes on" wait_for_step shared/log.jsonl $((steps + 5))
    timeout "$HANG_S" scancel "$job"
    wait_for_job "${job}_$((3 - ${loser#share.}))" 'CANCELLED|COMPLETED|FAILED'
else
    skip 4 "examples/train is not built"
fi

# ---- the file between two starts: edited, then gone
cp any.yaml moving.yaml
cat >moving.sh <<'JOB'
#!/bin/sh
#SBATCH --accel-config=moving.yaml -n1
echo "start ${SLURM_RESTART_COUNT-0}"
srun sh -c 'echo "$ACCEL_CONFIG_RESOLVED" | tr ";" "\n" | grep "^mixed_precision"; echo state >>state'
echo "srun $?"
case ${SLURM_RESTART_COUNT-0} in
0) echo 'mixed_precision: bf16' >>moving.yaml ;;
1) rm moving.yaml ;;
*) exit 0 ;;
esac
scontrol requeue "$SLURM_JOB_ID"
sleep 60
JOB
job=$(timeout "$HANG_S" sbatch --parsable -o moving.out moving.sh)
wait_for_job "$job" 'COMPLETED|FAILED'
is "$(grep -E '^(start [0-9]|srun [0-9]|mixed)' moving.out | sed 's/@[^=]*//' | paste -sd ' ')" \
    "start 0 srun 0 start 1 mixed_precision=bf16 srun 0 start 2 srun 1" \
    "an edited file counts at the next start; a removed one is refused"
is "$(grep -c 'moving.yaml has changed since the job was submitted' moving.out)" 1 "one line tells of the edit"
like "$(cat moving.out)" "$tap_tmp/jobs/moving.yaml: error.*: no such file" "the error names the missing file"
is "$(cat state)" "state
state" "what was there stays"

# ---- tasks in a root without anything of Slurm: as in a container
cat >hide.sh <<'HIDE'
for f in $(ldconfig -p | sed -n 's/.* => //p' | grep -E '/lib(slurm|pmi)') \
    $(for p in srun scontrol sbatch squeue; do command -v $p; done); do
    mount --bind /dev/null "$f" || exit 9
done
mount -t tmpfs none /run
unset SLURM_CONF
HIDE
cat >boxed.sh <<'BOX'
#!/bin/sh
exec unshare -m sh -c '. ./hide.sh; scontrol ping 2>/dev/null && exit 9; exec "$@"' sh "$@"
BOX
chmod +x boxed.sh
if [ "$(id -u)" = 0 ] && [ -x "$stepper" ] && unshare -m sh -c ". ./hide.sh" 2>/dev/null; then
    run_srun -Q -n2 --accel-config=two.yaml ./boxed.sh "$probe"
    is "$(places "$srun_out")" "0/2 0/2 0/1,1/2 1/2 0/1" "no libslurm, no scontrol: ranks all the same" ||
        diag "$srun_out"
    cat >box.sh <<JOB
#!/bin/sh
#SBATCH --accel-config=two.yaml -n2 -N1
srun ./boxed.sh $stepper box.steps requeue=$tap_tmp/jobs
JOB
    job=$(timeout "$HANG_S" sbatch --parsable -o box.out box.sh)
    wait_until has_steps box.steps
    scancel -s USR1 "$job"
    wait_for_job "$job" 'COMPLETED|FAILED'
    is "$(job_state "$job") $(job_field "$job" Restarts)" "COMPLETED 1" "it is requeued all the same"
    like "$(cat box.out)" "accel: job $job stopped with its state saved \(exit 85\); requeued as restart 1" \
        "by the plugin, from outside"
else
    skip 3 "needs root, mount namespaces and the stepper"
fi
no_node_drained
ok $? "no node is drained"
done_testing
