# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# For tests of the CUDA module that make check-gpu runs on a GPU and scripts/test on the
# stand-in, in short: which module, what stands for the driver, and a trainer's run. Read after
# lib.sh and train.sh; needs tap_tmpdir to have been called.

gpu_stand_in_module=$ACCEL_BUILD/tests/cuda/accel_cuda.so
: "${ACCEL_CUDA_MODULE:=$gpu_stand_in_module}"
export ACCEL_CUDA_MODULE

on_stand_in() {
    [ "$ACCEL_CUDA_MODULE" = "$gpu_stand_in_module" ]
}

# What the module itself says when it has no GPU; where there are device files there is one.
_gpu_is_there() {
    [ -f "$ACCEL_CUDA_MODULE" ] || skip_all "$ACCEL_CUDA_MODULE is not built"
    [ -e /dev/nvidiactl ] || skip_all "this machine has no NVIDIA GPU"
}

# The module and its GPU are there, or the test is skipped. On the stand-in: its driver, and
# its memory closed to the host, so that nothing but a copy may reach it.
need_gpu() {
    unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED SLURM_GPUS_ON_NODE HWLOC_XMLFILE
    : "${CUDA_VISIBLE_DEVICES:=0}"
    CUDA_DEVICE_ORDER=PCI_BUS_ID
    export CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER
    on_stand_in || { _gpu_is_there; return; }
    built_with_sanitizer && skip_all "the stand-in's kernels have stacks of their own"
    gpu_nvml=$ACCEL_BUILD/tests/helpers/.libs/fake_nvml.so
    for gpu_file in "$ACCEL_CUDA_MODULE" "$gpu_nvml"; do
        [ -f "$gpu_file" ] || skip_all "$gpu_file is not built"
    done
    mkdir "$tap_tmp/driver" && ln -s "$gpu_nvml" "$tap_tmp/driver/libnvidia-ml.so.1"
    LD_LIBRARY_PATH=$tap_tmp/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    FAKE_NVML=$ACCEL_SRC/tests/data/topo/pcie4.nvml CUDA_VISIBLE_DEVICES=0 FAKE_CUDA_WATCH=1
    export LD_LIBRARY_PATH FAKE_NVML FAKE_CUDA_WATCH
}

# Begins a test of the trainer on a GPU, in a directory of its own with a text.
begin_gpu_test() {
    tap_tmpdir
    cd "$tap_tmp" || bail_out "no directory"
    need_gpu
    ! on_stand_in || export OMP_NUM_THREADS=1
    train_text text
}

# gpu-no.yaml, gpu-bf16.yaml and the same for the CPU; extra lines go to all of them.
gpu_configs() { # [LINE]...
    for gpu_precision in no bf16 fp16; do
        printf 'distributed_type: "NO"\nmixed_precision: "%s"\n' $gpu_precision \
            >gpu-$gpu_precision.yaml
        [ $# -eq 0 ] || printf '%s\n' "$@" >>gpu-$gpu_precision.yaml
        printf 'use_cpu: true\n' | cat gpu-$gpu_precision.yaml - >cpu-$gpu_precision.yaml
    done
}

# Trains with CONFIG.yaml on the file text, log in OUT/log.jsonl: output in $out, status in
# $code. $gpu_sizes has the model's options.
gpu_train() { # CONFIG OUT [VAR=VALUE]... -- [OPTION]...
    gpu_config=$1.yaml gpu_out=$2
    shift 2
    gpu_env=
    while [ "$1" != -- ]; do
        gpu_env="$gpu_env $1"
        shift
    done
    shift
    # shellcheck disable=SC2086,SC2154 # several words; set by the test
    out=$(env ACCEL_CONFIG="$gpu_config" $gpu_env timeout "${GPU_TIMEOUT:-$HANG_S}" "$TRAIN" \
        --data text $gpu_sizes --sample 0 --log-every 1 --out "$gpu_out" "$@" 2>&1)
    code=$?
}

# ---- memory: the plan of a trainer's output against the log's measurement --------------------

# MiB of the row `peak` below the row WHAT
planned_peak() { # FILE WHAT
    awk -v what="$2" '
        index($0, what) { in_it = 1 }
        in_it && $1 == "peak" {
            print $2 * ($3 == "GiB" ? 1024 : $3 == "KiB" ? 1 / 1024 : 1)
            exit
        }' "$1"
}

measured_peak() { # LOG: MiB of the GPU, of the last record
    sed -n 's/.*"gpu_peak_bytes":\([0-9]*\).*/\1/p' "$1" | awk 'END { print $1 / 1048576 }'
}

# shellcheck disable=SC2317 # called by passes
_within() { # MEASURED PLANNED PERCENT
    awk -v a="$1" -v b="$2" -v most="$3" 'BEGIN {
        d = a - b
        exit !(a > 0 && b > 0 && (d < 0 ? -d : d) <= b * most / 100)
    }'
}

# The GPU's peak in LOG is that of the plan in OUTPUT.
is_as_planned() { # OUTPUT LOG DESCRIPTION
    gpu_plan=$(planned_peak "$1" "memory of the GPU") gpu_peak=$(measured_peak "$2")
    diag "$3: planned $gpu_plan MiB, measured $gpu_peak MiB"
    passes "$3: the GPU's peak is the plan's within 3 %" _within "$gpu_peak" "$gpu_plan" 3
}
