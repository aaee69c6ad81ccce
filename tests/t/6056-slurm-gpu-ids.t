#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# gpu_ids of a config under Slurm: where GPUs are a resource of Slurm's a step has the list
# that Slurm gave it, or none; where they are not, gpu_ids counts, after what the user
# exported. What the tasks expand stands in single quotes.
# shellcheck disable=SC2016
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

need_plugin
unset CUDA_VISIBLE_DEVICES ZE_AFFINITY_MASK
cluster_up --nodes 1 --cpus 4 --gpus 4
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
printf 'distributed_type: MULTI_GPU\ngpu_ids: "1,3"\n' >ids.yaml
printf 'distributed_type: MULTI_XPU\ngpu_ids: "1,3"\n' >xpu.yaml

variable=CUDA_VISIBLE_DEVICES
# What the tasks of a step have, rank by rank, on one line.
devices() { # WANT DESCRIPTION ARG...
    devices_want=$1 devices_text=$2
    shift 2
    run_srun -Q "$@" sh -c 'echo "$RANK $(printenv '$variable' || echo none)"'
    is "$(printf '%s\n' "$srun_out" | sort | paste -sd ,)" "$devices_want" "$devices_text"
}

devices "0 0,1,1 0,1" "--gres=gpu:2: Slurm's list" \
    -n2 --gres=gpu:2 --accel-config=ids.yaml
devices "0 0,1 1" "--gpus-per-task=1: Slurm's list, task by task" \
    -n2 --gpus-per-task=1 --accel-config=ids.yaml
devices "0 none,1 none" "--gpu-bind=none: as Slurm leaves it" \
    -n2 --gpus-per-node=2 --gpu-bind=none --accel-config=ids.yaml
devices "0 none,1 none" "a step without GPUs takes nobody's" \
    -n2 --accel-config=ids.yaml
variable=ZE_AFFINITY_MASK
devices "0 none" "nor does it of another maker" -n1 --accel-config=xpu.yaml
unlike "$(timeout "$HANG_S" srun -n1 --accel-config=ids.yaml --accel-dry-run true)" 'VISIBLE_DEVICES' \
    "the dry run says no other"
no_node_drained
ok $? "no node is drained"
cluster_down

cluster_up --nodes 1 --cpus 4
variable=CUDA_VISIBLE_DEVICES
devices "0 1,3,1 1,3" "a Slurm without GPUs: gpu_ids" \
    -n2 --accel-config=ids.yaml
variable=ZE_AFFINITY_MASK
devices "0 1,3" "another maker's GPUs have their own variable" \
    -n1 --accel-config=xpu.yaml
like "$(timeout "$HANG_S" srun -n1 --accel-config=ids.yaml --accel-dry-run true)" \
    '^  CUDA_VISIBLE_DEVICES=1,3$' "the dry run says so"
CUDA_VISIBLE_DEVICES=2
export CUDA_VISIBLE_DEVICES
run_srun -n1 --accel-config=ids.yaml sh -c 'echo "has $CUDA_VISIBLE_DEVICES"'
like "$srun_out" '^has 2$' "what the user exported stays"
like "$srun_out" 'kept from your environment: CUDA_VISIBLE_DEVICES=2' "and a line says so"
no_node_drained
ok $? "no node is drained"
done_testing
