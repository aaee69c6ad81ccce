#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A training that is stopped again and again, at random moments and in every way there is,
# as batch job, which writes all its checkpoints in the background, and as bare srun at the
# same time: each time it resumes, its log holds every step once, and its losses are those of
# the uninterrupted run bit for bit.
#     6160-preempt-random.t [COUNT [SEED [ASYNC [NOTICE]]]]   5 stops of each; make check-preempt: 200
#     ASYNC: the accel.checkpoint.async of the bare srun; auto
#     NOTICE: what a preempted job gets, user or term (accel-cluster); user after an even SEED
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
need_plugin
[ -x "$TRAIN" ] || skip_all "examples/train is not built"
count=${1:-5}
seed=${2:-$$}
notice=${4:-$([ $((seed % 2)) = 0 ] && echo user || echo term)}
batch_count=$((count / 2)) bare_count=$((count - count / 2))
# Far more steps than a training of the short form is stopped in.
STEPS=600
[ "$count" -gt 5 ] || STEPS=240
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
train_text text.txt
train_config two.yaml FULL_SHARD bf16 2 1 "checkpoint: {every_steps: 25, async: ${3:-auto}}" \
    "preemption: {max_restarts: 100000}"
train_config async.yaml FULL_SHARD bf16 2 1 "checkpoint: {every_steps: 25, async: true}" \
    "preemption: {max_restarts: 100000}"
ARGS="--layers 2 --heads 4 --width 64 --seq 64 --batch 8 --steps $STEPS --sample 0"
diag "$batch_count stops of a batch job, $bare_count of a bare srun; seed $seed, notice $notice"

# random FILE MAX: 0..MAX-1; the state of each chain is a file, so that its choices do not
# hang on how fast the other one is.
random() {
    awk -v max="$2" '{ s = ($1 * 16807) % 2147483647; print s >FILENAME
                       print int(s / 2147483647 * max) }' "$1"
}

starts() { # OUT: lives that got as far as the first step
    grep -c ' start ' "$1/checkpoints/history" 2>/dev/null || true
}

# The job of this name that holds a node now; empty when there is none.
running_job() { # NAME
    timeout "$HANG_S" squeue -h -n "$1" -t R -o %A 2>/dev/null | head -n 1
}

kill_a_rank() { # JOB RANK
    grep -lzx "SLURM_JOB_ID=$1" /proc/[0-9]*/environ 2>/dev/null |
        while IFS=/ read -r _ _ p _; do
            [ "$(cat "/proc/$p/comm" 2>/dev/null)" = train ] || continue
            tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | grep -qx "SLURM_PROCID=$2" &&
                kill -9 "$p"
        done
}

is_done() { # NAME
    [ -f "$1.over" ] || [ -f "$1.stuck" ]
}

# Gives a training up that wrote nothing for $HANG_S seconds, and says what Slurm knows of it.
watch_progress() { # NAME
    size=-1
    while ! is_done "$1"; do
        now=$(cat "$1/log.jsonl" "$1/checkpoints/history" 2>/dev/null | wc -c)
        if [ "$now" != "$size" ]; then
            size=$now since=$(date +%s)
        elif [ $(($(date +%s) - since)) -gt "$HANG_S" ]; then
            diag "$1: no progress for $HANG_S s" "$(timeout "$HANG_S" sinfo -N -l 2>&1)" \
                "$(timeout "$HANG_S" squeue 2>&1)" "$(timeout "$HANG_S" scontrol show job 2>&1)"
            : >"$1.stuck"
        fi
        sleep 0.5
    done
}

# A life to stop: the one that runs as NAME and is not $last_life. Sets $job and $life, the
# job and for a batch job its restart; fails when the training is over. (Slurm counts a
# restart of a bare srun's job, too, when it preempts it, but it never comes back.)
next_life() { # NAME
    while :; do
        ! is_done "$1" || return 1
        job=$(running_job "$1")
        life=$job.
        case $1 in batch*) life=$job.$(job_field "${job:-0}" Restarts) ;; esac
        [ -n "$job" ] && [ "$life" != "$last_life" ] && break
        sleep 0.3
    done
    last_life=$life
}

_passed() { # NAME STEP
    is_done "$1" || [ "$(last_step "$1/log.jsonl")" -ge "$2" ]
}

# One stop in five comes while the ranks are starting.
random_moment() { # NAME
    [ "$(random "$1.random" 5)" != 0 ] || return 0
    moment=$(($(last_step "$1/log.jsonl") + 1 + $(random "$1.random" 40)))
    wait_until _passed "$1" $moment
}

take_the_node() { # NODE
    timeout "$HANG_S" srun -p high -w "$1" -n1 --exclusive --accel-config=none true >/dev/null 2>&1
}

# Stops $job, which runs on NODE as NAME, in a random way.
stop_somehow() { # NAME NODE
    way=$(random "$1.random" 6)
    case $way in
    0) timeout "$HANG_S" scontrol update PartitionName="low$2" GraceTime=20 && take_the_node "$2" ;;
    1) timeout "$HANG_S" scontrol update PartitionName="low$2" GraceTime=0 && take_the_node "$2" ;;
    2) timeout "$HANG_S" scancel -s USR1 "$job" ;;
    3) timeout "$HANG_S" scancel -s TERM "$job" ;;
    4) kill_a_rank "$job" "$(random "$1.random" 2)" ;;
    5)
        case $1 in
        batch*) timeout "$HANG_S" scontrol requeue "$job" ;;
        *) timeout "$HANG_S" scancel "$job" ;;
        esac
        ;;
    esac
    echo "$way $life $(date +%T)" >>"$1.stops"
}

# Whatever ends the batch job other than with 0 and is no reason for it to come back by
# itself is cured as a user would: requeued by hand. TIMEOUT is what Slurm calls a preempted job, too,
# that was at its end when its grace time was over: only one with all steps is cured.
watch_batch() { # NAME JOB
    while [ ! -f "$1.stuck" ]; do
        case $(job_state "$2") in
        COMPLETED) : >"$1.over" && return ;;
        FAILED | CANCELLED) timeout "$HANG_S" scontrol requeue "$2" ;;
        TIMEOUT) [ "$(last_step "$1/log.jsonl")" -lt $STEPS ] || timeout "$HANG_S" scontrol requeue "$2" ;;
        esac
        sleep 0.3
    done
}

start_batch() { # NAME NODE
    printf '#!/bin/sh\nsrun --accel-config=async.yaml %s %s --data text.txt --out %s\n' \
        "$TRAIN" "$ARGS" "$1" >"$1.sh"
    batch=$(timeout "$HANG_S" sbatch --parsable --accel-config=async.yaml -p "low$2" -w "$2" -J "$1" -N1 \
        -o "$1.out" "$1.sh")
    watch_batch "$1" "$batch" &
}

# The same command again until it ends 0.
start_bare() { # NAME NODE
    # shellcheck disable=SC2086
    (
        until timeout 3600 srun -p "low$2" -w "$2" -J "$1" -N1 --accel-config=two.yaml "$TRAIN" \
            $ARGS --data text.txt --out "$1" >>"$1.out" 2>&1 </dev/null; do
            [ ! -f "$1.stuck" ] || exit
        done
        : >"$1.over"
    ) &
}

# Trainings of $STEPS steps, one after another, until COUNT stops are done.
chain() { # batch|bare NODE COUNT
    round=0 done=0
    while [ "$done" -lt "$3" ]; do
        round=$((round + 1)) name=$1-$round last_life=
        : >"$name.stops"
        echo "$((seed + round + $3))" >"$name.random"
        "start_$1" "$name" "$2"
        watch_progress "$name" &
        while [ "$done" -lt "$3" ] && next_life "$name"; do
            random_moment "$name"
            ! is_done "$name" || break
            stop_somehow "$name" "$2"
            done=$((done + 1))
        done
        wait_until is_done "$name"
        wait
        [ ! -f "$name.stuck" ] || return
    done
}

cluster_up --nodes 2 --cpus 2 --kill-wait 3 --notice "$notice"
for node in n1 n2; do
    timeout "$HANG_S" scontrol create PartitionName=low$node Nodes=$node PriorityTier=1 GraceTime=20 \
        PreemptMode=REQUEUE >/dev/null
done
# shellcheck disable=SC2086
timeout "$HANG_S" srun -N1 --accel-config=two.yaml "$TRAIN" $ARGS --data text.txt --out reference \
    >reference.out 2>&1 </dev/null
ok $? "uninterrupted reference run" || bail_out "the trainer does not run: $(cat reference.out)"
chain batch n1 $batch_count &
first=$!
chain bare n2 $bare_count &
second=$!
kill_at_exit $first
kill_at_exit $second
wait $first $second

for stops in *.stops; do
    name=${stops%.stops}
    [ -f "$name.over" ]
    ok $? "$name: ended 0 after $(wc -l <"$stops") stops ($(cut -d' ' -f1 "$stops" | tr -d '\n'))" ||
        diag "$(tail -n 40 "$name.out")"
    each_step_once "$name/log.jsonl" $STEPS
    ok $? "$name: the log holds every step once ($(starts "$name") starts)" ||
        diag "up to step $(last_step "$name/log.jsonl"): $(tail -n 40 "$name.out")"
    same_bits reference/log.jsonl "$name/log.jsonl"
    ok $? "$name: losses equal the uninterrupted run bit for bit"
done
is "$(cat ./*.stops | wc -l)" "$count" "$count stops"
no_node_drained
ok $? "no node is drained"
done_testing
