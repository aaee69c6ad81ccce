#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: advice that could not be followed, and ends that nobody explained.
# What srun says at the end of a run, and what it advises: only what is known and can be done.
# Python's last lines are not lost when a task is killed.
# Variables in quotes are those of the tasks.
# shellcheck disable=SC2016
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/../t/train.sh"
need_plugin
need_program python3
unset PYTHONUNBUFFERED
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\n' >two.yaml
printf 'distributed_type: "NO"\nnum_processes: 1\n' >one.yaml
cluster_up --nodes 1 --cpus 4 --grace 30

# A rank fails, and the other one is killed with lines in its buffer.
cat >fail.py <<'FAIL'
import os, sys, time
print(f"rank {os.environ['RANK']} began\n", end="") # one write
while not os.path.exists("other"):
    if os.environ["RANK"] == "0":
        open("other", "w").close()
    time.sleep(0.05)
if os.environ["RANK"] == "1":
    sys.exit(3)
time.sleep(60)
FAIL
run_srun --accel-config=two.yaml python3 fail.py
isnt "$srun_rc" 0 "a rank that fails fails the step"
is "$(printf '%s\n' "$srun_out" | grep -c '^rank [01] began$')" 2 "what a killed rank has printed is there"
run_srun -n1 -Q --accel-config=one.yaml sh -c 'echo "$PYTHONUNBUFFERED"'
is "$srun_out" 1 "PYTHONUNBUFFERED is 1"
PYTHONUNBUFFERED='' run_srun -n1 -Q --accel-config=one.yaml sh -c 'echo "[$PYTHONUNBUFFERED]"'
is "$srun_out" "[]" "unless it is set"
is "$("$ACCEL_BUILD/accel" launch --config one.yaml sh -c 'echo "$PYTHONUNBUFFERED"' 2>&1)" 1 "accel launch does the same"

# A file of one process: the cure is none that the file refuses.
run_srun -n2 --accel-config=one.yaml true
like "$srun_out" 'error\[A0303\].*distributed_type NO means one process, but this step has 2 tasks' "type NO, two tasks"
unlike "$srun_out" 'num_processes: 2' "no advice to set num_processes"

# Another MPI type: not the advice that was followed already.
if [ -x "$TRAIN" ] && timeout "$HANG_S" srun --mpi=list 2>&1 | grep -qw pmi2; then
    train_text text.txt
    SLURM_MPI_TYPE=pmi2 run_srun -n2 --accel-config=two.yaml "$TRAIN" --data text.txt --steps 1
    like "$srun_out" 'cure: this step has another MPI type: leave --mpi out of the command and unset SLURM_MPI_TYPE' \
        "SLURM_MPI_TYPE=pmi2: unset it"
    unlike "$srun_out" 'start with srun' "and not what was done"
else
    skip 2 "examples/train is not built, or this Slurm has no pmi2"
fi

# A program that ends with 0 near its limit, and one that ends before.
run_srun -n2 -t 60 --accel-config=two.yaml true
unlike "$srun_out" 'counts as finished' "a usual end: no word"
run_srun -n2 -t 1 --accel-config=two.yaml true
is "$(printf '%s\n' "$srun_out" | grep -c 'ended with exit code 0 after the notice of its time limit: it counts as finished')" 1 \
    "an end after the notice of the limit: one line"
no_node_drained
ok $? "no node is drained"
done_testing
