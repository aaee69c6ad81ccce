#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The trainer on the stand-in for a GPU: checkpoints and weights that go from there to the CPU
# and back, and a device that is lost, too small, another one, or without a module. What it
# computes is 2130's.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
unset ACCEL_CUDA_MODULE # of a GPU: it is not lost at will
# shellcheck source=tests/t/gpu.sh
. "$(dirname "$0")/gpu.sh"

begin_gpu_test
# shellcheck disable=SC2119 # no extra lines
gpu_configs
small="--layers 2 --width 32 --heads 2"
gpu_sizes="$small --seq 16 --batch 2"

gpu_train gpu-no place -- --steps 1
like "$out" 'rank 0 .*: GPU 0000:01:00.0 ' "the map says which GPU"
like "$out" 'compute  *cuda, ' "the plan that it computes there"
is "$(echo "$out" | grep -c 'install cuDNN')" 0 "float32 has no use for cuDNN"
gpu_train gpu-bf16 advised -- --steps 2
is "$(echo "$out" | grep -c 'warn.*no libcudnn.*install cuDNN 9')" 1 \
    "bfloat16 without cuDNN is warned of, once"

gpu_train gpu-no there -- --steps 3
gpu_train cpu-no there -- --steps 6
is "$code" 0 "a checkpoint of the GPU goes on on the CPU"
gpu_train gpu-no there -- --steps 9 --save weights
is "$code" 0 "and back on the GPU, which writes the weights"
is "$(losses there/log.jsonl | wc -l)" 9 "no step is missing"
gpu_train cpu-no back -- --steps 3
gpu_train gpu-no back -- --steps 6
is "$code" 0 "the way round"
passes "weights are there for others" [ -s weights/model.safetensors ]
gpu_sizes="--seq 16 --batch 2"
gpu_train gpu-no from -- --steps 2 --model "$tap_tmp/weights"
is "$code" 0 "and a GPU starts from them" || diag "$out"
gpu_sizes="$small --seq 16 --batch 2"

gpu_train gpu-no lost FAKE_CUDA_LOSE_AFTER=380 FAKE_CUDA_ORDER=eager -- --steps 50
is "$code" 69 "a device that is lost in a step ends the run"
op='[a-z][a-z_.0-9]*: [a-z_0-9]+( \(backward\))?'
like "$out" "error\[A0446\]: in or after $op: GPU 0 .*: .* failed: .*; last op on the GPU: $op" \
    "with the ops and modules it may have been, and the call where it showed"
contains "$out" "ACCEL_CUDA_GRAPHS=0, which names the op" "and what to do"
gpu_train gpu-no named FAKE_CUDA_LOSE_AFTER=380 FAKE_CUDA_ORDER=eager CUDA_LAUNCH_BLOCKING=1 \
    ACCEL_CUDA_GRAPHS=0 -- --steps 50
is "$code" 69 "so does one whose launches wait"
like "$out" "error\[A0446\]: $op: GPU 0 .*: .* failed: " "with the very op"
gpu_train gpu-no late FAKE_CUDA_LOSE_AFTER=380 -- --steps 50
is "$code" 69 "also where it shows only when it is waited for"
like "$out" "error\[A0446\]: in or after $op: GPU 0 " "with the ops it may have been"
gpu_train gpu-no fault FAKE_CUDA_LOSE_AFTER=300:719 -- --steps 50
is "$code" 69 "a kernel that fails"
like "$out" "error\[A0446\]: in or after $op: GPU 0 .*cudaErrorLaunchFailure" \
    "is told by its name"
gpu_train gpu-no small FAKE_CUDA_MEMORY=134217728 -- --steps 1 --width 512 --layers 4
is "$code" 71 "a model that is too large for the device is refused"
like "$out" 'error\[A0904\]: the plan needs .* on the GPU, but it has ' "before it starts"
gpu_train gpu-no other FAKE_CUDA_BUS=0000:55:00.0 -- --steps 1
is "$code" 69 "a device that is not the one that was given is refused"
contains "$out" "CUDA_DEVICE_ORDER=PCI_BUS_ID" "with the cure"
gpu_train gpu-no none ACCEL_CUDA_MODULE=none.so -- --steps 1
is "$code" 69 "a GPU that was given is not made up for by the CPU"
contains "$out" "A0440" "and what is missing is said"
# Host code must not be handed the device's memory.
for program in byo byo_cpp mlp cnn; do
    out=$(ACCEL_CONFIG=gpu-no.yaml timeout "$HANG_S" "$ACCEL_BUILD/examples/$program" 2>&1)
    code=$?
    is "$code" 65 "$program, whose own code is the host's, is refused on a GPU"
    contains "$out" "set use_cpu: true" "with the cure"
done

done_testing
