#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# HYBRID_SHARD and HYBRID_SHARD_ZERO2 on two nodes of two ranks, and SHARD_GRAD_OP: the
# losses of one process, the same bits in two runs, and checkpoints that go on under other
# strategies and numbers of ranks.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
need_plugin
grep -q -e -DHAVE_UCX "$ACCEL_BUILD/Makefile" || skip_all "built without UCX"
can_mnt_mode || skip_all "this system allows no mount namespaces"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

STEPS=20
MODEL="--layers 2 --heads 2 --width 32 --seq 32 --warmup 5 --sample 0"
tap_tmpdir
train_text "$tap_tmp/text.txt"

# go NAME STRATEGY RANKS NODES STEPS: global batch 8 whatever the ranks
go() {
    train_config "$tap_tmp/$1.yaml" "$2" no "$3" "$4" "checkpoint: {every_steps: 10, keep: 5}"
    # shellcheck disable=SC2086 # MODEL is a list of words
    run_srun -N "$4" --accel-config="$tap_tmp/$1.yaml" "$TRAIN" $MODEL --steps "$5" \
        --data "$tap_tmp/text.txt" --batch $((8 / $3)) --out "$tap_tmp/$1"
    ok $? "$1: $2, $3 rank(s) on $4 node(s)"
}

near() { # NAME DESCRIPTION
    close_losses "$tap_tmp/one/log.jsonl" "$tap_tmp/$1/log.jsonl" $STEPS 1e-5 "$2"
}

cluster_up --nodes 2 --mode mnt
go one FULL_SHARD 1 1 $STEPS
for strategy in HYBRID_SHARD HYBRID_SHARD_ZERO2 SHARD_GRAD_OP; do
    go $strategy $strategy 4 2 $STEPS
    near $strategy "  the losses of one process"
done
go again HYBRID_SHARD 4 2 $STEPS
same_bits "$tap_tmp/HYBRID_SHARD/log.jsonl" "$tap_tmp/again/log.jsonl"
ok $? "the same run again gives the same bits"
go copies HYBRID_SHARD 2 2 $STEPS
near copies "one rank a node: copies"

# goes_on NAME: has ten steps of HYBRID_SHARD behind it
goes_on() {
    cp -R "$tap_tmp/HYBRID_SHARD" "$tap_tmp/$1"
    rm -rf "$tap_tmp/$1"/checkpoints/step_*20 "$tap_tmp/$1/checkpoints/latest"
}
goes_on whole
go whole NO_SHARD 1 1 $STEPS
like "$srun_out" "resumed from .*step_0*10: " "a checkpoint of HYBRID_SHARD goes on in one process"
near whole "  with the same losses"
goes_on three
go three FULL_SHARD 4 1 $STEPS
like "$srun_out" "resumed from .*step_0*10: " "and with FULL_SHARD on one node"
near three "  with the same losses"
rm -rf "$tap_tmp"/one/checkpoints/step_*20 "$tap_tmp/one/checkpoints/latest"
cp -R "$tap_tmp/one" "$tap_tmp/back"
go back HYBRID_SHARD 4 2 $STEPS
like "$srun_out" "resumed from .*step_0*10: " "one of one process goes on with HYBRID_SHARD"
near back "  with the same losses"
cluster_down
done_testing
