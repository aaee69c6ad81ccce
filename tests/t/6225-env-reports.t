#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What ranks report to their launcher: srun and accel launch name the rank that failed first, srun
# ends with its code and says from what a preempted run can resume; nothing of the reports is
# left. And what a task is given for it: their directory, the rules of a preemption, accel's own
# Python modules with accel.python.trainer.
# What the tasks expand stands in single quotes.
# shellcheck disable=SC2016
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

need_plugin
can_mnt_mode || skip_all "two nodes need mount namespaces"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
unset XDG_STATE_HOME ACCEL_ROOT PYTHONPATH
HOME=$tap_tmp/home
export HOME
mkdir home
steps=$HOME/.local/state/accel/steps
printf 'distributed_type: MULTI_CPU\nnum_processes: 4\n' >four.yaml
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\n' >two.yaml
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\naccel:\n  preemption: {enabled: false}\n  python: {trainer: true}\n' >trainer.yaml

# fail.sh OUT RANK:SECONDS...: these ranks raise, at that time by their own clocks; the first of
# them ends, and the others wait to be killed. TEXT is what they raise.
cat >fail.sh <<'FAIL'
out=$1
shift
ended=${1%:*}
for rank; do
    [ "${rank%:*}" = "$RANK" ] || continue
    printf '{"message": {"message": "%s", "extraInfo": {"timestamp": "%s", "file": "/src/train.py", "line": "12", "rank": "%s", "host": "%s"}}}' \
        "${TEXT-ValueError: bad shape}" "${rank#*:}" "$RANK" "n$((GROUP_RANK + 1))" >"$TORCHELASTIC_ERROR_FILE"
done
: >"$out.$RANK"
while :; do
    set -- "$out".*
    [ "$ended" != "$RANK" ] || [ $# -lt "$WORLD_SIZE" ] || exit 1
    sleep 0.05
done
FAIL

none_left() { # DESCRIPTION
    is "$(ls -A "$steps" 2>/dev/null)$(find . -name '.accel-step*')" "" "$1: nothing of the reports is left"
}

cluster_up --nodes 2 --cpus 4 --mode mnt --grace 30
run_srun -N2 --ntasks-per-node=2 --accel-config=four.yaml sh fail.sh one 2:100
is "$srun_rc" 1 "a rank raises: srun ends with its code"
like "$srun_out" 'accel: job [0-9]+: rank 2 \(n2\) failed first: ValueError: bad shape \(train.py:12\)$' "and names it"
none_left "a rank raises"
run_srun -N2 --ntasks-per-node=2 --accel-config=four.yaml sh fail.sh two 3:102 1:101 2:102
is "$srun_rc" 1 "three ranks raise: srun ends with 1"
like "$srun_out" 'rank 1 \(n1\) failed first' "and names the first by their clocks, not the first that has ended"
is "$(printf '%s\n' "$srun_out" | grep -c 'failed first')" 1 "and only that one"
TEXT='E: \u001b[2J\u202e red\ntwo lines' run_srun -n2 --accel-config=two.yaml sh fail.sh hostile 0:100
like "$srun_out" 'rank 0 \(n[12]\) failed first: E: \?\[2J\? red \(train.py:12\)$' "a hostile text is printable"
run_srun -n2 --accel-config=two.yaml sh -c \
    'mkfifo "$TORCHELASTIC_ERROR_FILE" && exit 3'
is "$srun_rc" 3 "a fifo: nobody waits for it, and the code stays"
like "$srun_out" 'rank [01] \([^)]+\) failed first: exited with code 3$' "and the end is what is known"
none_left "a fifo"

# The package writes the same, in a home that has nothing yet.
if command -v python3 >/dev/null 2>&1; then
    rm -r "$HOME/.local"
    cat >raises.py <<'RAISES'
import os, time
import accel_slurm

job = accel_slurm.job("kept")
open("raises." + os.environ["RANK"], "w").close()
while not all(os.path.exists(f"raises.{rank}") for rank in range(2)):
    time.sleep(0.05)
if os.environ["RANK"] == "1":
    raise ValueError("bad shape\nof two lines")
time.sleep(600)
RAISES
    PYTHONPATH=$ACCEL_SRC/python LD_LIBRARY_PATH=$ACCEL_BUILD/.libs \
        run_srun -n2 --accel-config=two.yaml python3 raises.py
    is "$srun_rc" 1 "accel_slurm: srun ends with 1"
    like "$srun_out" 'rank 1 \([^)]+\) failed first: ValueError: bad shape \(raises.py:9\)$' "and names the rank"
    [ -d "$steps" ]
    ok $? "the package has made the directory"
    none_left "accel_slurm"
else
    skip 4 "python3 is not installed"
fi

# Neither the user nor srun can make one: no variable, and no harm.
: >file
XDG_STATE_HOME=$tap_tmp/file run_srun -n2 --accel-config=two.yaml sh -c 'echo "[$TORCHELASTIC_ERROR_FILE$ACCEL_STEP_REPORTS]"'
is "$srun_rc/$(printf '%s\n' "$srun_out" | sort -u)" "0/[]" "a place that cannot be: the tasks get none"

# Without a home, and with a file of the user's.
(
    unset HOME
    run_srun -n2 --accel-config=two.yaml sh -c 'echo "$ACCEL_STEP_REPORTS" >where; exec sh fail.sh bare 1:100'
    printf '%s\n' "$srun_out" >bare.said
)
like "$(cat where)" "^$tap_tmp/\\.accel-step\\.accel\\.[0-9]+\\.0\\.0\$" "without HOME: the current directory"
like "$(cat bare.said)" 'rank 1 \(n[12]\) failed first' "and it works there"
none_left "without HOME"
TORCHELASTIC_ERROR_FILE=$tap_tmp/mine run_srun -n2 --accel-config=two.yaml sh fail.sh own 1:100
like "$srun_out" "kept from your environment: TORCHELASTIC_ERROR_FILE=$tap_tmp/mine" "a file of the user's stays"
like "$srun_out" 'rank 1 \([^)]+\) failed first: exited with code 1$' "and is not srun's to read"
[ -s mine ]
ok $? "nor to remove"

# Preempted: before and after a save.
cat >saves.sh <<'SAVES'
[ "$ACCEL_RESTART_COUNT" = 0 ] || exit 0
if [ "$RANK" = 0 ]; then
    printf 'opened /data/out\n%s\n' "$2" >"$ACCEL_STEP_REPORTS/job"
    : >"$1.runs"
fi
while :; do sleep 0.05; done
SAVES
preempted() { # NAME LINE WANTED
    timeout "$HANG_S" srun -n2 --accel-config=two.yaml sh saves.sh "$1" "$2" >"$1.out" 2>&1 &
    pid=$!
    wait_until test -e "$1.runs"
    timeout "$HANG_S" srun -p high -N2 -n2 --exclusive --accel-config=none true >/dev/null 2>&1
    wait $pid
    is $? 0 "$1: it comes back" || diag "$(cat "$1.out")"
    like "$(cat "$1.out")" "$3" "$1: $3"
    none_left "$1"
}
timeout "$HANG_S" scontrol update PartitionName=low GraceTime=0
preempted saved 'saved 40' 'preempted with exit code 143; it can resume from step 40, which it saved last'
preempted unsaved '' 'preempted with exit code 143; accel knows of no checkpoint of this attempt'

# A start that was killed leaves its reports to the next one.
cat >job.sh <<'JOB'
#!/bin/sh
#SBATCH --ntasks=2 --accel-config=two.yaml --open-mode=append
mkdir -p "$STEPS"
if [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then
    mkdir "$STEPS/accel.$SLURM_JOB_ID.7.0" "$STEPS/accel.1$SLURM_JOB_ID.7.0"
    : >"$STEPS/accel.$SLURM_JOB_ID.7.0/job"
    scontrol requeue "$SLURM_JOB_ID"
    sleep 600
fi
srun sh fail.sh batch 1:100
exit $?
JOB
job=$(STEPS=$steps timeout "$HANG_S" sbatch --parsable -o batch.out job.sh)
timeout "$HANG_S" scontrol update JobId="$job" StartTime=now >/dev/null 2>&1
wait_until test -s batch.out
wait_for_job "$job" 'FAILED|COMPLETED|CANCELLED'
is "$(job_field "$job" ExitCode)" 1:0 "a batch job: the code of the first failure" || diag "$(cat batch.out)"
like "$(cat batch.out)" "accel: job $job: rank 1 \\(n[12]\\) failed first" "and its name"
is "$(ls "$steps")" "accel.1$job.7.0" "what the first start has left is gone, that of another job is not"
rmdir "$steps/accel.1$job.7.0"

# ---- what the tasks are given
run_srun -n2 -Q --accel-config=two.yaml sh -c '[ "$RANK" = 1 ] || echo "$ACCEL_PREEMPTION $TORCHELASTIC_ERROR_FILE"'
like "$srun_out" "^signal=USR1 lead_seconds=120 max_restarts=100 requeue=true $steps/accel\\.[0-9]+\\.0\\.0/error\\.0\$" \
    "the rules of a preemption, and the file of the rank"
root=$tap_tmp/root
mkdir -p "$root/share/accel/python-site"
given='[ "$RANK" = 1 ] || echo "$ACCEL_PREEMPTION $ACCEL_PYTHON_TRAINER $PYTHONPATH"'
ACCEL_ROOT=$root PYTHONPATH=/users run_srun -n2 --accel-config=trainer.yaml sh -c "$given"
like "$srun_out" "^enabled=false 1 $root/share/accel/python-site:$root/share/accel/python:/users\$" \
    "trainer: accel's modules in front of the user's"
like "$srun_out" "accel.python.trainer is true, but there is no $root/share/accel/python-site/sitecustomize.py" \
    "without sitecustomize.py srun says so"
like "$srun_out" 'accel: job [0-9]+: accel.python.trainer is true, but no Trainer reported to accel' \
    "and that no Trainer reported"
printf '%s\n' 'print("customized", flush=True)' >"$root/share/accel/python-site/sitecustomize.py"
ACCEL_ROOT=$root run_srun -n2 --accel-config=trainer.yaml sh -c 'echo "opened /data" >"$ACCEL_STEP_REPORTS/job"'
is "$srun_rc/$srun_out" "0/" "with both nothing is said"
if command -v python3 >/dev/null 2>&1; then
    ACCEL_ROOT=$root run_srun -n2 -Q --accel-config=trainer.yaml python3 -c pass
    is "$(printf '%s\n' "$srun_out" | grep -c '^customized$')" 2 "Python runs it"
    ACCEL_ROOT=$root run_srun -n2 --accel-config=trainer.yaml python3 -I -c pass
    unlike "$srun_out" '^customized' "but not with -I"
    like "$srun_out" 'no Trainer reported to accel: `python -I` and `python -E` ignore PYTHONPATH' "which srun says"
else
    skip 3 "python3 is not installed"
fi
ACCEL_ROOT=$root run_srun -n2 --accel-config=trainer.yaml --accel-dry-run true
like "$srun_out" "^  PYTHONPATH: $root/share/accel/python-site:$root/share/accel/python, then its value\$" \
    "the dry run lists the modules"
like "$srun_out" '^  ACCEL_STEP_REPORTS: a directory of the step' "and the directory"
like "$srun_out" '^  TORCHELASTIC_ERROR_FILE: error.RANK in that directory$' "and the files"

# ---- accel launch
launch() { # CONFIG ARG...
    config=$1
    shift
    timeout "$HANG_S" "$ACCEL_BUILD/accel" launch --config "$config" --no_python "$@" >out 2>&1
}
launch two.yaml sh fail.sh launch 1:100
is "$?" 1 "accel launch: the code of the first failure"
like "$(cat out)" '^accel: rank 1 \(n1\) failed first: ValueError: bad shape \(train.py:12\)$' "and its name"
none_left "accel launch"
ACCEL_ROOT=$root PYTHONPATH=/users launch trainer.yaml sh -c "$given"
is "$(cat out)" "enabled=false 1 $root/share/accel/python-site:$root/share/accel/python:/users" \
    "accel launch: the same variables"
ACCEL_ROOT=$root launch trainer.yaml --dry-run true
like "$(cat out)" "PYTHONPATH=$root/share/accel/python-site:$root/share/accel/python" "and in its dry run"
rm "$root/share/accel/python-site/sitecustomize.py"
ACCEL_ROOT=$root timeout "$HANG_S" "$ACCEL_BUILD/accel" launch --config trainer.yaml -m this >out 2>&1
like "$(cat out)" "no $root/share/accel/python-site/sitecustomize.py" "and the sentence, for Python"
no_node_drained
ok $? "no node is drained"
done_testing
