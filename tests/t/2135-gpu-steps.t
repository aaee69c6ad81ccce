#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A few steps of the trainer on a GPU in each of its ways: with graphs and without, with the
# epilogues of products and with own kernels in their place. A graph changes no bit; a kernel in
# an epilogue's place rounds once more. 2130 is the long form.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
# shellcheck source=tests/t/gpu.sh
. "$(dirname "$0")/gpu.sh"

begin_gpu_test
if on_stand_in; then
    steps=3
    gpu_sizes="--layers 1 --width 32 --heads 2 --seq 16 --batch 2"
else
    steps=20
    gpu_sizes="--layers 4 --width 256 --heads 4 --seq 256 --batch 8"
fi
gpu_configs "accel: {checkpoint: {save: false}}"

# steps_of CONFIG OUT [VAR=VALUE]...
steps_of() {
    steps_out=$2
    gpu_train "$@" -- --steps $steps --accumulate 2
    is "$code" 0 "$steps_out: $steps steps" || diag "$out"
}

# In float32 no epilogue rounds, and an other order of sums is all that there is; in bfloat16 a
# value is rounded to 8 bits before its bias or GELU instead of behind it.
for precision in no bf16; do
    case $precision in no) most=1e-3 ;; bf16) most=1e-2 ;; esac
    steps_of "gpu-$precision" "$precision-graphs"
    steps_of "gpu-$precision" "$precision-calls" ACCEL_CUDA_GRAPHS=0
    steps_of "gpu-$precision" "$precision-kernels" ACCEL_CUDA_EPILOGUES=none
    steps_of "gpu-$precision" "$precision-kernel-calls" ACCEL_CUDA_EPILOGUES=none \
        ACCEL_CUDA_GRAPHS=0
    passes "$precision: with and without graphs: the same bits" \
        same_bits "$precision-graphs/log.jsonl" "$precision-calls/log.jsonl"
    passes "$precision: so without epilogues" \
        same_bits "$precision-kernels/log.jsonl" "$precision-kernel-calls/log.jsonl"
    close_losses "$precision-graphs/log.jsonl" "$precision-kernels/log.jsonl" $steps "$most" \
        "$precision: losses without epilogues within $most of those with them"
done
done_testing
