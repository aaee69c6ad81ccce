#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# examples/train (GPT-2) and examples/finetune_bert beside the same models written in PyTorch
# alone: 50 steps from the same weights with the same batches, on 1 and 2 ranks; one process
# of PyTorch has the whole batch.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"

torch=${ACCEL_TORCH_PYTHON:-python3}
"$torch" -c 'import torch, numpy' 2>/dev/null ||
    skip_all "no torch and numpy in $torch (set ACCEL_TORCH_PYTHON)"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
export OMP_NUM_THREADS PYTHONDONTWRITEBYTECODE
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED SLURM_JOB_ID SLURM_PROCID CUDA_VISIBLE_DEVICES
STEPS=50
train_text text.txt
mkdir bert
train_pairs 500 pairs.tsv bert/vocab.txt

# compare KIND DATA PROGRAM [OPTION]...
compare() {
    kind=$1 data=$2
    shift 2
    "$torch" "$ACCEL_SRC/tests/data/twins_models.py" "$kind" "$kind" "$data" $STEPS >said 2>&1
    ok $? "$kind: $STEPS steps of PyTorch, for 1 and 2 ranks" || diag "$(tail -n 5 said)"
    for ranks in 1 2; do
        train_config twin.yaml FULL_SHARD no $ranks 1 "checkpoint: {save: false}"
        "$ACCEL_BUILD/accel" launch -n $ranks --config twin.yaml "$@" --model "./$kind" \
            --data "$data" --batch 8 --steps $STEPS --lr 1e-3 --out "out-$kind-$ranks" >said 2>&1
        ok $? "$kind on $ranks ranks" || diag "$(tail -n 5 said)"
        close_losses "$kind/$ranks.jsonl" "out-$kind-$ranks/log.jsonl" $STEPS 1e-5 \
            "$kind on $ranks ranks: PyTorch's losses"
    done
}

compare gpt2 text.txt "$TRAIN" --seq 32 --warmup 5 --weight-decay 0.1 --clip 1 --sample 0
compare bert pairs.tsv "$ACCEL_BUILD/examples/finetune_bert" --seq 12
done_testing
