#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: Ctrl-C and SIGTERM under srun ended a run without saving its last step.
# A run under srun that somebody ends: Ctrl-C in a terminal, once and twice, in an allocation
# of its own and in salloc's; SIGTERM and SIGHUP to srun; scancel of a batch job. The last
# step is saved, nothing comes back, and the output says how to go on.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/../t/train.sh"
need_plugin
need_program script
train_alone
train_config two.yaml NO_SHARD no 2 1 "checkpoint: {every_steps: 1000000000}"
export TRAIN
MODEL="--layers 1 --heads 1 --width 16 --seq 16 --batch 1 --sample 0 --data text.txt --steps 100000000"
export MODEL
cluster_up --nodes 1 --cpus 2 --mode plain --kill-wait 60

running() { # NAME
    wait_for_step "$1/log.jsonl" 25 || diag "$(cat "$1.out")"
}

saved() { # NAME: the step that the log ends with
    like "$(cat "$1.out")" \
        "; the state of step $(last_step "$1/log.jsonl") is saved in $1/checkpoints" \
        "$1: the last step is saved"
    unlike "$(cat "$1.out")" 'requesting a new allocation|requeued' "$1: it does not come back"
}

# in_terminal NAME COMMAND: in the background as $pid; press sends Ctrl-C. COMMAND begins with exec:
# a shell that waits dies of the same Ctrl-C, dash by its code even when its child handled it.
in_terminal() {
    mkfifo "$1.keys"
    timeout "$HANG_S" script -qfec "$2" "$1.out" <"$1.keys" >/dev/null 2>&1 &
    pid=$!
    exec 3>"$1.keys"
    kill_at_exit $pid
    running "$1"
}
press() {
    printf '\003' >&3
}
leave() {
    exec 3>&-
    wait "$pid"
}

# shellcheck disable=SC2016 # for the inner shell
in_terminal once 'exec srun --accel-config=two.yaml $TRAIN $MODEL --out once'
press
leave
is $? 75 "Ctrl-C: srun ends 75" || diag "$(cat once.out)"
saved once
like "$(cat once.out)" 'not restarted: the run was interrupted; run the same command to resume' "it says how to go on"

# The save that the first one asked for hangs.
failcall=$ACCEL_BUILD/tests/faults/.libs/failcall.so
if [ -r "$failcall" ] && ! built_with_sanitizer; then
    # shellcheck disable=SC2016 # for the inner shell
    in_terminal twice 'exec srun --accel-config=two.yaml env FAILCALL_PATH=/.tmp-step_ FAILCALL_AT=2 FAILCALL_HOW=hang \
        FAILCALL_SEEN=hangs LD_PRELOAD='"$failcall"' $TRAIN $MODEL --out twice'
    press
    wait_until [ -e hangs ]
    like "$(cat twice.out)" 'press Ctrl-C again to end at once \(nothing is saved yet\)' "twice: the first one says what is kept"
    press
    leave
    is $? 130 "twice: the second one ends it at once"
    like "$(tr -d '\r' <twice.out)" \
        'not restarted: srun received SIGINT; to continue, run again: srun --accel-config=two.yaml env .* --out twice$' \
        "twice: srun says how to go on"
else
    skip 3 "the fault injector is not built, or this is a sanitizer build"
fi

# shellcheck disable=SC2016 # for the inner shell
in_terminal salloc 'exec salloc -Q -n2 srun --accel-config=two.yaml $TRAIN $MODEL --out salloc'
press
leave
saved salloc

for signal in TERM HUP; do
    # A child of an asynchronous list would ignore SIGINT.
    # shellcheck disable=SC2086
    env --default-signal=INT srun --accel-config=two.yaml "$TRAIN" $MODEL --out $signal >$signal.out 2>&1 </dev/null &
    pid=$!
    running $signal
    kill -$signal $pid
    wait $pid
    is $? 75 "SIG$signal: srun ends 75"
    saved $signal
    like "$(cat $signal.out)" "srun received SIG$signal: the tasks have 60 s to save and end" \
        "SIG$signal: srun says so"
done

# A program that does not listen: srun kills it at the second one.
# shellcheck disable=SC2016 # for the inner shell
timeout "$HANG_S" srun --accel-config=two.yaml sh -c 'trap "" TERM INT; echo >deaf.$SLURM_PROCID; sleep 100' >deaf.out 2>&1 &
limit=$!
wait_until [ -e deaf.1 ]
read -r pid <"/proc/$limit/task/$limit/children"
kill -TERM "$pid"
wait_until grep -q 'srun received SIGTERM' deaf.out
kill -TERM "$pid"
wait $limit
is $? 137 "a second SIGTERM ends at once"
like "$(cat deaf.out)" 'not restarted: srun received SIGTERM; to continue, run again: ' "and is not run again"

cat >job.sh <<'JOB'
#!/bin/sh
srun $TRAIN $MODEL --out batch
JOB
job=$(timeout "$HANG_S" sbatch --parsable --accel-config=two.yaml -o batch.out job.sh)
running batch
scancel "$job"
wait_for_job "$job" CANCELLED
ok $? "scancel: the job is CANCELLED"
wait_until grep -q 'is saved in batch' batch.out
saved batch
no_node_drained
ok $? "no node is drained"
done_testing
