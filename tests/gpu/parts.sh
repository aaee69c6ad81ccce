#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The parts of a trial, in the order in which `run` takes them: what all others rest on, figures,
# then searches for faults, which take long. Each must end within nine minutes on one GPU, so one
# part has one model to train, or one program under one tool.
#     parts.sh --list | parts.sh PART
# shellcheck source=tests/gpu/reader.sh
. "$TRIAL_ROOT/reader.sh"

tests=$TRIAL_ROOT/tests
unit_test() { # NAME...
    for unit_name; do
        tap "$unit_name" "$tests/unit/test_$unit_name"
    done
}

train() { # MODEL:BATCHxTIME[:recompute][:fp8]
    command -v python3 >/dev/null || skip_part "python3 is not installed"
    figures "$1" python3 -u "$tests/bench/train_gpu.py" "$TRIAL_ROOT/examples/train" --turns 1 \
        --trace "$tests/bench/gpu/.libs/kernel_times.so" "$1"
}

case $1 in
--list)
    printf '%s\n' machine core kernels attention graph trainer bench-attention bench-cuda \
        train-gpt2 train-gpt2-xl train-llama train-llama-fp8
    "$tests/t/2140-gpu-sanitizer.t" --list
    printf '%s\n' saves memory long
    exit
    ;;
machine) "$TRIAL_ROOT/accel" doctor ;; # for the log, where there is no GPU, too
esac
need_gpu

case $1 in
machine)
    if command -v nvidia-smi >/dev/null; then
        figures nvidia-smi nvidia-smi --format=csv,noheader \
            --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit
    else
        figure "nvidia-smi is not installed"
    fi
    figures doctor "$TRIAL_ROOT/accel" doctor
    ;;
core) unit_test cuda_core ;;
kernels)
    unit_test cuda_kernels cuda_optable cuda_products cuda_fp8_products narrow_results \
        cuda_head cuda_scratch cuda_conv cuda_powersgd
    ;;
attention)
    unit_test cuda_attention attention_kept dnn
    # A file of its name that is no library ends the loader's search for cuDNN.
    mkdir without && echo none >without/libcudnn.so.9
    tap "without cuDNN" env TRIAL_LIBRARIES="$PWD/without:$TRIAL_LIBRARIES" \
        "$tests/unit/test_cuda_attention"
    ;;
graph)
    unit_test cuda_graph cuda_launches cuda_models cuda_fp8 cuda_segments cuda_step \
        comm_nccl_device
    ;;
trainer)
    tap "20 steps" "$tests/t/2135-gpu-steps.t"
    unit_test cuda_attempt cuda_ids cuda_loader cuda_masters cuda_objects ranks_device
    ;;
bench-attention) figures bench_cuda_attention "$tests/bench/bench_cuda_attention" ;;
bench-cuda) figures bench_cuda "$tests/bench/bench_cuda" ;;
train-gpt2) train gpt2:32x1024 ;;
train-gpt2-xl) train gpt2-xl:8x1024 ;;
train-llama) train llama-3-8b:1x8192:recompute ;;
train-llama-fp8) train llama-3-8b:1x8192:recompute:fp8 ;;
memcheck-* | racecheck-*) tap "$1" "$tests/t/2140-gpu-sanitizer.t" "$1" ;;
saves) tap "saves beside steps" "$tests/t/2155-gpu-saves.t" ;;
memory) tap "planned memory" "$tests/t/2150-gpu-memory.t" ;;
long) tap "300 steps" "$tests/t/2130-gpu-train.t" ;;
*)
    echo "parts.sh: there is no part '$1'" >&2
    exit 64
    ;;
esac
part_done
