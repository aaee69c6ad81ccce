#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The trainer on a GPU beside the CPU: the losses of 300 steps in each precision, two
# runs with the same bits, with graphs and without, and what FULL_SHARD, recomputing and
# offloading change, which is nothing. On the stand-in: six steps of a small model.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
# shellcheck source=tests/t/gpu.sh
. "$(dirname "$0")/gpu.sh"

begin_gpu_test
if on_stand_in; then
    steps=6 most_no=1e-5
    gpu_sizes="--layers 2 --width 32 --heads 2 --seq 16 --batch 2"
else
    # A GPU adds in another order than the CPU, in blocks and tensor cores: a product of k terms
    # differs by some sqrt(k) of its last place, 6e-8. AdamW's steps grow as much for a small
    # gradient as for a large one, so that a rounding becomes a step of its own, and 300 of them
    # add up: 1e-3 of the loss holds there, 1e-4 did not have to.
    steps=300 most_no=1e-3
    gpu_sizes="--layers 4 --width 128 --heads 2 --seq 128 --batch 8"
    GPU_TIMEOUT=1200
fi
# Without checkpoints: a build without HDF5 has none.
no_checkpoints="accel: {checkpoint: {save: false}}"
gpu_configs "$no_checkpoints"
for precision in no bf16 fp16; do
    case $precision in no) most=$most_no ;; *) most=1e-2 ;; esac
    gpu_train "cpu-$precision" "cpu-$precision" -- --steps $steps --accumulate 2
    is "$code" 0 "$precision: on the CPU"
    gpu_train "gpu-$precision" "gpu-$precision" -- --steps $steps --accumulate 2 --save first
    is "$code" 0 "$precision: on the GPU" || diag "$out"
    like "$out" 'compute  *cuda, ' "as the plan says"
    close_losses "cpu-$precision/log.jsonl" "gpu-$precision/log.jsonl" $steps "$most" \
        "$steps losses within $most of the CPU's"
    gpu_train "gpu-$precision" again -- --steps $steps --accumulate 2 --save second
    passes "a second run has the same losses" same_bits "gpu-$precision/log.jsonl" again/log.jsonl
    passes "and the same weights" cmp first/model.safetensors second/model.safetensors
    gpu_train "gpu-$precision" calls ACCEL_CUDA_GRAPHS=0 -- --steps $steps --accumulate 2 \
        --save third
    passes "call by call, without graphs: the same losses" \
        same_bits "gpu-$precision/log.jsonl" calls/log.jsonl
    passes "and the same weights" cmp first/model.safetensors third/model.safetensors
    rm -rf again calls first second third
done

# full FILE LINE...: one rank's FULL_SHARD on the GPU, with these lines of fsdp_config
full() {
    full_file=$1
    shift
    train_config "$full_file" FULL_SHARD bf16 1 1 "checkpoint: {save: false}"
    for full_line in "$@"; do
        sed -i "s/^fsdp_config:/&\n  $full_line/" "$full_file"
    done
    sed -i '/^use_cpu/d' "$full_file"
}
full full.yaml
full recompute.yaml "fsdp_activation_checkpointing: true"
full offload.yaml "fsdp_offload_params: true"
gpu_train full full -- --steps $steps --accumulate 2
is "$code" 0 "FULL_SHARD" || diag "$out"
close_losses cpu-bf16/log.jsonl full/log.jsonl $steps 1e-2 "$steps losses within 1e-2 of the CPU's"
for way in recompute offload; do
    gpu_train $way $way -- --steps $steps --accumulate 2
    is "$code" 0 "$way" || diag "$out"
    close_losses full/log.jsonl $way/log.jsonl $steps 1e-2 "$way: the losses without it"
done
done_testing
