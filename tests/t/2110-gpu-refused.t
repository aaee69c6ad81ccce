#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# srun --accel-config=fsdp.yaml ./train on a cluster whose GPUs are stand-ins: whatever is
# missing to compute on them, the step ends with 69 and the cure, and nothing is trained on the
# CPU; only use_cpu does that. A cluster without GPUs trains as before.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"

need_plugin
fake=$ACCEL_BUILD/tests/helpers/.libs/fake_nvml.so
[ -f "$fake" ] || skip_all "fake_nvml.so is not built"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED CUDA_VISIBLE_DEVICES HWLOC_XMLFILE ACCEL_CUDA_MODULE
OMP_NUM_THREADS=1
FAKE_NVML=$ACCEL_SRC/tests/data/topo/pcie4.nvml
export OMP_NUM_THREADS FAKE_NVML
mkdir driver
ln -s "$fake" driver/libnvidia-ml.so.1
with_driver="LD_LIBRARY_PATH=$tap_tmp/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
train_text text
sed 's/^num_processes.*/num_processes: 2/' "$ACCEL_SRC/examples/fsdp.yaml" >fsdp.yaml
{ cat fsdp.yaml && echo 'use_cpu: true'; } >cpu.yaml

# step OUT CONFIG [SRUN-OPTION]... -- [VAR=VALUE]...
step() {
    step_out=$1 step_config=$2 step_options=
    shift 2
    while [ "$1" != -- ]; do
        step_options="$step_options $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # several words
    run_srun -n2 $step_options --accel-config="$step_config" env "$@" "$TRAIN" --data text \
        --steps 2 --layers 1 --width 32 --heads 2 --seq 16 --batch 2 --sample 0 \
        --out "$tap_tmp/$step_out"
}
# refused OUT CODE TEXT CURE DESCRIPTION
refused() {
    is "$srun_rc" 69 "$5: 69"
    is "$(printf '%s\n' "$srun_out" | grep -c "error\[$2\]: .*$3")" 1 "said once, by its reason" ||
        diag "$srun_out"
    like "$srun_out" "  cure: .*$4" "with the cure"
    ok "$([ ! -e "$1/log.jsonl" ]; echo $?)" "and nobody trains on the CPU instead"
}

cluster_up --nodes 1 --cpus 4 --gpus 2
if ! srun --mpi=list 2>&1 | grep -q pmix; then
    skip 1 "Slurm has no PMIx here"
    done_testing
fi
if ldconfig -p 2>/dev/null | grep -q libnvidia-ml; then
    skip 4 "this machine has a driver"
else
    step driver fsdp.yaml --gpus-per-node=2 --
    refused driver A0423 "this task was given 1 GPU, but the driver cannot be used" \
        "use_cpu: true" "no driver at all"
fi
step none fsdp.yaml --gpus-per-node=2 -- "$with_driver" ACCEL_CUDA_MODULE=none.so
refused none A0440 "the CUDA module none.so .* does not exist" "unset ACCEL_CUDA_MODULE" \
    "a driver, but no module"
# The module for GPUs, or the stand-in told that there is no libcuda.
module=$ACCEL_BUILD/runtime/backend/cuda/accel_cuda.so
[ -f "$module" ] && [ ! -e /dev/nvidiactl ] || module=$ACCEL_BUILD/tests/cuda/accel_cuda.so
if [ -f "$module" ]; then
    step cuda fsdp.yaml --gpus-per-node=2 -- "$with_driver" ACCEL_CUDA_MODULE="$module" \
        FAKE_CUDA_DEVICES=nodriver
    refused cuda A0443 "there is no CUDA driver" "use_cpu: true" "a module, but no CUDA driver"
else
    skip 4 "no CUDA module is built"
fi
step bound fsdp.yaml --gpus-per-node=2 --gpu-bind=none -- "$with_driver"
refused bound A0412 "cannot tell which 2 of the node.s GPUs belong to the step" "gpu-bind" "GPUs that the tasks cannot see"

step asked cpu.yaml --gpus-per-node=2 -- "$with_driver"
is "$srun_rc" 0 "use_cpu: true trains on the CPU, whatever was allocated"
like "$srun_out" 'rank 1 .*: CPU, ' "and the map says so"
is "$(losses asked/log.jsonl | wc -l)" 2 "every step"
step without fsdp.yaml --
is "$srun_rc" 0 "so does a step of that cluster that asked for no GPU"
cluster_down

cluster_up --nodes 1 --cpus 4
step plain fsdp.yaml --
is "$srun_rc" 0 "a cluster without GPUs"
like "$srun_out" 'rank 1 .*: CPU, ' "trains on its CPUs"
passes "with the same bits" same_bits plain/log.jsonl asked/log.jsonl
no_node_drained
ok $? "no node is drained"
cluster_down
done_testing
