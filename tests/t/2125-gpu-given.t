#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The GPU that a trainer was given, on the stand-ins for NVML and CUDA: what its line says of
# it, warnings when heat or power slows it down, drivers of long ago, slices of a GPU.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
unset ACCEL_CUDA_MODULE # a GPU does not get hot at will
# shellcheck source=tests/t/gpu.sh
. "$(dirname "$0")/gpu.sh"

begin_gpu_test
# shellcheck disable=SC2119 # no extra lines
gpu_configs
gpu_sizes="--layers 1 --width 32 --heads 2 --seq 16 --batch 2"

gpu_train gpu-no place -- --steps 1
like "$out" 'rank 0 .*: GPU 0000:01:00.0 \(45.0 GiB, 1740 MHz, 300 W\), NVLink to GPU 0000:21:00.0, ' \
    "the map says which GPU, what it has and what it is linked to"
unlike "$out" 'slowed down' "nothing else is to be said of it"

# The reasons that NVML gives, question by question: the map asks, then the watch at the start,
# then each line of a step.
{
    echo 'gpu 0000:01:00.0 GPU-5ebe9f43-0b1c-4d2e-9f30-415263740000 48318382080 0 NVIDIA A40'
    echo 'clocks 900 1740 405 7251'
    echo 'reasons 0 0 48 48 4'
} >hot.nvml
FAKE_NVML=$tap_tmp/hot.nvml
gpu_train gpu-no hot -- --steps 3
is "$code" 0 "a GPU that gets too hot goes on"
like "$out" 'warn.*GPU 0000:01:00.0 too hot: slowed down by its hardware \(900 of 1740 MHz' \
    "a warning says that it is slow, and why"
is "$(printf '%s\n' "$out" | grep -c 'too hot')" 1 "once, not at each line"
like "$out" 'GPU 0000:01:00.0 is no longer slowed down' "and that it is over"
sed -i 's/^reasons .*/reasons 80/' hot.nvml
gpu_train gpu-no brake -- --steps 1
like "$out" "GPU 0000:01:00.0 slowed down by the node's power supply" "at the start as well"
sed -i 's/^reasons .*/reasons 4/' hot.nvml
gpu_train gpu-no cap -- --steps 1
is "$code" 0 "at its power limit"
unlike "$out" 'slowed down' "a GPU under load is as it should be"
FAKE_NVML=$ACCEL_SRC/tests/data/topo/pcie4.nvml
ln -sf "$ACCEL_BUILD/tests/helpers/.libs/fake_nvml_old.so" driver/libnvidia-ml.so.1
gpu_train gpu-no old -- --steps 1
is "$code" 0 "a driver that knows neither clocks nor links"
like "$out" 'rank 0 .*: GPU 0000:01:00.0, ' "has a line without them"
ln -sf "$gpu_nvml" driver/libnvidia-ml.so.1

# A slice of a GPU, by its name and as the first one of a GPU that is cut.
FAKE_NVML=$ACCEL_SRC/tests/data/topo/mig2.nvml
slice=MIG-d00dfeed-0004-5000-8000-000000000004
for word in $slice 1; do
    gpu_train gpu-no "slice-$word" CUDA_VISIBLE_DEVICES="$word" FAKE_CUDA_DEVICES=2 \
        FAKE_CUDA_BUS=$slice=0000:65:00 -- --steps 1
    is "$code" 0 "a slice, given as $word" || diag "$out"
    like "$out" "rank 0 .*: MIG slice $slice \\(of 0000:65:00.0, 39.2 GiB, 1410 MHz\\), " \
        "the map says which, and what it has"
done
gpu_train gpu-no elsewhere CUDA_VISIBLE_DEVICES=$slice FAKE_CUDA_BUS=$slice=0000:17:00 -- --steps 1
is "$code" 69 "a slice of another GPU than CUDA opens is refused"
contains "$out" "A0414" "with its bus id"
done_testing
