#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A checkpoint is due when accel.checkpoint.every_minutes have passed, and not before.
# One process without Slurm; the times are so far from the step's that no machine is too
# slow or too fast.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
[ -x "$TRAIN" ] || skip_all "examples/train is not built"
tap_tmpdir
train_text "$tap_tmp/text.txt"
unset SLURM_JOB_ID ACCEL_CONFIG_RESOLVED

saves() { # NAME MINUTES: checkpoints of a run of 20 steps
    train_config "$tap_tmp/$1.yaml" NO_SHARD no 1 1 "checkpoint: {every_minutes: $2}"
    ACCEL_CONFIG=$tap_tmp/$1.yaml timeout "$HANG_S" "$TRAIN" --layers 1 --heads 2 --width 32 --seq 32 \
        --batch 2 --steps 20 --sample 0 --data "$tap_tmp/text.txt" --out "$tap_tmp/$1" \
        >"$tap_tmp/$1.out" 2>&1 || diag "$(cat "$tap_tmp/$1.out")"
    grep -c '^checkpoint of step' "$tap_tmp/$1.out"
}

is "$(saves often 0.0000001)" 20 "due at every step: 20 checkpoints"
is "$(saves never 0)" 1 "off: the one at the end"
is "$(saves rare 1000)" 1 "not due yet: the one at the end"
done_testing
