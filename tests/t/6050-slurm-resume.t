#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# --accel-resume: how the choice travels through srun, sbatch, salloc and accel launch, and
# what a training run makes of it: the newest checkpoint, a fresh start, another run's
# checkpoint. A directory that holds checkpoints is never written over, and a job that was
# started again goes on from its own.
# What the tasks expand stands in single quotes.
# shellcheck disable=SC2016
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"

need_plugin
[ -x "$TRAIN" ] || skip_all "examples/train is not built"
cluster_up --nodes 1 --cpus 2
tap_tmpdir
mkdir "$tap_tmp/jobs" "$tap_tmp/elsewhere"
cd "$tap_tmp/jobs" || bail_out "no directory"
printf 'distributed_type: MULTI_CPU\n' >any.yaml
mkdir here

choice() { # DESCRIPTION WANT ARG...: what a task of `srun ARG...` is told
    choice_what=$1 choice_want=$2
    shift 2
    run_srun -Q -n1 "$@" sh -c 'echo "resume=$ACCEL_RESUME"'
    is "$srun_out" "resume=$choice_want" "$choice_what"
}

choice "nothing given, nothing set" "" --accel-config=any.yaml
choice "auto" auto --accel-config=any.yaml --accel-resume=auto
choice "none, abbreviated and apart" none --accel-config=any.yaml --accel-res none
choice "a relative path becomes absolute" "$tap_tmp/jobs/here" --accel-config=any.yaml --accel-resume=here
choice "also with --chdir" "$tap_tmp/jobs/here" --chdir="$tap_tmp/elsewhere" \
    --accel-config=any.yaml --accel-resume=here
ACCEL_RESUME=none
export ACCEL_RESUME
choice "the user's own variable stays" none --accel-config=any.yaml
choice "and the option wins over it" auto --accel-config=any.yaml --accel-resume=auto
unset ACCEL_RESUME
choice "without --accel-config nothing is set" "" --accel-resume=none

refused() { # NAME LINE-ERE CLIENT ARG...
    refused_what=$1 refused_line=$2
    shift 2
    refused_out=$(timeout "$HANG_S" "$@" 2>&1 </dev/null)
    is $? 255 "$refused_what: exit 255"
    like "$refused_out" "$refused_line" "$refused_what: says why"
    like "$refused_out" 'cure: ' "$refused_what: says the cure"
}
refused "srun, no such path" "$tap_tmp/jobs/nowhere: cannot resume from 'nowhere': No such file" \
    srun --accel-config=any.yaml --accel-resume=nowhere true
refused "sbatch, misspelt word" "cure: did you mean 'auto'" \
    sbatch --accel-config=any.yaml --accel-resume=atuo --wrap true
refused "salloc, empty" "choice of what to resume from is empty" \
    salloc --accel-config=any.yaml --accel-resume= true
is "$(squeue -h -t PD,R)" "" "nothing is queued" # one before may still complete
job=$(timeout "$HANG_S" sbatch --parsable --hold -o /dev/null --accel-config=any.yaml --wrap true)
passes "a job that waits for another may resume from what is not there yet" \
    timeout "$HANG_S" sbatch --parsable -o /dev/null -d "afterok:$job" --accel-config=any.yaml \
    --accel-resume=later --wrap true
scancel -u "$(id -un)"

cat >job.sh <<'JOB'
#!/bin/sh
#SBATCH --accel-config=any.yaml --accel-resume=here -n1
srun -Q sh -c 'echo "resume=$ACCEL_RESUME"'
srun -Q --accel-resume=none sh -c 'echo "resume=$ACCEL_RESUME"'
srun -Q --accel-config=none sh -c 'echo "rank=$ACCEL_RANK"'
JOB
job=$(timeout "$HANG_S" sbatch --parsable --chdir "$tap_tmp/elsewhere" -o "$tap_tmp/jobs/job.out" job.sh)
wait_for_job "$job" 'COMPLETED|FAILED'
is "$(cat job.out)" "resume=$tap_tmp/jobs/here
resume=none
rank=" "#SBATCH --accel-resume: inherited against the directory of submission; a step's own wins"
is "$(timeout "$HANG_S" salloc -Q -n1 --accel-config=any.yaml --accel-resume=here \
    srun -Q sh -c 'echo $ACCEL_RESUME')" "$tap_tmp/jobs/here" "salloc hands it to its steps"
is "$("$ACCEL_BUILD/accel" launch --config any.yaml -n 1 --resume here sh -c 'echo $ACCEL_RESUME')" \
    "$tap_tmp/jobs/here" "accel launch --resume"
"$ACCEL_BUILD/accel" launch --config any.yaml -n 1 --resume nowhere true 2>err
is $? 66 "accel launch: a path that is not there: 66"

# Training: one run of 20 steps to start from.
train_text text.txt
train_config two.yaml FULL_SHARD no 2 1 "checkpoint: {every_steps: 10}"
train() { # OUT STEPS ARG...
    train_out=$1 train_steps=$2
    shift 2
    run_srun "$@" --accel-config=two.yaml "$TRAIN" --layers 1 --heads 2 --width 32 \
        --seq 32 --batch 2 --sample 0 --data text.txt --steps "$train_steps" --out "$train_out"
}
checkpoints() { # OUT
    find "$1/checkpoints" -mindepth 1 ! -name .lock -printf '%P %s %T@\n' | sort
}

train a 20 --accel-resume=none
is "$srun_rc" 0 "none in an empty directory: the run starts"
like "$srun_out" 'starting from the beginning \(--accel-resume=none\)' "and says so"
before=$(checkpoints a)
train a 30 --accel-resume=none
is "$srun_rc" 64 "none where checkpoints are: refused, 64"
like "$srun_out" 'asks for a fresh start, but 2 checkpoints of an earlier run are here \(newest: step_0*20\); nothing is overwritten' \
    "it names them"
like "$srun_out" 'cure: use another --out' "and the cure"
is "$(printf '%s\n' "$srun_out" | grep -c 'asks for a fresh start')" 1 "once, not per rank"
is "$(checkpoints a)" "$before" "the checkpoints are as they were"

train b 30 --accel-resume=a/checkpoints
is "$srun_rc" 0 "another run's directory: starts from its newest checkpoint"
like "$srun_out" "resumed from $tap_tmp/jobs/a/checkpoints/step_0*20: step 20" "and says so"
is "$(losses b/log.jsonl | awk 'NR == 1 { first = $1 } END { print first, $1 }')" "21 30" "it goes on at step 21"
is "$(checkpoints a)" "$before" "the other run's checkpoints are as they were"
cp -R a in-place
train in-place 30
losses in-place/log.jsonl | sed -n '21,$p' >in-place.tail
losses b/log.jsonl | cmp -s - in-place.tail
ok $? "with the bits of the run that goes on in place"

first=$(find a/checkpoints -maxdepth 1 -name 'step_*10')
train c 20 --accel-resume="$first"
like "$srun_out" 'resumed from .*step_0*10: step 10' "one checkpoint by its path"
train a 30 --accel-resume="$first"
is "$srun_rc" 64 "an older one of the run's own directory: refused"
like "$srun_out" "own directory holds checkpoints \\(newest: step_0*20\\); nothing is overwritten" "it says why"
is "$(checkpoints a)" "$before" "the checkpoints are as they were"
train b 40 --accel-resume="$tap_tmp/jobs/a/checkpoints"
is "$srun_rc" 64 "another run's checkpoint over one's own: refused"
train a 25 --accel-resume=a/checkpoints/../checkpoints
like "$srun_out" 'resumed from .*step_0*20: step 20' "the run's own directory is as good as auto"
mkdir empty
train d 10 --accel-resume=empty
is "$srun_rc" 66 "a directory without checkpoints: 66"
like "$srun_out" "$tap_tmp/jobs/empty: there is no checkpoint to resume from" "it says so"
[ ! -e d/log.jsonl ]
ok $? "and nothing was trained"

# Started again by Slurm: its own newest checkpoint, whatever was asked of the first start.
cat >again.sh <<'JOB'
#!/bin/sh
#SBATCH --accel-config=two.yaml --accel-resume=none
srun "$@"
JOB
job=$(timeout "$HANG_S" sbatch --parsable -o again.out again.sh "$TRAIN" --layers 1 --heads 2 \
    --width 32 --seq 32 --batch 2 --sample 0 --data text.txt --steps 3000 --out again)
wait_for_step again/log.jsonl 25
timeout "$HANG_S" scontrol requeue "$job"
wait_until grep -q 'resumed from' again.out
ok $? "a requeued job goes on although its first start was a fresh one"
like "$(cat again.out)" "restart 1: resuming from this run's own checkpoints; --accel-resume=none was for its first start" \
    "and says why"
scancel "$job"
wait_for_job "$job" 'CANCELLED|COMPLETED'
is "$(losses again/log.jsonl | awk '$1 != NR { print "bad" }')" "" "every step once"
no_node_drained
ok $? "no node is drained"
done_testing
