#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Two ranks with a GPU each, of the stand-ins for driver, toolkit and NCCL, train like two
# ranks on cores: sharded and whole, with sums in rank order and NCCL's own; two runs have
# the same bits. No GPU is needed.
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
command -v mpirun >/dev/null || skip_all "no mpirun"
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

STEPS=5
two() { # NAME CONFIG [VAR=VALUE]...: two ranks; the log in NAME/log.jsonl
    two_name=$1
    two_config=$2
    shift 2
    env ACCEL_CONFIG="$two_config" "$@" timeout 200 mpirun --oversubscribe -n 2 "$TRAIN" \
        --data text --steps $STEPS --layers 2 --width 32 --heads 2 --seq 16 --batch 2 \
        --sample 0 --out "$two_name" >"$two_name.out" 2>&1
    two_code=$?
    [ $two_code -eq 0 ] || diag "$(tail -5 "$two_name.out")"
    is $two_code 0 "$two_name: two ranks train"
}
gpus="CUDA_VISIBLE_DEVICES=0,1
LD_LIBRARY_PATH=$tap_tmp/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

for strategy in FULL_SHARD NO_SHARD; do
    train_config cpu.yaml $strategy no 2 1
    sed '/use_cpu/d' cpu.yaml >gpu.yaml
    two cpu-$strategy cpu.yaml
    # shellcheck disable=SC2086 # a list of words
    two gpu-$strategy gpu.yaml $gpus
    contains "$(cat gpu-$strategy.out)" "nccl" "by NCCL"
    close_losses cpu-$strategy/log.jsonl gpu-$strategy/log.jsonl $STEPS 1e-5 \
        "$strategy: the losses of the CPU within 1e-5"
done
train_config cpu.yaml FULL_SHARD no 2 1 "precision:" "  sums: nccl"
sed '/use_cpu/d' cpu.yaml >sums.yaml
# shellcheck disable=SC2086
two sums sums.yaml $gpus
close_losses gpu-FULL_SHARD/log.jsonl sums/log.jsonl $STEPS 1e-5 "NCCL's own sums: near enough"
sed '/^  sums/d; /^accel/,$d' sums.yaml >again.yaml
# shellcheck disable=SC2086
two again again.yaml $gpus
same_bits gpu-FULL_SHARD/log.jsonl again/log.jsonl
ok $? "the same run again gives the same bits"
done_testing
