#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The trainer on a GPU, which is the CUDA module built against the stand-in toolkit: the
# CPU's losses in float32 and bfloat16, equal bits in two runs, checkpoints and weights that
# go from one to the other, and a device that is lost, too small, another one, or without a
# module. The stand-in closes the device's memory to the host, so that nothing but a copy
# may reach it.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
fake=$ACCEL_BUILD/tests/helpers/.libs/fake_nvml.so
[ -f "$fake" ] || skip_all "fake_nvml.so is not built"
ACCEL_CUDA_MODULE=$ACCEL_BUILD/tests/cuda/accel_cuda.so
[ -f "$ACCEL_CUDA_MODULE" ] || skip_all "no C++ compiler: the stand-in for CUDA is not built"
export ACCEL_CUDA_MODULE
built_with_sanitizer && skip_all "the stand-in's kernels have stacks of their own"

tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED SLURM_GPUS_ON_NODE HWLOC_XMLFILE
FAKE_NVML=$ACCEL_SRC/tests/data/topo/pcie4.nvml
OMP_NUM_THREADS=1
export FAKE_NVML OMP_NUM_THREADS
mkdir driver
ln -s "$fake" driver/libnvidia-ml.so.1
train_text text
for precision in no bf16; do
    printf 'distributed_type: "NO"\nmixed_precision: "%s"\n' $precision >gpu-$precision.yaml
    printf 'use_cpu: true\n' | cat gpu-$precision.yaml - >cpu-$precision.yaml
done

sizes="--layers 2 --width 32 --heads 2"
# run DEVICE-PRECISION OUT [VAR=VALUE]... -- ARGS...: output in $out, status in $code
run() {
    run_config=$1.yaml run_out=$2
    shift 2
    run_env=
    while [ "$1" != -- ]; do
        run_env="$run_env $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # several words
    out=$(env ACCEL_CONFIG="$run_config" CUDA_VISIBLE_DEVICES=0 FAKE_CUDA_WATCH=1 \
        LD_LIBRARY_PATH="$tap_tmp/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" $run_env \
        timeout 300 "$TRAIN" --data text $sizes --seq 16 --batch 2 \
        --sample 0 --log-every 1 --out "$run_out" "$@" 2>&1)
    code=$?
}
# near OUT OUT RELATIVE: as many losses, and none farther apart?
# shellcheck disable=SC2317 # called by passes
near() {
    losses "$1/log.jsonl" >near.a
    losses "$2/log.jsonl" >near.b
    [ -s near.a ] && paste near.a near.b | awk -v most="$3" '
        NF != 4 || $1 != $3 { bad = 1 }
        { d = ($2 - $4) / $4; if (d < 0) d = -d; if (d > most) bad = 1 }
        END { exit bad }'
}

for precision in no bf16; do
    case $precision in no) most=1e-5 ;; bf16) most=1e-2 ;; esac
    run "cpu-$precision" "cpu-$precision" -- --steps 6 --accumulate 2
    is "$code" 0 "$precision: on the CPU"
    run "gpu-$precision" "gpu-$precision" -- --steps 6 --accumulate 2 --save first
    is "$code" 0 "$precision: on the GPU, whose memory the host cannot look into" ||
        diag "$out"
    passes "losses within $most of the CPU's" near "gpu-$precision" "cpu-$precision" "$most"
    run "gpu-$precision" again -- --steps 6 --accumulate 2 --save second
    is "$(losses again/log.jsonl)" "$(losses gpu-$precision/log.jsonl)" "a second run has the same bits"
    passes "in its weights, too" cmp first/model.safetensors second/model.safetensors
    rm -rf again first second
done
run gpu-no place -- --steps 1
like "$out" 'rank 0 .*: GPU 0000:01:00.0, ' "the map says which GPU"
like "$out" 'compute  *cuda, ' "the plan that it computes there"

run gpu-no there -- --steps 3
run cpu-no there -- --steps 6
is "$code" 0 "a checkpoint of the GPU goes on on the CPU"
run gpu-no there -- --steps 9 --save weights
is "$code" 0 "and back on the GPU, which writes the weights"
is "$(losses there/log.jsonl | wc -l)" 9 "no step is missing"
run cpu-no back -- --steps 3
run gpu-no back -- --steps 6
is "$code" 0 "the way round"
passes "weights are there for others" [ -s weights/model.safetensors ]
sizes=
run gpu-no from -- --steps 2 --model "$tap_tmp/weights"
is "$code" 0 "and a GPU starts from them" || diag "$out"
sizes="--layers 2 --width 32 --heads 2"

run gpu-no lost FAKE_CUDA_LOSE_AFTER=400 FAKE_CUDA_ORDER=eager -- --steps 50
is "$code" 69 "a device that is lost in a step ends the run"
like "$out" 'error\[A0446\]: [a-z.0-9]*: [a-z_]*: .*failed: ' \
    "with the module, the op and the call where it showed"
run gpu-no late FAKE_CUDA_LOSE_AFTER=400 -- --steps 50
is "$code" 69 "also where it shows only when it is waited for"
run gpu-no small FAKE_CUDA_MEMORY=134217728 -- --steps 1 --width 512 --layers 4
is "$code" 71 "a model that is too large for the device is refused"
like "$out" 'error\[A0904\]: the plan needs .* on the GPU, but it has ' "before it starts"
run gpu-no other FAKE_CUDA_BUS=0000:55:00.0 -- --steps 1
is "$code" 69 "a device that is not the one that was given is refused"
contains "$out" "CUDA_DEVICE_ORDER=PCI_BUS_ID" "with the cure"
run gpu-no none ACCEL_CUDA_MODULE=none.so -- --steps 1
is "$code" 69 "a GPU that was given is not made up for by the CPU"
contains "$out" "A0440" "and what is missing is said"
done_testing
