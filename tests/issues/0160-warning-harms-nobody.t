#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: a script without a handler died of the warning that accel asks for, long before its
# limit and without a line.
# The warning that accel asks Slurm for never ends a program that does not know of it: a
# script without a handler runs on to its end, through the signal as such and through that of
# a real time limit. A handler of Python's gets it and brings the run back; who asks for a
# signal of his own gets it as Slurm sends it; who is ended unsaved is told what saves.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
need_plugin
need_stepper
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\n' >two.yaml
printf 'distributed_type: MULTI_CPU\nnum_processes: 1\n' >one.yaml
# 59 s before a limit of 60: the warning comes within the first half minute.
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\naccel: {preemption: {lead_seconds: 59}}\n' >limit.yaml

# Task 0 is the script that knows nothing, task 1 a program that notes each signal in FILE.
# The script ends once task 1 was warned. stepper exits 0 with its fifth argument.
cat >pair.sh <<'PAIR'
PATH=${PATH:-/usr/bin:/bin} # --export=NONE leaves none
if [ "$SLURM_PROCID" = 1 ]; then exec "$1" "$2.steps" exit=0; fi
until [ -e "$2.steps.1" ]; do sleep 0.05; done # task 1 waits for signals
: >"$2.started"
while ! [ -s "$2.steps.signals" ]; do sleep 0.05; done
sleep 0.2
echo "script: done, restart $ACCEL_RESTART_COUNT"
PAIR

# stepper's rank 0 alone writes steps; its tasks note every signal.
warned() { # NAME
    grep -q USR1 "$1.steps.signals" 2>/dev/null
}

job_of() { # NAME: the running job of that name
    timeout "$HANG_S" squeue -h -n "$1" -t R -o %A | head -n 1
}

its_task_runs() { # NAME
    [ -e "$1.started" ] && [ -n "$(job_of "$1")" ]
}

signal_it() { # NAME
    wait_until its_task_runs "$1" || diag "$1 does not start"
    timeout "$HANG_S" scancel -s USR1 "$(job_of "$1")"
}

cluster_up --nodes 1 --cpus 2

# ---- the signal by itself -----------------------------------------------------------------
timeout "$HANG_S" srun -J bare --accel-config=two.yaml sh pair.sh "$stepper" bare >bare.out 2>&1 &
pid=$!
signal_it bare
wait $pid
is $? 0 "a script without a handler survives the warning" || diag "$(cat bare.out)"
warned bare
ok $? "which was sent"
like "$(cat bare.out)" '^script: done, restart 0$' "and runs to its end"
unlike "$(cat bare.out)" 'accel: ' "nothing is said"

cat >batch.sh <<'BATCH'
#!/bin/sh
#SBATCH --accel-config=two.yaml -o batch.out
PATH=${PATH:-/usr/bin:/bin}
srun /bin/sh pair.sh "$1" batch
BATCH
for how in ALL NONE; do
    rm -f batch.started batch.steps.1 batch.steps.signals
    job=$(timeout "$HANG_S" sbatch --parsable --export=$how -J batch batch.sh "$stepper")
    signal_it batch
    wait_for_job "$job" 'COMPLETED|FAILED|CANCELLED'
    is "$(job_state "$job")" COMPLETED "the same in a batch job, --export=$how" || diag "$(cat batch.out)"
    like "$(cat batch.out)" '^script: done, restart 0$' "which runs on to its end"
done

# ---- who wants it, gets it -----------------------------------------------------------------
if command -v python3 >/dev/null 2>&1; then
    cat >wants.py <<'PY'
import os, signal, sys, time
if os.environ["ACCEL_RESTART_COUNT"] != "0":
    sys.exit(0)
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(85))
open("python.started", "w").close()
while True:
    time.sleep(0.05)
PY
    timeout "$HANG_S" srun -J python --accel-config=one.yaml python3 wants.py >python.out 2>&1 &
    pid=$!
    signal_it python
    wait $pid
    is $? 0 "a handler of Python's gets the warning" || diag "$(cat python.out)"
    like "$(cat python.out)" 'exit 85\); requesting a new allocation \(restart 1 ' "and brings the run back"
else
    skip 2 "no python3"
fi

# A signal of one's own is none of accel's: shells can trap it, and it ends who does not.
cat >trap.sh <<'TRAP'
trap 'echo trapped; exit 7' USR1
: >$1.started
while :; do sleep 0.05; done
TRAP
timeout "$HANG_S" srun -J own --signal=USR1@120 --accel-config=one.yaml sh trap.sh own >own.out 2>&1 &
pid=$!
signal_it own
wait $pid
is $? 7 "--signal of one's own: the shell's trap works" || diag "$(cat own.out)"
cat >own.sh <<'OWN'
#!/bin/sh
#SBATCH --accel-config=one.yaml --signal=USR1@120 -o own-batch.out
srun sh trap.sh own-batch
OWN
job=$(timeout "$HANG_S" sbatch --parsable -J own-batch own.sh)
signal_it own-batch
wait_for_job "$job" 'COMPLETED|FAILED|CANCELLED'
is "$(job_field "$job" ExitCode)" 7:0 "the same in a batch script" || diag "$(cat own-batch.out)"
job=$(timeout "$HANG_S" sbatch --parsable --signal=USR1@120 --accel-config=one.yaml -J typed -o typed.out \
    --wrap 'srun sh trap.sh typed')
signal_it typed
wait_for_job "$job" 'COMPLETED|FAILED|CANCELLED'
is "$(job_field "$job" ExitCode)" 7:0 "and on sbatch's command line" || diag "$(cat typed.out)"

# ---- who is ended unsaved is told ------------------------------------------------------------
# shellcheck disable=SC2016 # for the inner shell
run_srun --signal=USR1@120 --accel-config=one.yaml \
    sh -c '[ "$ACCEL_RESTART_COUNT" != 0 ] || kill -USR1 $$'
like "$srun_out" 'ended by the warning signal with exit code 138; accel knows of no checkpoint of this attempt; a program that saves on SIGUSR1 and SIGTERM and then exits with 85 loses nothing .*doc/python.md' \
    "ended by a warning all the same: one line says what would have saved it"

# shellcheck disable=SC2016 # for the task's shell
timeout "$HANG_S" srun -J preempted --accel-config=one.yaml sh -c \
    '[ "$ACCEL_RESTART_COUNT" = 0 ] || exit 0; : >preempted.started; while :; do sleep 0.05; done' \
    >preempted.out 2>&1 &
pid=$!
wait_until its_task_runs preempted
timeout "$HANG_S" scontrol update PartitionName=low GraceTime=0
timeout "$HANG_S" srun -p high -n1 --exclusive --accel-config=none true >/dev/null 2>&1
wait $pid
is $? 0 "preempted without a handler: it comes back" || diag "$(cat preempted.out)"
like "$(cat preempted.out)" 'preempted with exit code [0-9]*; accel knows of no checkpoint of this attempt; a program that saves on SIGUSR1' \
    "and is told what goes on instead"

# ---- a real time limit ------------------------------------------------------------------------
run_srun -J limit --time=1 --accel-config=limit.yaml sh pair.sh "$stepper" limit
is $? 0 "a script without a handler survives the warning of a real time limit"
warned limit
ok $? "which Slurm sent"
like "$srun_out" '^script: done, restart 0$' "and runs to its end"
no_node_drained
ok $? "no node is drained"
done_testing
