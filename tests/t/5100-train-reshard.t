#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A checkpoint written by 4 ranks goes on at 1, 2 and 3 ranks: same samples in the same
# order, so the losses of the same global batch stay those of the uninterrupted run.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/train.sh"
need_plugin

MODEL="--layers 2 --heads 2 --width 36 --seq 32 --warmup 5 --sample 0"
tap_tmpdir
train_text "$tap_tmp/text.txt"

# go OUT RANKS STEPS: global batch 12 whatever the ranks
go() {
    train_config "$tap_tmp/$2.yaml" FULL_SHARD no "$2" 1 "checkpoint: {every_steps: 10, keep: 5}"
    # shellcheck disable=SC2086
    run_srun --accel-config="$tap_tmp/$2.yaml" "$TRAIN" $MODEL --steps "$3" \
        --data "$tap_tmp/text.txt" --batch $((12 / $2)) --out "$tap_tmp/$1"
}

cluster_up --nodes 1
go whole 4 40
ok $? "4 ranks, 40 steps" || bail_out "the trainer does not run"
for ranks in 1 2 3; do
    cp -R "$tap_tmp/whole" "$tap_tmp/from-$ranks"
    rm -rf "$tap_tmp/from-$ranks"/checkpoints/step_*3? "$tap_tmp/from-$ranks"/checkpoints/step_*4? \
        "$tap_tmp/from-$ranks/checkpoints/latest"
    go "from-$ranks" $ranks 40
    ok $? "resumed on $ranks rank(s)"
    like "$srun_out" "resumed from .*step_0*20: step 20, 240 samples seen, written by 4 ranks" \
        "it says from where"
    close_losses "$tap_tmp/whole/log.jsonl" "$tap_tmp/from-$ranks/log.jsonl" 40 1e-5 \
        "the sample order goes on at $ranks rank(s): losses stay equal"
done
go whole 4 40
ok $? "a finished run ends 0"
like "$srun_out" "the run is complete: all 40 steps are done" "and says so"

sed -i 's/^mixed/#mixed/' "$tap_tmp/4.yaml"
# shellcheck disable=SC2086
run_srun --accel-config="$tap_tmp/4.yaml" "$TRAIN" $MODEL --steps 50 --layers 3 \
    --data "$tap_tmp/text.txt" --batch 3 --out "$tap_tmp/whole"
is $? 65 "a checkpoint of another model is refused"
like "$srun_out" "the checkpoint belongs to another run" "and it says why"
done_testing
