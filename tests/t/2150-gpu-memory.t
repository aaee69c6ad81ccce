#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The plan of a GPU's memory against what the driver counts in a run of one rank: float32 and
# bfloat16, accumulation, activations computed again, offloaded; and what a lack of memory
# says. On a GPU the model is GPT-2 124M, on the stand-in, which counts every allocation and
# has no context of its own, a small one. Two ranks: 4190.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
# shellcheck source=tests/t/gpu.sh
. "$(dirname "$0")/gpu.sh"

begin_gpu_test
if on_stand_in; then
    gpu_sizes="--layers 3 --width 128 --heads 4 --seq 16 --batch 2 --vocab 16000 --steps 3"
else
    gpu_sizes="--layers 12 --width 768 --heads 12 --seq 1024 --batch 4 --steps 5"
fi

# as_planned NAME STRATEGY PRECISION DESCRIPTION [LINE-OF-FSDP-CONFIG [OPTION]...]
as_planned() {
    as_name=$1 as_what=$4
    train_config "$as_name.yaml" "$2" "$3" 1 1 "checkpoint: {save: false}"
    sed -i -e '/^use_cpu/d' -e 's/^mixed_precision: \(.*\)/mixed_precision: "\1"/' "$as_name.yaml"
    [ -z "${5-}" ] || sed -i "s/^fsdp_config:/&\n  $5/" "$as_name.yaml"
    shift $(($# < 5 ? $# : 5))
    gpu_train "$as_name" "$as_name" -- "$@"
    is "$code" 0 "$as_what: trains" || diag "$out"
    echo "$out" >"$as_name.out"
    is_as_planned "$as_name.out" "$as_name/log.jsonl" "$as_what"
}
as_planned whole NO_SHARD no "float32"
as_planned full FULL_SHARD bf16 "bfloat16, two micro-batches" "" --accumulate 2
as_planned home FULL_SHARD bf16 "offloaded" "fsdp_offload_params: true"
# shellcheck disable=SC2317 # called by passes
needs_less() { # NAME NAME: by 20 MiB at least
    awk -v a="$(measured_peak "$1/log.jsonl")" -v b="$(measured_peak "$2/log.jsonl")" \
        'BEGIN { exit !(a < b - 20) }'
}
passes "what is offloaded is not on the GPU" needs_less home full
# Activations of several steps of 32 MiB.
on_stand_in &&
    gpu_sizes="--layers 14 --width 64 --heads 2 --seq 64 --batch 10 --vocab 300 --steps 2"
as_planned deep FULL_SHARD no "many activations"
as_planned again FULL_SHARD no "activations computed again" \
    "fsdp_activation_checkpointing: true"
passes "what is computed again is not kept" needs_less again deep
gpu_sizes="--layers 3 --width 128 --heads 4 --seq 16 --batch 2 --vocab 16000 --steps 3"

# ---- a lack of memory ----
if ! on_stand_in; then
    skip 7 "a GPU that is too small is the stand-in's"
    done_testing
    exit
fi
# The plan of `whole` fits, but others have a part of the GPU: more than the workspace of the
# kernels, a 64th of the memory, shrinks with it.
gpu_train whole fits FAKE_CUDA_MEMORY=$((1 << 30)) --
echo "$out" >fits.out
is_as_planned fits.out fits/log.jsonl "a GPU of 1 GiB, whose workspace is smaller"
mib=$(planned_peak fits.out "memory of the GPU")
small=$(awk -v mib="$mib" 'BEGIN { printf "%d", (mib + 8) * 1048576 }')
gpu_train whole refused FAKE_CUDA_MEMORY="$small" FAKE_CUDA_TAKEN=$((40 << 20)) --
is "$code" 71 "what others have of the GPU counts"
like "$out" 'error\[A0904\]: the plan needs .* on the GPU, but it has ' "and is refused by the plan"
# Or they take it when the plan has been made.
gpu_train whole gone FAKE_CUDA_MEMORY=$((1 << 30)) FAKE_CUDA_TAKEN=$((1 << 30)):8 --
is "$code" 71 "memory that is gone after the plan ends the run, too"
like "$out" 'A0447\]: .*GPU 0 is out of memory: [0-9.]+ MiB for [a-z ]+; this process holds parameters [0-9.]+ MiB, .*working memory [0-9.]+ MiB; ' \
    "which says what was asked for and what is held by kind"
like "$out" 'CUDA, NCCL and other processes hold .* MiB .*; 0 B of 1\.0 GiB are free' \
    "what others have and what is free"
like "$out" 'cure: .*fsdp_' "and which option helps"
done_testing
