#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# examples minimal, mlp, cnn, metrics, byo, streaming and custom_loop beside PyTorch: the same
# initial values, samples and masks of dropout, drawn there from the formulas alone. 50 steps
# on 1 and 2 ranks; one process of PyTorch has the whole batch.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"

torch=${ACCEL_TORCH_PYTHON:-python3}
"$torch" -c 'import torch, numpy' 2>/dev/null ||
    skip_all "no torch and numpy in $torch (set ACCEL_TORCH_PYTHON)"
# shellcheck source=tests/t/second_reader.sh
. "$(dirname "$0")/second_reader.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED SLURM_JOB_ID SLURM_PROCID CUDA_VISIBLE_DEVICES
STEPS=50
train_text text.txt

# Initial values depend on the hash of a parameter's name.
"$python" - >hashes <<'PY'
import xxhash
for module in "in mid out head conv1 conv2 up down first last".split():
    for kind in ("weight", "bias"):
        print(f"{module}.{kind}", xxhash.xxh3_64_intdigest(f"{module}.{kind}"))
for name in ("embedding", "curve.w"):
    print(name, xxhash.xxh3_64_intdigest(name))
PY
ok $? "hashes of the names"

# twin NAME RANKS TOTAL [ARG]...: the losses of the first steps of TOTAL
twin() {
    name=$1 ranks=$2 total=$3
    shift 3
    rm -rf out
    train_config twin.yaml FULL_SHARD no "$ranks" 1 "checkpoint: {save: false}"
    "$ACCEL_BUILD/accel" launch -n "$ranks" --config twin.yaml "$ACCEL_BUILD/examples/$name" "$@" \
        >said 2>&1
    ok $? "$name on $ranks ranks" || diag "$(tail -n 5 said)"
    head -n $STEPS out/log.jsonl >ours.jsonl
    "$torch" "$ACCEL_SRC/tests/data/twins.py" "$name" "$ranks" $STEPS "$total" hashes text.txt \
        2>said | sed 's/\(.*\) \(.*\)/{"step":\1,"loss":\2,}/' >theirs.jsonl
    close_losses ours.jsonl theirs.jsonl $STEPS 1e-5 "$name on $ranks ranks: PyTorch's losses" ||
        diag "$(tail -n 5 said)"
}

for ranks in 1 2; do
    twin minimal "$ranks" 300 text.txt
    twin mlp "$ranks" 300
    twin cnn "$ranks" 500
    twin metrics "$ranks" 2000 out
    twin byo "$ranks" 200 out
    twin streaming "$ranks" 200 'cat text.txt' 200 out
    twin custom_loop "$ranks" 400 out
done
done_testing
