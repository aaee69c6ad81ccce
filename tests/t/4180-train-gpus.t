#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Two ranks with a GPU each, of the stand-ins for driver, toolkit and NCCL, train like two
# ranks on cores: sharded and whole, with sums in rank order and NCCL's own, with gradients
# compressed by PowerSGD; two runs have the same bits. No GPU is needed.
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
# ranks NAME CONFIG [VAR=VALUE]... PROGRAM [ARGUMENT]...: two ranks; the log in NAME/log.jsonl
ranks() {
    ranks_name=$1
    ranks_config=$2
    shift 2
    env ACCEL_CONFIG="$ranks_config" timeout "$HANG_S" mpirun --oversubscribe -n 2 env "$@" \
        >"$ranks_name.out" 2>&1
    ranks_code=$?
    [ $ranks_code -eq 0 ] || diag "$(tail -5 "$ranks_name.out")"
    is $ranks_code 0 "$ranks_name: two ranks train"
}
two() { # NAME CONFIG [VAR=VALUE]...: two ranks of the reference trainer
    two_name=$1
    two_config=$2
    shift 2
    ranks "$two_name" "$two_config" "$@" "$TRAIN" --data text --steps $STEPS --layers 2 \
        --width 32 --heads 2 --seq 16 --batch 2 --sample 0 --out "$two_name"
}
gpus="CUDA_VISIBLE_DEVICES=0,1
LD_LIBRARY_PATH=$tap_tmp/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

for strategy in FULL_SHARD NO_SHARD HYBRID_SHARD_ZERO2; do
    train_config cpu.yaml $strategy no 2 1
    sed '/use_cpu/d' cpu.yaml >gpu.yaml
    two cpu-$strategy cpu.yaml
    # shellcheck disable=SC2086 # a list of words
    two gpu-$strategy gpu.yaml $gpus
    contains "$(cat gpu-$strategy.out)" "nccl" "by NCCL"
    close_losses cpu-$strategy/log.jsonl gpu-$strategy/log.jsonl $STEPS 1e-5 \
        "$strategy: the losses of the CPU within 1e-5"
done
contains "$(cat gpu-FULL_SHARD.out)" "NVLink to local rank 1, " "the map says who is linked to whom"

# Gradients through PowerSGD, whose products and factors are made on the device.
train_config cpu.yaml NO_SHARD no 2 1
sed '/use_cpu/d' cpu.yaml >gpu.yaml
powersgd=$ACCEL_BUILD/tests/helpers/powersgd_train
ranks cpu-exact cpu.yaml "$powersgd" exact text $STEPS cpu-exact
for rule in layers batched; do
    ranks cpu-$rule cpu.yaml "$powersgd" $rule text $STEPS cpu-$rule
    for turn in gpu again; do
        # shellcheck disable=SC2086 # a list of words
        ranks $turn-$rule gpu.yaml $gpus "$powersgd" $rule text $STEPS $turn-$rule
    done
    contains "$(cat gpu-$rule.out)" "nccl" "by NCCL"
    close_losses cpu-$rule/log.jsonl gpu-$rule/log.jsonl $STEPS 1e-5 \
        "PowerSGD, $rule: the losses of the CPU within 1e-5"
    same_bits gpu-$rule/log.jsonl again-$rule/log.jsonl
    ok $? "PowerSGD, $rule: the same run again gives the same bits"
    same_bits cpu-exact/log.jsonl cpu-$rule/log.jsonl
    isnt $? 0 "PowerSGD, $rule: gradients are compressed"
done

# What a sum leaves out of one step belongs into its checkpoint, and the next sum changes it.
for when in true false; do
    train_config cpu.yaml NO_SHARD no 2 1 \
        "checkpoint: {every_steps: 1, keep: 9, when_busy: wait, async: $when}"
    sed '/use_cpu/d' cpu.yaml >gpu.yaml
    # shellcheck disable=SC2086 # a list of words
    ranks behind-$when gpu.yaml $gpus "$powersgd" layers text $STEPS behind-$when
done
for step in 1 2 3 4 5; do
    at=checkpoints/step_0000000$step
    "$ACCEL_BUILD/accel" ckpt diff behind-true/$at behind-false/$at >said 2>&1
    ok $? "PowerSGD: the checkpoint of step $step, copied behind it, has the same bytes" ||
        diag "$(tail -3 said)"
done

for reduce in e4m3 fp16; do
    train_config cpu.yaml FULL_SHARD no 2 1 "precision: {reduce: $reduce}"
    sed '/use_cpu/d' cpu.yaml >gpu.yaml
    train_config sums.yaml FULL_SHARD no 2 1 "precision: {reduce: $reduce, sums: nccl}"
    sed -i '/use_cpu/d' sums.yaml
    two cpu-$reduce cpu.yaml
    # shellcheck disable=SC2086 # a list of words
    two gpu-$reduce gpu.yaml $gpus
    # shellcheck disable=SC2086 # a list of words
    two sums-$reduce sums.yaml $gpus
    same_bits gpu-$reduce/log.jsonl sums-$reduce/log.jsonl
    ok $? "$reduce: in rank order, whoever sums"
    close_losses cpu-$reduce/log.jsonl gpu-$reduce/log.jsonl $STEPS 1e-4 \
        "$reduce: the losses of the CPU"
    close_losses cpu-FULL_SHARD/log.jsonl gpu-$reduce/log.jsonl $STEPS 1e-3 \
        "$reduce: near those of float32"
    same_bits gpu-FULL_SHARD/log.jsonl gpu-$reduce/log.jsonl
    isnt $? 0 "$reduce: gradients are rounded"
done

# Linears in fp8: the largest magnitudes of both ranks make the scales. O2 has weights,
# gradients and moments with scales besides; O3 and AO gather fp8 weights, with the same
# bits as without: a second run of each.
for recipe in delayed current O2 O3 AO; do
    train_config cpu.yaml FULL_SHARD fp8 2 1
    case $recipe in
    O?) echo "fp8_config: {backend: MSAMP, opt_level: $recipe}" >>cpu.yaml ;;
    AO) echo 'fp8_config: {backend: AO}' >>cpu.yaml ;;
    *) train_config cpu.yaml FULL_SHARD fp8 2 1 "precision: {fp8_recipe: $recipe}" ;;
    esac
    sed '/use_cpu/d' cpu.yaml >gpu.yaml
    two cpu-fp8-$recipe cpu.yaml
    # shellcheck disable=SC2086 # a list of words
    two gpu-fp8-$recipe gpu.yaml $gpus
    close_losses cpu-fp8-$recipe/log.jsonl gpu-fp8-$recipe/log.jsonl $STEPS 1e-2 \
        "fp8, $recipe: the losses of the CPU within 1e-2"
    contains "$(cat gpu-fp8-$recipe.out)" "linears multiply in fp8" "fp8, $recipe: by GPUs"
    case $recipe in O? | AO) continue ;; esac
    # shellcheck disable=SC2086 # a list of words
    two again-fp8-$recipe gpu.yaml $gpus
    same_bits gpu-fp8-$recipe/log.jsonl again-fp8-$recipe/log.jsonl
    ok $? "fp8, $recipe: the same run again gives the same bits"
done
same_bits gpu-fp8-O2/log.jsonl gpu-fp8-O3/log.jsonl
ok $? "fp8, O3: the bits of O2"
sed -i 's/backend: AO/&, enable_fsdp_float8_all_gather: false/' gpu.yaml
# shellcheck disable=SC2086 # a list of words
two gpu-fp8-wide gpu.yaml $gpus
same_bits gpu-fp8-AO/log.jsonl gpu-fp8-wide/log.jsonl
ok $? "fp8, AO: the bits of a gather in bf16"

# Modules in float32 beside others in bfloat16, whichever of them has the run's dtype.
wide='*ln_*=fp32, h.1.mlp=fp32'
train_config mixed.yaml FULL_SHARD bf16 2 1 "precision: {modules: '$wide'}"
train_config transposed.yaml FULL_SHARD no 2 1 "precision: {modules: '$wide, *=bf16'}"
sed -i '/use_cpu/d' transposed.yaml
two cpu-mixed mixed.yaml
sed -i '/use_cpu/d' mixed.yaml
sed 's/fsdp_config:/&\n  fsdp_offload_params: true/' mixed.yaml >offloaded.yaml
for name in mixed transposed offloaded; do
    # shellcheck disable=SC2086 # a list of words
    two gpu-$name $name.yaml $gpus
    same_bits gpu-mixed/log.jsonl gpu-$name/log.jsonl
    ok $? "$name: modules in two dtypes, the same bits"
done
close_losses cpu-mixed/log.jsonl gpu-mixed/log.jsonl $STEPS 1e-2 "and the CPU's losses within 1e-2"
train_config cpu.yaml FULL_SHARD no 2 1
sed '/use_cpu/d' cpu.yaml >gpu.yaml

# alike NAME DESCRIPTION: the run has the bits of the one in which each rank sees all GPUs
alike() {
    same_bits gpu-FULL_SHARD/log.jsonl "$1/log.jsonl"
    ok $? "$2"
}
# each NAME SCRIPT [VAR=VALUE]...: each rank runs SCRIPT, which sets what it is given
each() {
    each_name=$1
    # shellcheck disable=SC2016 # for the task's shell
    printf '#!/bin/sh\nrank=$OMPI_COMM_WORLD_LOCAL_RANK\n%s\nexec "%s" "$@"\n' "$2" "$TRAIN" >task.sh
    shift 2
    chmod +x task.sh
    TRAIN=$tap_tmp/task.sh two "$each_name" gpu.yaml "$@"
}
train_config cpu.yaml FULL_SHARD no 2 1 "topology:" "  bind: false"
sed '/use_cpu/d' cpu.yaml >gpu.yaml
library=LD_LIBRARY_PATH=$tap_tmp/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
data=$ACCEL_SRC/tests/data/topo

# --gpus-per-task=1 with device cgroups: each rank sees one GPU, and calls it 0. The machine
# is a recorded one, which says where on it they are.
# shellcheck disable=SC2016 # for the task's shell
each task '
export CUDA_VISIBLE_DEVICES=0 FAKE_CUDA_DEVICES=1
case $rank in
0) export FAKE_NVML=$DATA/nvswitch8-task2.nvml FAKE_CUDA_BUS=0000:52:00 ;;
1) export FAKE_NVML=$DATA/nvswitch8-task5.nvml FAKE_CUDA_BUS=0000:c3:00 ;;
esac' "$library" DATA="$data" HWLOC_XMLFILE="$data/nvswitch8.xml"
like "$(cat task.out)" 'rank 0 .*: GPU 0000:52:00.0 \(80.0 GiB, 1980 MHz, 700 W\), 3 NVLinks to a switch, NUMA 0, ' \
    "one GPU per task: rank 0 has its own"
like "$(cat task.out)" 'rank 1 .*: GPU 0000:c3:00.0 \(80.0 GiB, 1980 MHz, 700 W\), NUMA 1, ' \
    "rank 1 another, on the other NUMA node"
alike task "and the bits of a run in which all GPUs are seen"
# shellcheck disable=SC2016 # the same
sed -i 's/^1).*/1) export FAKE_NVML=$DATA\/nvswitch8-task2.nvml FAKE_CUDA_BUS=0000:52:00 ;;/' task.sh
env ACCEL_CONFIG=gpu.yaml "$library" DATA="$data" timeout "$HANG_S" mpirun --oversubscribe -n 2 \
    ./task.sh --data text --steps 1 --sample 0 --out double >double.out 2>&1
contains "$(cat double.out)" "A0425" "two tasks with one GPU are told apart by nothing but its bus id"

# Slices of two GPUs in one list: CUDA shows a process the first one only, so each rank has to
# name its own before CUDA reads the list.
one=MIG-4b1c7f0e-9d31-5e0a-a1b2-77c0ffee0002 other=MIG-d00dfeed-0004-5000-8000-000000000004
each slices '' "$library" FAKE_NVML="$data/mig2.nvml" CUDA_VISIBLE_DEVICES="$one,$other" \
    FAKE_CUDA_BUS="$one=0000:17:00,$other=0000:65:00"
like "$(cat slices.out)" "rank 0 .*: MIG slice $one \\(of 0000:17:00.0, 9.8 GiB, " \
    "slices: rank 0 has the first of the list"
like "$(cat slices.out)" "rank 1 .*: MIG slice $other \\(of 0000:65:00.0, 39.2 GiB, " \
    "rank 1 the second, which CUDA would not have shown it"
alike slices "and the same bits again"

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
# shellcheck disable=SC2086
two calls again.yaml $gpus ACCEL_CUDA_GRAPHS=0
same_bits gpu-FULL_SHARD/log.jsonl calls/log.jsonl
ok $? "recorded around the collectives or call by call: the same bits"
done_testing
