#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# How a rank ends, on two nodes: srun names the rank that failed first and ends with its code,
# whether it raised, was killed, crashed, ended with a code or ran out of memory, and whatever the
# others say when they lose it. Where Slurm or the user ended the step, no rank is named. Nothing
# of it harms a node or leaves a file.
# What the tasks expand stands in single quotes.
# shellcheck disable=SC2016
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

need_plugin
can_mnt_mode || skip_all "two nodes need mount namespaces"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
# shellcheck disable=SC3045 # every sh of ours has it
ulimit -c 0
XDG_STATE_HOME=$tap_tmp/state
export XDG_STATE_HOME
mkdir state
steps=$XDG_STATE_HOME/accel/steps
printf 'distributed_type: MULTI_CPU\nnum_processes: 4\n' >four.yaml
printf 'distributed_type: MULTI_CPU\nnum_processes: 4\naccel: {preemption: {enabled: false}}\n' >off.yaml
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\n' >two.yaml

# end.sh OUT RANK COMMAND: this rank runs it when all have begun, and the others wait to be killed.
cat >end.sh <<'END'
: >"$1.$RANK"
[ "$RANK" != "$2" ] || rank=$2
until [ -e "$1.0" ] && [ -e "$1.1" ] && { [ "$WORLD_SIZE" = 2 ] || { [ -e "$1.2" ] && [ -e "$1.3" ]; }; }; do
    sleep 0.05
done
[ -z "${rank-}" ] || eval "$3"
while :; do sleep 0.05; done
END
# error TEXT: what a rank raised, at a time of its own in $AT (ns).
cat >error.sh <<'ERROR'
printf '{"message": {"message": "%s", "extraInfo": {"timestamp": "1", "time_ns": %s, "file": "train.py", "line": 12}}}' \
    "$1" "${AT-$(date +%s%N)}" >"$TORCHELASTIC_ERROR_FILE"
ERROR

none_left() { # DESCRIPTION
    is "$(ls -A "$steps" 2>/dev/null)$(find . -name '.accel-step*')" "" "$1: nothing is left"
}

runs=0
fails() { # DESCRIPTION RANK COMMAND CODE TEXT
    runs=$((runs + 1))
    run_srun -N2 --ntasks-per-node=2 --accel-config=four.yaml sh end.sh "run$runs" "$2" "$3"
    is "$srun_rc" "$4" "$1: srun ends with $4"
    like "$srun_out" "accel: job [0-9]+: rank $5\$" "and says: rank $5"
    is "$(printf '%s\n' "$srun_out" | grep -c 'failed first')" 1 "once"
    none_left "$1"
}

cluster_up --nodes 2 --cpus 4 --mode mnt --grace 30
fails "killed" 2 'kill -KILL $$' 137 \
    '2 \(n2\) failed first: killed by SIGKILL \(out of memory, or cancelled\)'
fails "a crash" 1 'kill -SEGV $$' 139 '1 \(n1\) failed first: killed by SIGSEGV'
fails "an abort" 3 'kill -ABRT $$' 134 '3 \(n2\) failed first: killed by SIGABRT'
fails "a code" 3 'exit 3' 3 '3 \(n2\) failed first: exited with code 3'
fails "a shell whose program was killed" 0 'sh -c "kill -KILL \$\$"; exit $?' 137 \
    '0 \(n1\) failed first: exited with code 137 \(SIGKILL: out of memory, or cancelled\)'
fails "an exception" 1 'sh error.sh "ValueError: bad"; exit 1' 1 \
    '1 \(n1\) failed first: ValueError: bad \(train.py:12\)'
fails "an exception, and a code of its own" 1 'sh error.sh "ValueError: bad"; exit 4' 4 \
    '1 \(n1\) failed first: ValueError: bad \(train.py:12\)'
fails "an exception, and a kill before the end" 1 'sh error.sh "ValueError: bad"; kill -KILL $$' 1 \
    '1 \(n1\) failed first: ValueError: bad \(train.py:12\)'

# Others that lose the rank tell of it, with clocks that run behind.
lost() { # DESCRIPTION COMMAND CODE TEXT
    runs=$((runs + 1))
    run_srun -N2 --ntasks-per-node=2 --accel-config=four.yaml sh -c \
        '[ "$RANK" = 2 ] || AT=100 sh error.sh "RuntimeError: Connection closed by peer [::1]:7"
        exec sh end.sh "$@"' sh "run$runs" 2 "$2"
    is "$srun_rc" "$3" "$1: srun ends with $3"
    like "$srun_out" "accel: job [0-9]+: rank $4\$" "and says: rank $4"
}
lost "killed, and others lose it" 'kill -KILL $$' 137 \
    '2 \(n2\) failed first: killed by SIGKILL \(out of memory, or cancelled\)'
lost "a code, and others lose it" 'exit 3' 3 '2 \(n2\) failed first: exited with code 3'
lost "an exception, and others lose it" 'sh error.sh "ValueError: bad"; exit 1' 1 \
    '2 \(n2\) failed first: ValueError: bad \(train.py:12\)'
# The rank that others wait for stands still, and they give up.
fails "a rank that is stopped" 0 \
    'AT=100 sh error.sh "RuntimeError: Timed out waiting 5000ms for recv"; exit 1' 1 \
    '0 \(n1\) failed first, but blames another rank: RuntimeError: Timed out waiting 5000ms for recv \(train.py:12\); ranks 1, 2, 3 reported nothing'
runs=$((runs + 1))
run_srun -N2 --ntasks-per-node=2 --accel-config=four.yaml sh -c \
    '[ "$RANK" != 1 ] || { : >"$1.1"; kill -STOP $$; sleep 600; }
    AT=10$RANK sh error.sh "RuntimeError: Timed out waiting 5000ms for recv"
    exec sh end.sh "$@"' sh "run$runs" 3 'exit 1'
is "$srun_rc" 1 "SIGSTOP: srun ends with the code of those that waited"
like "$srun_out" 'rank 0 (\(n1\) )?failed first, but blames another rank: .*; rank 1 reported nothing$' \
    "and says that nothing was heard of the rank"
none_left "SIGSTOP"

if command -v python3 >/dev/null 2>&1; then
    cat >memory.py <<'MEMORY'
import accel_slurm.failures, os

accel_slurm.failures.install()
if os.environ["RANK"] == "3":
    all = [bytearray(64 << 20) for _ in range(1000)]
import time; time.sleep(600)
MEMORY
    PYTHONPATH=$ACCEL_SRC/python run_srun -N2 --ntasks-per-node=2 --accel-config=four.yaml \
        sh -c 'ulimit -v 400000; exec python3 memory.py'
    is "$srun_rc" 1 "MemoryError: srun ends with Python's code"
    like "$srun_out" 'accel: job [0-9]+: rank 3 \(n2\) failed first: MemoryError \(memory.py:5\)$' \
        "and names rank and line"
else
    skip 2 "python3 is not installed"
fi

# Ranks by node, as RANK has them, where Slurm counts otherwise; nodes of other sizes.
runs=$((runs + 1))
run_srun -N2 --ntasks-per-node=2 -m cyclic --accel-config=four.yaml sh end.sh "run$runs" 1 'exit 3'
like "$srun_out" 'rank 1 \(n1\) failed first: exited with code 3$' "-m cyclic: the rank is RANK"
runs=$((runs + 1))
run_srun -N2 -n4 -m plane=3 --overcommit --accel-config=four.yaml sh end.sh "run$runs" 3 'exit 3'
like "$srun_out" 'rank 3 \(n2\) failed first: exited with code 3$' "3 tasks and 1: the same"
runs=$((runs + 1))
run_srun -N2 --ntasks-per-node=2 --accel-config=off.yaml sh end.sh "run$runs" 2 'exit 3'
is "$srun_rc" 3 "without accel.preemption: the same code"
like "$srun_out" 'rank 2 \(n2\) failed first: exited with code 3$' "and the same name"
run_srun -N2 --ntasks-per-node=2 --export=NONE --accel-config=four.yaml /bin/sh -c \
    '[ "$RANK" = 0 ] && exit 3; /bin/sleep 600'
like "$srun_out" 'rank 0 \(n1\) failed first: exited with code 3$' "--export=NONE: the same name"
run_srun -n2 -Q --accel-config=two.yaml sh -c 'env | grep "^SLURM_ACCEL" || true'
is "$srun_out" "" "the tasks do not see how slurmstepd finds the directory"

# ---- no failure of a rank
run_srun -N2 --ntasks-per-node=2 --accel-config=four.yaml sh -c 'exit 75'
is "$srun_rc" 75 "75 stays"
unlike "$srun_out" 'failed first' "and nobody failed"
run_srun -N2 --ntasks-per-node=2 --accel-config=four.yaml sh -c '[ "$ACCEL_RESTART_COUNT" != 0 ] || exit 85'
is "$srun_rc" 0 "85 stays: the step is started again"
unlike "$srun_out" 'failed first' "and nobody failed"
runs=$((runs + 1))
run_srun -N2 --ntasks-per-node=2 --accel-config=four.yaml sh end.sh "run$runs" 1 'kill -TERM $$'
is "$srun_rc" 143 "SIGTERM: srun's own code"
unlike "$srun_out" 'failed first' "who sends it wants the end"

config=four.yaml
ended() { # DESCRIPTION TASK COMMAND...: while the step runs; $job is its job
    runs=$((runs + 1))
    timeout --foreground "$HANG_S" srun -N2 --ntasks-per-node=2 "--accel-config=$config" sh -c "$2" sh "run$runs" >"run$runs.out" 2>&1 &
    pid=$!
    # shellcheck disable=SC2317 # called by wait_until
    begun() { [ -e "run$runs.0" ] && [ -e "run$runs.1" ] && [ -e "run$runs.2" ] && [ -e "run$runs.3" ]; }
    wait_until begun
    job=$(squeue -h -o %A)
    what=$1
    shift 2
    "$@"
    wait $pid
    said=$(cat "run$runs.out")
    unlike "$said" 'failed first' "$what: nobody failed" || diag "$said"
    none_left "$what"
}
# shellcheck disable=SC2317 # called by ended
cancel() { timeout "$HANG_S" scancel "$@" "$job"; }
# shellcheck disable=SC2317 # called by ended
interrupt() { kill -TERM $pid; } # --foreground: srun gets it once
waits=': >"$1.$RANK"; while :; do sleep 0.05; done'
ended "scancel" "$waits" cancel
ended "scancel of tasks that ignore SIGTERM" "trap '' TERM; $waits" cancel
ended "scancel of tasks that end with a code" "trap 'exit 3' TERM; $waits" cancel
config=off.yaml
ended "scancel without accel.preemption" "trap 'exit 3' TERM; $waits" cancel
config=four.yaml
ended "SIGTERM to srun" "trap 'exit 3' TERM; $waits" interrupt
# shellcheck disable=SC2317 # called by ended
preempt() { timeout "$HANG_S" srun -p high -N2 -n2 --exclusive --accel-config=none true >/dev/null 2>&1; }
timeout "$HANG_S" scontrol update PartitionName=low GraceTime=0
ended "preempted" "[ \"\$ACCEL_RESTART_COUNT\" = 0 ] || exit 0; $waits" preempt
ended "preempted, and the tasks end with a code" \
    "[ \"\$ACCEL_RESTART_COUNT\" = 0 ] || exit 0; trap 'exit 3' TERM; $waits" preempt

# ---- where nothing can be noted
gone() { # DESCRIPTION COMMAND
    runs=$((runs + 1))
    run_srun -N2 --ntasks-per-node=2 --accel-config=four.yaml sh end.sh "run$runs" 2 "$2; exit 3"
    unlike "$srun_out" 'failed first' "$1: nobody is named"
    [ "$srun_rc" != 0 ]
    ok $? "and srun fails ($srun_rc)"
}
gone "the directory is gone" 'rm -r "$ACCEL_STEP_REPORTS"'
mkdir elsewhere
gone "a link in its place" 'rm -r "$ACCEL_STEP_REPORTS"; ln -s "$PWD/elsewhere" "$ACCEL_STEP_REPORTS"'
is "$(ls -A elsewhere)" "" "and nothing is written behind it"
rm -f "$steps"/*
gone "a file in its place" 'rm -r "$ACCEL_STEP_REPORTS"; : >"$ACCEL_STEP_REPORTS"'
rm -f "$steps"/*
gone "a fifo in place of the note" 'mkfifo "$ACCEL_STEP_REPORTS/end.1.0"'
none_left "a fifo"
runs=$((runs + 1))
(
    unset XDG_STATE_HOME
    HOME=/nonexistent/home run_srun -N2 --ntasks-per-node=2 --accel-config=four.yaml sh end.sh "run$runs" 2 'exit 3'
    printf '%s\n' "$srun_rc $srun_out" >homeless
)
like "$(cat homeless)" '^3 ' "a home that is missing: the code"
like "$(cat homeless)" 'rank 2 \(n2\) failed first: exited with code 3$' "and the name"
none_left "a home that is missing"
no_node_drained
ok $? "no node is drained"
done_testing
