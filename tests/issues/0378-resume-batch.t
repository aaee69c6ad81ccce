#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: a run that resumed on another number of ranks had another global batch, and only the
# number of ranks was told.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/../t/tap.sh"
# shellcheck source=tests/t/train.sh
. "$ACCEL_SRC/tests/t/train.sh"

train_alone
unset ACCEL_CONFIG
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
printf 'distributed_type: FSDP\nuse_cpu: true\n' >fsdp.yaml
train() { # RANKS STEPS [OPTION...]
    t_ranks=$1 t_steps=$2
    shift 2
    timeout "$HANG_S" "$ACCEL_BUILD/accel" launch -n "$t_ranks" --config fsdp.yaml "$TRAIN" --data text.txt \
        --layers 1 --heads 2 --width 16 --seq 16 --sample 0 --steps "$t_steps" "$@" >out.txt 2>&1
}
batch_lines() {
    grep -o 'resuming with a global batch.*' out.txt
}
train 1 2 --batch 4 --accumulate 2
is "$?/$(batch_lines)" "0/" "a run of 4 x 2 samples"
train 1 3 --batch 4 --accumulate 2
is "$?/$(batch_lines)" "0/" "the same again"
train 1 4 --batch 8
is "$?/$(batch_lines)" "0/" "8 samples in other parts are as many"
train 1 5 --batch 2
is "$?/$(batch_lines)" "0/resuming with a global batch of 2 samples (the checkpoint had 8): change batch or accumulate to keep it" \
    "fewer are told"
if command -v mpirun >/dev/null 2>&1; then
    train 2 6 --batch 2
    is "$?/$(batch_lines)" "0/resuming with a global batch of 4 samples (the checkpoint had 2): change batch or accumulate to keep it" \
        "so are more by a rank more"
    train 1 7 --batch 4
    is "$?/$(batch_lines)" "0/" "but not half the ranks with twice the batch"
else
    skip 2 "no mpirun"
fi
done_testing
