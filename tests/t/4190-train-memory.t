#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The plan of a GPU's memory against what the driver counts in a run: sharded, whole and
# offloaded, float32 and bfloat16, with accumulation and with activations computed again.
# The driver is the stand-in's, which counts every allocation; NCCL is the stand-in, too.
# What is not there on it, the driver's own context and code, is measured by a run and so in
# its plan; that part needs a GPU (tests/gpu).
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"

tap_tmpdir
ACCEL_CUDA_MODULE=$ACCEL_BUILD/tests/cuda/accel_cuda.so
ACCEL_NCCL_LIBRARY=$ACCEL_BUILD/tests/cuda/.libs/fake_nccl.so
driver=$ACCEL_BUILD/tests/helpers/.libs/fake_nvml.so
for file in "$ACCEL_CUDA_MODULE" "$ACCEL_NCCL_LIBRARY" "$driver"; do
    [ -f "$file" ] || skip_all "$file is not built"
done
built_with_sanitizer && skip_all "the stand-in's kernels have stacks of their own"
cd "$tap_tmp" || bail_out "no directory"
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED SLURM_GPUS_ON_NODE HWLOC_XMLFILE FAKE_NCCL
mkdir driver
ln -s "$driver" driver/libnvidia-ml.so.1
FAKE_NVML=$ACCEL_SRC/tests/data/topo/pcie4.nvml FAKE_CUDA_DEVICES=2
FAKE_CUDA_BUS=0000:01:00,0000:21:00
UCX_NET_DEVICES=lo OMP_NUM_THREADS=1
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ACCEL_CUDA_MODULE ACCEL_NCCL_LIBRARY FAKE_NVML FAKE_CUDA_DEVICES FAKE_CUDA_BUS
export UCX_NET_DEVICES OMP_NUM_THREADS OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
train_text text
gpus="CUDA_VISIBLE_DEVICES=0,1
LD_LIBRARY_PATH=$tap_tmp/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
sizes="--layers 3 --width 128 --heads 4 --seq 16 --batch 2 --vocab 16000"

# config NAME STRATEGY PRECISION RANKS [SED-SCRIPT]
config() {
    train_config "$1.yaml" "$2" "$3" "$4" 1
    sed -i -e '/use_cpu/d' ${5:+-e "$5"} "$1.yaml"
}
# run NAME RANKS [OPTION]...: output in NAME.out
run() {
    run_name=$1 run_launch="mpirun --oversubscribe -n $2"
    [ "$2" = 1 ] && run_launch=
    shift 2
    # shellcheck disable=SC2086 # lists of words
    env $gpus ACCEL_CONFIG="$run_name.yaml" timeout 300 $run_launch "$TRAIN" --data text \
        $sizes --steps 3 --sample 0 --out "$run_name" "$@" >"$run_name.out" 2>&1
    run_code=$?
}
# planned FILE WHAT: MiB of the row `peak` below the row WHAT
planned() {
    awk -v what="$2" '
        index($0, what) { in_it = 1 }
        in_it && $1 == "peak" {
            print $2 * ($3 == "GiB" ? 1024 : $3 == "KiB" ? 1 / 1024 : 1)
            exit
        }' "$1"
}
measured() { # NAME: MiB, of the last record
    sed -n 's/.*"gpu_peak_bytes":\([0-9]*\).*/\1/p' "$1/log.jsonl" |
        awk 'END { print $1 / 1048576 }'
}
rows() { # FILE: of the GPU, but for what only a run can measure
    awk '/memory of the host/ { exit }
        in_it && $1 !~ /^(before|peak)$/ { print $1, $2, $3, $4 }
        /memory of the GPU/ { in_it = 1 }' "$1"
}
# shellcheck disable=SC2317 # called by passes
within() { # MEASURED PLANNED PERCENT
    awk -v a="$1" -v b="$2" -v most="$3" 'BEGIN {
        d = a - b
        exit !(a > 0 && b > 0 && (d < 0 ? -d : d) <= b * most / 100)
    }'
}
# as_planned NAME RANKS DESCRIPTION [OPTION]...
as_planned() {
    as_name=$1 as_ranks=$2 as_what=$3
    shift 3
    run "$as_name" "$as_ranks" "$@"
    is $run_code 0 "$as_what: trains" || diag "$(tail -5 "$as_name.out")"
    plan=$(planned "$as_name.out" "memory of the GPU") peak=$(measured "$as_name")
    diag "$as_what: planned $plan MiB, measured $peak MiB"
    passes "$as_what: the peak is the plan's within 3 %" within "$peak" "$plan" 3
}

config one-f32 NO_SHARD no 1
as_planned one-f32 1 "one GPU, float32"
config one-bf16 FULL_SHARD bf16 1
as_planned one-bf16 1 "one GPU, bfloat16, two micro-batches" --accumulate 2
config again FULL_SHARD bf16 1 '/fsdp_auto_wrap/a\  fsdp_activation_checkpointing: true'
as_planned again 1 "one GPU, activations computed again"
config home FULL_SHARD bf16 1 '/fsdp_auto_wrap/a\  fsdp_offload_params: true'
as_planned home 1 "one GPU, offloaded"
less=$(measured home) more=$(measured one-bf16)
passes "what is offloaded is not on the GPU" \
    awk -v a="$less" -v b="$more" 'BEGIN { exit !(a < b - 20) }'
if command -v mpirun >/dev/null; then
    config full FULL_SHARD bf16 2
    as_planned full 2 "two GPUs, FULL_SHARD, bfloat16, two micro-batches" --accumulate 2
    like "$(cat full.out)" '^    sums +[0-9.]+ MiB' "with the scratch of its sums"
    # shellcheck disable=SC2086 # a list of words
    "$ACCEL_BUILD/accel" plan full.yaml --gpus 2 $sizes --context 16 --accumulate 2 >plan.out
    is "$(rows plan.out)" "$(rows full.out)" "accel plan knows the same"
    config whole NO_SHARD no 2
    as_planned whole 2 "two GPUs, NO_SHARD, float32"
    config both FULL_SHARD no 2 '/fsdp_auto_wrap/a\  fsdp_offload_params: true'
    as_planned both 2 "two GPUs, FULL_SHARD, offloaded, float32"
else
    skip 8 "no mpirun"
fi

# ---- a lack of memory ----
# The plan of one-f32 fits, but something else has taken the rest.
less=$(planned one-f32.out "memory of the GPU")
FAKE_CUDA_MEMORY=$(awk -v mib="$less" 'BEGIN { printf "%d", (mib + 8) * 1048576 }')
FAKE_CUDA_TAKEN=$((40 * 1048576))
export FAKE_CUDA_MEMORY FAKE_CUDA_TAKEN
run one-f32 1 --out refused
is $run_code 71 "what others have of the GPU counts" || diag "$(tail -5 one-f32.out)"
contains "$(cat one-f32.out)" "A0904" "and is refused by the plan"
# Or takes it when the run has begun.
FAKE_CUDA_MEMORY=$((1 << 30))
FAKE_CUDA_TAKEN=$((1 << 30)):8
run one-f32 1 --out refused
is $run_code 71 "memory that is gone after the plan ends the run, too" ||
    diag "$(tail -5 one-f32.out)"
out=$(cat one-f32.out)
like "$out" 'error\[A0447\]: .*GPU 0 is out of memory: [0-9.]+ MiB for [a-z ]+; this process holds ' \
    "which says what was asked for"
like "$out" 'this process holds parameters [0-9.]+ MiB, .*working memory [0-9.]+ MiB; ' \
    "what is held by kind"
like "$out" 'MiB have CUDA, NCCL and other processes .*; 0 B of 1\.0 GiB are free' \
    "what others have and what is free"
like "$out" 'cure: .*fsdp_' "and which option helps"
unset FAKE_CUDA_TAKEN FAKE_CUDA_MEMORY
done_testing
