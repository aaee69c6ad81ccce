#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What a model can be made of beyond the reference trainer: an op of the program's own, a
# buffer, a gradient function, a tied weight, recomputed blocks; sharded, and resumed.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/train.sh"
need_plugin
PARTS=$ACCEL_BUILD/tests/helpers/parts

tap_tmpdir
train_text "$tap_tmp/text.txt"
cluster_up --nodes 1

# go OUT RANKS STEPS STRATEGY [recompute]; the extra line of fsdp_config is in $extra
extra=
go() {
    train_config "$tap_tmp/parts.yaml" "$4" no "$2" 1 "checkpoint: {every_steps: 6, keep: 5}"
    [ -z "$extra" ] || sed -i "s/^fsdp_config:/&\n  $extra/" "$tap_tmp/parts.yaml"
    run_srun --accel-config="$tap_tmp/parts.yaml" "$PARTS" "$tap_tmp/text.txt" \
        "$tap_tmp/$1" "$3" ${5:+"$5"}
}

go whole 2 12 FULL_SHARD
ok $? "12 steps on 2 ranks" || bail_out "parts does not run"
like "$srun_out" "buffer 12, gradient pieces seen" "the buffer and the gradients were seen"
go again 2 12 FULL_SHARD recompute
same_bits "$tap_tmp/whole/log.jsonl" "$tap_tmp/again/log.jsonl"
ok $? "recomputed blocks: the same bits"
extra="fsdp_activation_checkpointing: true"
go key 2 12 FULL_SHARD
ok $? "fsdp_activation_checkpointing is honoured"
same_bits "$tap_tmp/whole/log.jsonl" "$tap_tmp/key/log.jsonl"
ok $? "and gives the same bits"
extra=
go copies 2 12 NO_SHARD
close_losses "$tap_tmp/whole/log.jsonl" "$tap_tmp/copies/log.jsonl" 12 1e-5 "NO_SHARD"

cp -R "$tap_tmp/whole" "$tap_tmp/half"
rm -rf "$tap_tmp/half"/checkpoints/step_*12 "$tap_tmp/half/checkpoints/latest"
go half 2 12 FULL_SHARD
like "$srun_out" "resumed from .*step_0*6: step 6" "a resumed run"
same_bits "$tap_tmp/whole/log.jsonl" "$tap_tmp/half/log.jsonl"
ok $? "goes on with the same bits"
go whole 2 12 FULL_SHARD
like "$srun_out" "buffer 12, gradient pieces none" \
    "a finished run does no step, and has the buffer of its checkpoint"
done_testing
