#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A checkpoint that version 0.1 wrote before the source was rearranged: step 4 of 8, of two
# ranks, in tests/data. This build verifies it, goes on from it at the same sample, on two
# ranks and on one, and reaches the losses that 0.1 reached; near them in precisions that 0.1
# did not have.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
accel=$ACCEL_BUILD/accel
[ -x "$TRAIN" ] || skip_all "examples/train is not built"
need_program mpirun
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
unset SLURM_JOB_ID ACCEL_CONFIG_RESOLVED
old=$ACCEL_SRC/tests/data/checkpoint-0.1
mkdir out
cp -r "$old/checkpoints" out
chmod -R u+w out
"$accel" ckpt verify out/checkpoints >verify.out 2>&1
is $? 0 "the old checkpoint verifies" || diag "$(cat verify.out)"
for ranks in 2 1; do
    cp -r out out$ranks
    batch=$((4 / ranks))
    timeout "$HANG_S" "$accel" launch --config "$old/two.yaml" -n $ranks "$TRAIN" --layers 1 --heads 1 --width 8 \
        --seq 8 --batch $batch --sample 0 --data "$old/text.txt" --steps 8 --out out$ranks >$ranks.out 2>&1
    is $? 0 "$ranks: the run goes on from it" || diag "$(cat $ranks.out)"
    like "$(cat $ranks.out)" 'resumed from .*: step 4, 16 samples seen, written by 2 ranks' "$ranks: at the exact sample"
    is "$(losses out$ranks/log.jsonl | cut -d' ' -f1 | tr '\n' ' ')" "5 6 7 8 " "$ranks: the remaining steps"
    worst=$(worst_difference out$ranks/log.jsonl "$old/log.jsonl")
    awk -v w="$worst" 'BEGIN { exit !(w != "none" && w + 0 <= 1e-5) }'
    ok $? "$ranks: the losses are those of 0.1 (relative difference at most $worst)"
done
for precision in bf16 fp16 fp8; do
    cp -r out out$precision
    ACCEL_MIXED_PRECISION=$precision timeout "$HANG_S" "$accel" launch --config "$old/two.yaml" -n 2 "$TRAIN" \
        --layers 1 --heads 1 --width 8 --seq 8 --batch 2 --sample 0 --data "$old/text.txt" --steps 8 \
        --out out$precision >$precision.out 2>&1
    is $? 0 "$precision: the run goes on from it" || diag "$(cat $precision.out)"
    like "$(cat $precision.out)" "precision +$precision " "$precision: in that precision"
    worst=$(worst_difference out$precision/log.jsonl "$old/log.jsonl")
    awk -v w="$worst" 'BEGIN { exit !(w != "none" && w + 0 <= 1e-2) }'
    ok $? "$precision: the losses are near those of 0.1 (relative difference at most $worst)"
done
done_testing
