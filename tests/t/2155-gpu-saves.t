#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Checkpoints that a GPU copies while its next step computes: each has the bytes of the one for
# which training waits, and the steps their bits. On the stand-in a copy is made as late as the
# order of queues allows, so that an update which did not wait for it would be in it.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
# shellcheck source=tests/t/gpu.sh
. "$(dirname "$0")/gpu.sh"

begin_gpu_test
gpu_sizes="--layers 2 --width 32 --heads 2 --seq 16 --batch 2"
# shellcheck disable=SC2119 # no extra lines
gpu_configs
gpu_train cpu-no first -- --steps 1
case $out in *"built without HDF5"*) skip_all "this build has no HDF5" ;; esac

# both NAME [VAR=VALUE]... -- [OPTION]...: runs behind-NAME and once-NAME, whose checkpoints are
# written behind the training and at once
both() {
    both_name=$1
    shift
    for when in behind once; do
        case $when in behind) async=true ;; *) async=false ;; esac
        gpu_configs "accel: {checkpoint: {every_steps: 1, keep: 9, async: $async, when_busy: wait}}"
        gpu_train gpu-bf16 $when-"$both_name" "$@"
        is "$code" 0 "$both_name, $when: trains" || diag "$out"
        echo "$out" >$when-"$both_name".out
    done
    is "$(grep -c '^checkpoint of step .*the training waited' "behind-$both_name.out")" $((steps - 1)) \
        "$both_name: all but the last one are in the background"
    passes "$both_name: the steps have the same bits" \
        same_bits "behind-$both_name/log.jsonl" "once-$both_name/log.jsonl"
    step=1
    while [ $step -le $steps ]; do
        at=checkpoints/$(printf 'step_%08d' $step)
        "$ACCEL_BUILD/accel" ckpt diff "behind-$both_name/$at" "once-$both_name/$at" >said 2>&1
        ok $? "$both_name: the checkpoint of step $step has the same bytes" || diag "$(cat said)"
        step=$((step + 1))
    done
}

steps=5
both plain -- --steps $steps
both calls ACCEL_CUDA_GRAPHS=0 -- --steps $steps
# Several micro-batches and an evaluation lie between a copy and the update that waits for it.
head -c 4000 text >short
both long -- --steps $steps --accumulate 3 --eval-every 2 --data short
for life in behind once; do
    gpu_train gpu-bf16 $life-plain -- --steps 8
    is "$code" 0 "$life: goes on from there" || diag "$out"
done
passes "with the same bits" same_bits behind-plain/log.jsonl once-plain/log.jsonl
done_testing
