#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# accel topo on recorded machines: cores and NUMA node of each task of a step, the GPU
# rule, contradictions refused.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
data=$ACCEL_SRC/tests/data/topo
cd "$tap_tmp" || bail_out "no directory"

topo() { # [VAR=VALUE]...: one row "NAME VALUE" per line in $out
    env -u SLURM_PROCID -u SLURM_STEP_ID -u SLURM_STEP_TASKS_PER_NODE -u SLURM_NODEID \
        -u SLURM_LOCALID -u SLURM_GPUS_ON_NODE -u CUDA_VISIBLE_DEVICES -u HWLOC_XMLFILE \
        "$@" "$accel" topo >raw 2>err
    code=$?
    out=$(sed -e 's/  */ /g' -e 's/ $//' raw)
    err=$(cat err)
}

# A sanitizer build: hwloc's PCI reader keeps memory and is unloaded, so that no suppression
# can name it. Recorded machines have no PCI to read.
topo ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
is "$code/$err" "0/" "on this machine"
like "$out" '^cores [1-9]' "it has cores"
like "$out" '^started_by hand' "started by hand"
like "$out" '^nics ' "interfaces have a row"

topo HWLOC_XMLFILE="$data/numa2-core4-pu2.xml"
is "$code/$err" "0/" "two NUMA nodes of four cores of two threads"
like "$out" '^cores 8$' "one rank has all cores"
like "$out" '^hardware_threads 16$' "and all threads"

task() { # LOCALID [VAR=VALUE]...: task of 2 on the second of two nodes
    task_id=$1
    shift
    topo HWLOC_XMLFILE="$data/numa2-core4-pu2.xml" SLURM_STEP_ID=0 \
        SLURM_PROCID=$((2 + task_id)) SLURM_STEP_NUM_TASKS=4 SLURM_NODEID=1 \
        SLURM_LOCALID="$task_id" SLURM_STEP_TASKS_PER_NODE='2(x2)' "$@"
}
for id in 0 1; do
    task $id
    is "$code/$err" "0/" "task $id of two on the second node"
    like "$out" "^rank $((2 + id))\$" "its rank"
    like "$out" '^ranks_on_node 2$' "two ranks on its node"
    like "$out" '^cores 4$' "half of the cores"
    like "$out" "^numa_node $id\$" "on a NUMA node of its own"
    task $id CUDA_VISIBLE_DEVICES=0,1,2,3 SLURM_GPUS_ON_NODE=4
    like "$out" "^gpu_indices $((2 * id)), $((2 * id + 1))\$" "two of four GPUs"
done
task 0 CUDA_VISIBLE_DEVICES=0,1,2 SLURM_GPUS_ON_NODE=3
is "$code" 65 "three GPUs for two ranks are refused"
contains "$err" "3 GPUs cannot be divided evenly among the 2 ranks" "with both numbers"
task 0 CUDA_VISIBLE_DEVICES= SLURM_GPUS_ON_NODE=2
is "$code" 69 "GPUs given but hidden"
contains "$err" "--gpu-bind=none" "and what hides them"
task 2
is "$code" 64 "a task beyond the node's tasks is refused"
contains "$err" "SLURM_LOCALID: rank 2 of the node does not fit" "saying so"

if python3 -c 'import json' 2>/dev/null; then
    HWLOC_XMLFILE=$data/flat-core6.xml "$accel" topo --json >raw 2>/dev/null
    is "$(python3 -c 'import json; d = json.load(open("raw"))
print(d["cpu"]["cores"], isinstance(d["devices"]["nics"], list))' 2>&1)" "6 True" "--json"
else
    skip 1 "no python3"
fi
done_testing
