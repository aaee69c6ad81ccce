#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# One training run on 2 ranks, saved and resumed, built with the address and
# undefined-behaviour sanitizers: no finding, no leak of ours. scripts/test --all makes the build
# in build-asan; ACCEL_ASAN_BUILD names another.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/train.sh"
need_plugin

asan=${ACCEL_ASAN_BUILD:-$ACCEL_SRC/build-asan}
[ -x "$asan/examples/train" ] || skip_all "no sanitizer build; scripts/test --all makes one"
tap_tmpdir
train_text "$tap_tmp/text.txt"
train_config "$tap_tmp/fsdp.yaml" FULL_SHARD bf16 2 1 "checkpoint: {every_steps: 10}"
# shellcheck source=tests/sanitizer.sh
. "$ACCEL_SRC/tests/sanitizer.sh"

go() { # STEPS
    run_srun -N1 --accel-config="$tap_tmp/fsdp.yaml" "$asan/examples/train" --layers 2 \
        --heads 2 --width 32 --seq 32 --batch 4 --accumulate 2 --steps "$1" --sample 20 \
        --eval-every 10 --data "$tap_tmp/text.txt" --out "$tap_tmp/out"
}

cluster_up --nodes 1
go 20
ok $? "2 ranks train, evaluate, save and sample"
unlike "$srun_out" "Sanitizer|runtime error" "no finding"
go 30
ok $? "they resume"
unlike "$srun_out" "Sanitizer|runtime error" "no finding on resume"
each_step_once "$tap_tmp/out/log.jsonl" 30
ok $? "every step once"
done_testing
