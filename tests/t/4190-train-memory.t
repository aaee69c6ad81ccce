#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The plan of the GPUs' memory against what the driver counts in a run of two ranks: sharded,
# whole, offloaded and with 8-bit moments. Driver, toolkit and NCCL are the stand-ins; one rank, on a GPU too: 2150.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
unset ACCEL_CUDA_MODULE
# shellcheck source=tests/t/gpu.sh
. "$(dirname "$0")/gpu.sh"

tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
need_gpu
ACCEL_NCCL_LIBRARY=$ACCEL_BUILD/tests/cuda/.libs/fake_nccl.so
[ -f "$ACCEL_NCCL_LIBRARY" ] || skip_all "$ACCEL_NCCL_LIBRARY is not built"
command -v mpirun >/dev/null || skip_all "no mpirun"
CUDA_VISIBLE_DEVICES=0,1 FAKE_CUDA_DEVICES=2 FAKE_CUDA_BUS=0000:01:00,0000:21:00
UCX_NET_DEVICES=lo OMP_NUM_THREADS=1
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ACCEL_NCCL_LIBRARY CUDA_VISIBLE_DEVICES FAKE_CUDA_DEVICES FAKE_CUDA_BUS
export UCX_NET_DEVICES OMP_NUM_THREADS OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
unset FAKE_NCCL FAKE_CUDA_WATCH
train_text text
sizes="--layers 3 --width 128 --heads 4 --seq 16 --batch 2 --vocab 16000"

as_moments=float32
# as_planned NAME STRATEGY PRECISION DESCRIPTION [LINE-OF-FSDP-CONFIG [OPTION]...]
as_planned() {
    as_name=$1 as_what=$4
    train_config "$as_name.yaml" "$2" "$3" 2 1
    sed -i -e '/^use_cpu/d' -e 's/^mixed_precision: \(.*\)/mixed_precision: "\1"/' "$as_name.yaml"
    [ -z "${5-}" ] || sed -i "s/^fsdp_config:/&\n  $5/" "$as_name.yaml"
    printf 'accel:\n  precision: {moments: %s}\n' "$as_moments" >>"$as_name.yaml"
    shift $(($# < 5 ? $# : 5))
    # shellcheck disable=SC2086 # a list of words
    env ACCEL_CONFIG="$as_name.yaml" timeout "$HANG_S" mpirun --oversubscribe -n 2 "$TRAIN" --data text \
        $sizes --steps 3 --sample 0 --out "$as_name" "$@" >"$as_name.out" 2>&1
    is $? 0 "$as_what: trains" || diag "$(tail -5 "$as_name.out")"
    is_as_planned "$as_name.out" "$as_name/log.jsonl" "$as_what"
}
rows() { # FILE: of the GPU, but for what only a run can measure
    awk '/memory of the host/ { exit }
        in_it && $1 !~ /^(before|peak)$/ { print $1, $2, $3, $4 }
        /memory of the GPU/ { in_it = 1 }' "$1"
}

as_planned full FULL_SHARD bf16 "FULL_SHARD, bfloat16, two micro-batches" "" --accumulate 2
like "$(cat full.out)" '^    sums +[0-9.]+ MiB' "with the scratch of its sums"
# shellcheck disable=SC2086 # a list of words
"$ACCEL_BUILD/accel" plan full.yaml --gpus 2 $sizes --context 16 --accumulate 2 >plan.out
# shellcheck disable=SC2086
"$ACCEL_BUILD/accel" plan full.yaml --gpus 2 --gpu-memory 16 $sizes --context 16 \
    --accumulate 2 >same.out
is "$(rows same.out)" "$(rows full.out)" "accel plan knows the same of GPUs of that size"
like "$(cat plan.out)" '^    peak .* % of 45\.0 GiB$' "and the memory of this machine's GPUs"
as_planned whole NO_SHARD no "NO_SHARD, float32"
as_planned kept SHARD_GRAD_OP bf16 "SHARD_GRAD_OP, bfloat16"
as_planned home FULL_SHARD no "FULL_SHARD, offloaded, float32" "fsdp_offload_params: true"
as_moments=8bit
as_planned eight FULL_SHARD bf16 "FULL_SHARD, 8-bit moments"
as_planned eight_home FULL_SHARD no "offloaded, 8-bit moments" "fsdp_offload_params: true"
like "$(cat eight.out)" 'adam moments +[0-9.]+ [KM]iB +shard, 8-bit' "the plan says so"
as_planned home FULL_SHARD no "a checkpoint of float32 resumes with 8-bit moments" \
    "fsdp_offload_params: true" --steps 5
as_planned whole NO_SHARD no "also on the GPUs" "" --steps 5
like "$(cat whole.out home.out)" 'resuming with moments = 8bit' "and says so"
as_moments=float32
as_planned eight FULL_SHARD bf16 "and back" "" --steps 5
like "$(cat eight.out)" 'resuming with moments = float32' "and says so"
for name in whole home eight; do
    losses "$name/log.jsonl" | tail -n 1
done >last
awk '{ if (NR > 1 && ($2 / first > 1.02 || $2 / first < 0.98)) bad = 1; first = first ? first : $2
    print "# " $0 } END { exit bad || NR < 3 }' last
ok $? "their losses are near each other"
done_testing
