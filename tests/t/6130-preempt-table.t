#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What Slurm does to a job that has to go, in all its cases: what the tasks see, who brings
# the job back, exactly once, and what becomes of it. One row of a table per case; rows run
# at the same time, each on a node of its own. doc/preemption.md explains the rows.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
need_plugin
need_stepper
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\n' >two.yaml
cp two.yaml never.yaml
printf 'accel:\n  preemption:\n    max_restarts: 0\n' >>never.yaml
cp two.yaml off.yaml
printf 'accel:\n  preemption:\n    requeue: false\n' >>off.yaml
# With SCRIPT=plain the script ends 0 whatever the step did: its code must not decide.
cat >job.sh <<'JOB'
#!/bin/sh
trap : USR1
srun "$@"
code=$?
[ "$SCRIPT" = plain ] || exit $code
JOB
NODES=10

# ---- one row ----------------------------------------------------------------------------

told() { # NAME: rank 0 of the first life got a signal that says stop
    grep -q '^0 0 [TU]' "$1.steps.signals" 2>/dev/null
}

signals() { # NAME: those that rank 0 of the first life got, without SIGCONT
    sed -n 's/^0 0 //p' "$1.steps.signals" 2>/dev/null | grep -v CONT | sort -u | tr '\n' ' '
}

high() { # NODE
    timeout "$HANG_S" srun -p high -w "$1" -n1 --exclusive --accel-config=none true >/dev/null 2>&1
}

its_job() { # NAME
    [ -n "$job" ] || job=$(timeout "$HANG_S" squeue -h -n "$1" -o %A | head -n 1)
    echo "$job"
}

# Ctrl-C twice within a second: srun gives the step up.
press_ctrl_c() {
    kill -INT "$srun"
    sleep 0.2
    kill -INT "$srun"
}

stop_it() { # HOW NODE NAME
    case $1 in
    high) high "$2" ;;
    requeue) timeout "$HANG_S" scontrol requeue "$(its_job "$3")" ;;
    cancel) timeout "$HANG_S" scancel "$(its_job "$3")" ;;
    usr1) timeout "$HANG_S" scancel -s USR1 "$(its_job "$3")" ;;
    term) timeout "$HANG_S" scancel -s TERM "$(its_job "$3")" ;;
    step) timeout "$HANG_S" scancel "$(its_job "$3").0" ;;
    ctrl-c) press_ctrl_c ;;
    grace+*) # something more while it saves
        high "$2" &
        wait_until told "$3" # Slurm looks for somebody to preempt every 60 s at least
        stop_it "${1#grace+}" "$2" "$3"
        wait $!
        ;;
    esac
}

# Every step once, the lives in order, and as many of them as LIVES.
steps_are_whole() { # NAME LIVES
    awk -v lives="$2" '$1 != NR || $2 < last || $2 > last + 1 { bad = 1 } { last = $2 }
        END { exit bad || NR < 3 || last != lives - 1 }' "$1.steps" || diag "$(cat "$1.steps")"
}

check_row() { # NAME GOT-STATE WANT-STATE GOT-RESTARTS WANT-RESTARTS SIGNALS LINE
    printf '%s\n' "$2" | grep -E -q -x -e "$3"
    ok $? "$1: ends $3" || diag "it ended $2"
    is "$4" "$5" "$1: comes back $5 times"
    # Without a grace time the signals come together, in any order.
    if [ "$6" = any ]; then told "$1"; else [ "$(signals "$1")" = "$6" ]; fi
    ok $? "$1: the tasks see $6" || diag "$(signals "$1")"
    steps_are_whole "$1" $(($5 + 1))
    ok $? "$1: every step once"
    like "$(cat "$1.out")" "$7" "$1: the output says what happened"
}

batch_row() { # NAME FORM PARTITION HOW STATE RESTARTS SIGNALS LINE STEPPER-ARGS OPTIONS NODE
    [ "$2" != plain ] || export SCRIPT=plain
    # shellcheck disable=SC2086
    job=$(timeout "$HANG_S" sbatch --parsable --accel-config="$config" -J "$1" -p "$3" -w "${11}" -N1 \
        -n2 -o "$1.out" ${10} job.sh ${env_words} "$stepper" "$1.steps" $9)
    wait_until has_steps "$1.steps"
    stop_it "$4" "${11}" "$1"
    wait_for_job "$job" "COMPLETED|FAILED|CANCELLED|PREEMPTED|TIMEOUT"
    check_row "$1" "$(job_state "$job")" "$5" "$(job_field "$job" Restarts)" "$6" "$7" "$8"
}

bare_row() { # as batch_row; STATE is srun's exit code
    job=
    # A child of an asynchronous list would ignore SIGINT.
    # shellcheck disable=SC2086
    timeout "$HANG_S" env --default-signal=INT,QUIT srun --accel-config="$config" -J "$1" -p "$3" \
        -w "${11}" -N1 ${10} "$stepper" "$1.steps" $9 >"$1.out" 2>&1 </dev/null &
    limit=$!
    wait_until has_steps "$1.steps"
    read -r srun <"/proc/$limit/task/$limit/children"
    stop_it "$4" "${11}" "$1"
    wait $limit
    check_row "$1" $? "$5" "$(grep -c 'requesting a new allocation' "$1.out")" "$6" "$7" "$8"
}

# Queues a row: NAME FORM[:CONFIG] PARTITION HOW STATE RESTARTS SIGNALS LINE
# [STEPPER-ARGS [SLURM-OPTIONS]]. FORM: batch, plain (a script that ends 0), bare.
rows=0 names='' env_words=''
row() {
    rows=$((rows + 1)) names="$names $1"
    node=n$(((rows - 1) % NODES + 1))
    form=${2%:*} config=two.yaml
    [ "$form" = "$2" ] || config=${2#*:}.yaml
    (
        if [ "$form" = bare ]; then set -- bare_row "$@"; else set -- batch_row "$@"; fi
        [ $# = 11 ] || set -- "$@" ""
        [ $# = 11 ] || set -- "$@" ""
        "$1" "$2" "$form" "$4" "$5" "$6" "$7" "$8" "$9" "${10}" "${11}" $node
    ) >"$1.tap" 2>&1 &
    [ $((rows % NODES)) != 0 ] || wait
}

# Waits for the rows and counts their checks.
finish_rows() {
    wait
    for name in $names; do
        while IFS= read -r line; do
            case $line in
            'ok '*) _tap_result 0 "${line#ok * - }" ;;
            'not ok '*) _tap_result 1 "${line#not ok * - }" || : ;;
            *) printf '%s\n' "$line" ;;
            esac
        done <"$name.tap"
        ! grep -q '^not ok' "$name.tap" || diag "$(cat "$name.out")"
    done
    rows=0 names=''
    no_node_drained
    ok $? "no node is drained"
}

partition() { # NAME GRACE MODE
    timeout "$HANG_S" scontrol create PartitionName="$1" Nodes=ALL PriorityTier=1 GraceTime="$2" \
        PreemptMode="$3" >/dev/null || diag "no partition $1"
}

partitions() {
    partition grace 60 REQUEUE
    partition short 2 REQUEUE
    partition none 0 REQUEUE
    partition cancel 60 CANCEL
    partition cancel0 0 CANCEL
}

# ---- a site that signals the user's signal, requeues 85, requeues by default -----------------

cluster_up --nodes $NODES --cpus 2 --mode plain --kill-wait 3 --set RequeueExit=85
partitions
saved='preempted with its state saved \(exit 85\)'
# Without a grace time a loaded machine may use up KillWait: then one task is killed.
late="($saved|was preempted \\(exit 137\\))"
again='; requesting a new allocation \(restart 1 of at most 100\)$'
mkdir markers markers-2 # job numbers begin again in the second cluster
ask=requeue=$tap_tmp/markers
# Slow ones first: they end together.
row user-signal-b batch short high COMPLETED 1 'TERM ' 'DUE TO' "" --signal=B:USR1@30
row ignored batch short high COMPLETED 1 'TERM USR1 ' 'DUE TO' ignore
row bare-ignored bare short high 0 1 'TERM USR1 ' "was preempted \\(exit [0-9]+\\)$again" ignore
row rank0 batch grace high COMPLETED 1 'USR1 ' 'DUE TO JOB REQUEUE' "$ask"
row plugin plain grace high COMPLETED 1 'USR1 ' "$saved; requeued as restart 1 of at most 100$"
row exit-85 batch grace high COMPLETED 1 'USR1 ' "$saved; requeued as restart 1 of at most 100$"
row exit-0 batch grace high COMPLETED 0 'USR1 ' \
    'ended with exit code 0 after the notice of a preemption: it counts as finished and is not run again' exit=0
row exit-1 batch grace high COMPLETED 1 'USR1 ' 'preempted \(exit 1\); requeued as restart 1' exit=1
row no-grace batch none high COMPLETED 1 any 'DUE TO PREEMPTION' "$ask"
row no-grace-0 batch none high COMPLETED 1 any 'DUE TO PREEMPTION' exit=0
row cancel-site batch cancel high COMPLETED 1 'USR1 ' 'DUE TO JOB REQUEUE' "$ask"
row cancel-site-0 batch cancel0 high COMPLETED 1 any 'DUE TO PREEMPTION' "$ask"
row cancel-plugin plain cancel high COMPLETED 1 'USR1 ' "$saved; requeued as restart 1"
row by-hand batch grace requeue COMPLETED 1 'TERM ' 'DUE TO JOB REQUEUE' "$ask"
row warned batch grace usr1 COMPLETED 1 'USR1 ' 'stepper: warned|DUE TO JOB REQUEUE' "$ask"
row sigterm batch grace term FAILED 0 'TERM ' 'stepper: cancelled; not restarted' "$ask"
row step-killed batch grace step FAILED 0 '' 'tasks 0-1: Killed' "$ask"
row scancel batch grace cancel CANCELLED 0 'TERM ' 'CANCELLED' "$ask"
row scancel-in-grace batch grace grace+cancel CANCELLED 0 'USR1 ' \
    'stepper: cancelled; not restarted|CANCELLED' "$ask save=1500"
row scancel-at-cancel batch cancel grace+cancel CANCELLED 0 'USR1 ' \
    'stepper: cancelled; not restarted|CANCELLED' "$ask save=1500"
row no-requeue plain grace high COMPLETED 0 'USR1 ' \
    'not requeued: (it|the job) was submitted with --no-requeue' "$ask" --no-requeue
row never plain:never grace high COMPLETED 0 'USR1 ' 'not requeued: the limit of 0 restarts is reached'
row off plain:off grace high COMPLETED 0 'USR1 ' 'not requeued: accel.preemption.requeue is false'
env_words='env PATH=/nonexistent'
row no-scontrol batch grace high COMPLETED 1 'USR1 ' "$saved; requeued as restart 1" "$ask"
env_words=
row bare bare grace high 0 1 'USR1 ' "$saved$again" "$ask"
row bare-1 bare grace high 0 1 'USR1 ' "was preempted \\(exit 1\\)$again" exit=1
row bare-no-grace bare none high 0 1 any "$late$again" "$ask"
row bare-cancel-site bare cancel high 0 1 'USR1 ' "$saved$again" "$ask"
row bare-cancel-0 bare cancel0 high 0 1 any "$late$again" "$ask"
row bare-warned bare grace usr1 0 1 'USR1 ' "stopped with its state saved \\(exit 85\\)$again" "$ask"
row bare-sigterm bare grace term 75 0 'TERM ' 'stepper: cancelled; not restarted' "$ask"
# 137: on a loaded machine KillWait is over before rank 0 has its answer.
row bare-scancel bare grace cancel '75|137' 0 'TERM ' 'stepper: cancelled; not restarted|CANCELLED' "$ask"
row bare-in-grace bare grace grace+cancel 85 0 'USR1 ' 'CANCELLED' "$ask save=1500"
row bare-never bare:never grace high 85 0 'USR1 ' \
    'not restarted: the limit of restarts is reached \(accel.preemption.max_restarts\)'
row ctrl-c bare grace ctrl-c 130 0 '' 'sending Ctrl-C'
row ctrl-c-in-grace bare grace grace+ctrl-c 130 0 'USR1 ' 'sending Ctrl-C' save=1500
finish_rows
is "$(find markers -name 'requeue.*' | wc -l)" 4 "one marker for each requeue that rank 0 asked for"
cluster_down

# ---- a site that does none of that ------------------------------------------------------------

cluster_up --nodes $NODES --cpus 2 --mode plain --kill-wait 3 --set JobRequeue=0 --notice term
partitions
ask=$ask-2
row plain-rank0 batch grace high COMPLETED 1 'TERM ' 'DUE TO JOB REQUEUE' "$ask"
row plain-plugin batch grace high COMPLETED 1 'TERM ' "$saved; requeued as restart 1"
row plain-exit-0 batch grace high COMPLETED 0 'TERM ' 'exit code 0 after the notice of a preemption' exit=0
row plain-bare-1 bare grace high 0 1 'TERM ' "was preempted \\(exit 1\\)$again" exit=1
row plain-signal batch grace high COMPLETED 1 'TERM ' "$saved; requeued as restart 1" "" --signal=USR1@30
row plain-cancel batch cancel high COMPLETED 1 'TERM ' 'DUE TO JOB REQUEUE' "$ask"
row plain-cancel-0 batch cancel0 high COMPLETED 1 'TERM ' 'DUE TO PREEMPTION' "$ask"
row plain-none batch none high COMPLETED 1 'TERM ' 'DUE TO PREEMPTION' "$ask"
row plain-bare bare grace high 0 1 'TERM ' "$saved$again" "$ask"
row plain-bare-none bare none high 0 1 'TERM ' "$late$again" "$ask"
finish_rows
done_testing
