#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The same global batch gives the same losses on 1, 2 and 4 ranks, FULL_SHARD and NO_SHARD,
# on one node and on two, within shared memory and over UCX (float32: 1e-5 over 50 steps,
# bfloat16: 1e-2). Ranks are started by srun on a throw-away cluster.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/train.sh"
need_plugin

STEPS=50
MODEL="--layers 2 --heads 2 --width 32 --seq 32 --steps $STEPS --warmup 5 --sample 0"
tap_tmpdir
train_text "$tap_tmp/text.txt"

# case_run NAME STRATEGY PRECISION RANKS NODES: trains into $tap_tmp/NAME
case_run() {
    train_config "$tap_tmp/$1.yaml" "$2" "$3" "$4" "$5"
    # shellcheck disable=SC2086 # MODEL is a list of words
    run_srun -N "$5" --accel-config="$tap_tmp/$1.yaml" "$TRAIN" $MODEL \
        --data "$tap_tmp/text.txt" --batch $((8 / $4)) --out "$tap_tmp/$1"
    ok $? "$1: $4 ranks on $5 node(s), $2, $3"
}

# one_precision PRECISION TOLERANCE: all shapes on one mount-namespace cluster
one_precision() {
    case_run "$1-1" FULL_SHARD "$1" 1 1
    for strategy in FULL_SHARD NO_SHARD; do
        for ranks in 1 2 4; do
            for nodes in 1 2; do
                [ $((ranks * 2 + nodes)) -eq 3 ] && [ $strategy = FULL_SHARD ] && continue
                [ "$ranks" -lt "$nodes" ] && continue
                [ "$ranks$nodes" = 22 ] && [ "$1" = bf16 ] && continue
                name=$1-$ranks-$nodes-$strategy
                case_run "$name" $strategy "$1" $ranks $nodes
                close_losses "$tap_tmp/$1-1/log.jsonl" "$tap_tmp/$name/log.jsonl" $STEPS "$2" \
                    "$name equals one process within $2"
            done
        done
    done
}

can_mnt_mode || skip_all "this system allows no mount namespaces"
cluster_up --nodes 2 --mode mnt
one_precision no 1e-5
one_precision bf16 1e-2

case_run again FULL_SHARD bf16 4 2
same_bits "$tap_tmp/bf16-4-2-FULL_SHARD/log.jsonl" "$tap_tmp/again/log.jsonl"
ok $? "the same run again gives the same bits"
same_bits "$tap_tmp/no-4-1-FULL_SHARD/log.jsonl" "$tap_tmp/no-4-2-FULL_SHARD/log.jsonl"
ok $? "shared memory and UCX give the same bits"

falling=$(losses "$tap_tmp/no-1/log.jsonl" | awk 'NR == 1 { a = $2 } { b = $2 } END { print (b < a - 1) }')
is "$falling" 1 "the loss falls by more than 1 in $STEPS steps"
cluster_down

if can_net_mode; then
    cluster_up --nodes 2 --mode net
    for strategy in FULL_SHARD NO_SHARD; do
        case_run net-$strategy $strategy no 4 2
        close_losses "$tap_tmp/no-1/log.jsonl" "$tap_tmp/net-$strategy/log.jsonl" $STEPS 1e-5 \
            "two hosts (own network namespaces), $strategy, equal one process"
    done
    cluster_down
else
    skip 4 "this system allows no network namespaces"
fi
done_testing
