#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# compute-sanitizer's memcheck and racecheck over the op table, the kernels and a few steps of
# training on a GPU: nothing is found in our kernels. (Memory that nobody wrote is NaN on the
# stand-in, which finds what initcheck would.)
#     2140-gpu-sanitizer.t [--list | TOOL-PROGRAM...]
runs() {
    for tool in memcheck racecheck; do
        printf "$tool-%s\n" optable kernels products attention train-no train-bf16
    done
}
[ "${1:-}" != --list ] || { runs; exit; }
# shellcheck disable=SC2046 # several words
[ $# -gt 0 ] || set -- $(runs)
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
# shellcheck source=tests/t/gpu.sh
. "$(dirname "$0")/gpu.sh"

on_stand_in && skip_all "compute-sanitizer looks at GPUs: make check-gpu"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
need_gpu
PATH=$PATH:/usr/local/cuda/bin
need_program compute-sanitizer
train_text text
# Heads of 64 in bfloat16 take the tensor cores.
gpu_configs "accel: {checkpoint: {save: false}}"

# Kernels of NVIDIA's libraries are left out: they would take most of the time, and what is found
# there is not ours to mend. None of our names has one of these words (2160), so that a library's
# kernel with a new name is checked at worst.
theirs=kns=cublas,kns=cutlass,kns=cudnn,kns=nvjet,kns=xmma,kns=gemm,kns=gemv,kns=splitK,kns=nccl

# checked TOOL-PROGRAM COMMAND...: its own result counts as well
checked() {
    checked_what=$1 log=$tap_tmp/$1.log
    shift
    timeout 3000 compute-sanitizer --tool "${checked_what%%-*}" --error-exitcode 99 \
        --target-processes all --kernel-name-exclude "$theirs" "$@" >"$log" 2>&1
    checked_code=$?
    unsupported=$(sed -n 's/^==.*\(Device not supported.*\)/\1/p' "$log" | head -n 1)
    if [ -n "$unsupported" ]; then
        skip 3 "compute-sanitizer says: $unsupported"
        return
    fi
    is $checked_code 0 "$checked_what runs" || diag "$(grep '^not ok\|=====' "$log" | head -n 40)"
    like "$(cat "$log")" '========= .*SUMMARY: 0 ' "$checked_what: a summary without findings"
    unlike "$(grep SUMMARY "$log")" 'SUMMARY: [1-9]' "$checked_what: and no other"
}

for run; do
    program=${run#*-}
    case $run in
    *-train-*)
        checked "$run" env ACCEL_CONFIG="gpu-${program#train-}.yaml" "$TRAIN" --data text \
            --layers 2 --width 128 --heads 2 --seq 64 --batch 2 --sample 0 --steps 4 --out "$run"
        ;;
    *) checked "$run" "$ACCEL_BUILD/tests/unit/test_cuda_$program" ;;
    esac
done
done_testing
