#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The parts of a trial, in the order in which `run` takes them: first what all others rest on,
# long measurements last. Each is to end within nine minutes on one GPU.
#     parts.sh --list | parts.sh PART
# shellcheck source=tests/gpu/reader.sh
. "$TRIAL_ROOT/reader.sh"

tests=$TRIAL_ROOT/tests
unit_test() { # NAME...
    for unit_name; do
        tap "$unit_name" "$tests/unit/test_$unit_name"
    done
}

case $1 in
--list)
    printf '%s\n' machine core kernels attention sanitizer graph trainer bench_attention \
        bench_cuda train_gpu long
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
kernels) unit_test cuda_kernels cuda_optable cuda_products cuda_scratch cuda_conv ;;
attention)
    unit_test cuda_attention attention_kept dnn
    # A file of its name that is no library ends the loader's search for cuDNN.
    mkdir without && echo none >without/libcudnn.so.9
    tap "without cuDNN" env TRIAL_LIBRARIES="$PWD/without:$TRIAL_LIBRARIES" \
        "$tests/unit/test_cuda_attention"
    ;;
sanitizer) tap sanitizer "$tests/t/2140-gpu-sanitizer.t" ;;
graph) unit_test cuda_graph cuda_models cuda_fp8 comm_nccl_device ;;
trainer) tap "20 steps" "$tests/t/2135-gpu-steps.t" ;;
bench_attention) figures bench_cuda_attention "$tests/bench/bench_cuda_attention" ;;
bench_cuda) figures bench_cuda "$tests/bench/bench_cuda" ;;
train_gpu)
    command -v python3 >/dev/null || skip_part "python3 is not installed"
    # One that is too slow does not take the time of the next.
    for case in gpt2:32x1024 gpt2-xl:8x1024 llama-3-8b:1x8192:recompute llama-3-8b:1x8192:recompute:fp8; do
        figures "$case" timeout 130 python3 -u "$tests/bench/train_gpu.py" \
            "$TRIAL_ROOT/examples/train" --turns 1 \
            --trace "$tests/bench/gpu/.libs/kernel_times.so" "$case"
    done
    ;;
long)
    tap "300 steps" "$tests/t/2130-gpu-train.t"
    tap "planned memory" "$tests/t/2150-gpu-memory.t"
    ;;
*)
    echo "parts.sh: there is no part '$1'" >&2
    exit 64
    ;;
esac
part_done
