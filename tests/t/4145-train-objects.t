#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# examples/gan and examples/distill: 50 steps beside PyTorch from the same initial values,
# and stopped and resumed.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/t/second_reader.sh
. "$(dirname "$0")/second_reader.sh"

reader=$python
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
STEPS=50
torch=${ACCEL_TORCH_PYTHON:-python3}
"$torch" -c 'import torch' 2>/dev/null || torch=

train() { # NAME STEPS RATE OUT
    "$ACCEL_BUILD/examples/$1" "$2" "$3" "$4" >said 2>&1
}

curve() { # OUT: "STEP LOSS" lines
    sed -n 's/^{"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1/log.jsonl"
}

# close FILE FILE: every loss within 1e-5 of the other, relatively
close() {
    paste -d ' ' "$1" "$2" | awk -v steps=$STEPS '
        { d = $2 - $4; d = d < 0 ? -d : d; if ($1 != $3 || d > 1e-5 * $4) bad = 1 }
        END { exit bad || NR != steps }'
}

printf 'use_cpu: true\ndistributed_type: "NO"\nmixed_precision: "no"\n' >one.yaml
ACCEL_CONFIG=$tap_tmp/one.yaml
export ACCEL_CONFIG
for name in gan distill; do
    rate=2e-3
    [ $name = distill ] && rate=5e-3
    train $name $STEPS $rate $name.whole
    ok $? "$name: $STEPS steps" || diag "$(tail -n 5 said)"
    curve $name.whole >$name.ours
    train $name 1 0 $name.start &&
        "$reader" "$ACCEL_SRC/tests/helpers/second_reader.py" extract \
            "$(echo $name.start/checkpoints/step_*)" $name.values >said 2>&1
    ok $? "$name: its initial values" || diag "$(tail -n 5 said)"
    if [ -n "$torch" ]; then
        "$torch" "$ACCEL_SRC/tests/data/objects.py" $name $name.values/tensors $STEPS \
            >$name.theirs 2>said
        ok $? "$name: the same in PyTorch" || diag "$(tail -n 5 said)"
        close $name.ours $name.theirs
        ok $? "$name: losses within 1e-5" ||
            diag "$(paste -d ' ' $name.ours $name.theirs | tail -n 3)"
    else
        skip 2 "no PyTorch for python3 (ACCEL_TORCH_PYTHON names another)"
    fi
    # the number of steps of a run may change, and these rates do not depend on it
    train $name 20 $rate $name.parts && train $name $STEPS $rate $name.parts
    ok $? "$name: resumed after 20 steps" || diag "$(tail -n 5 said)"
    curve $name.parts >$name.twice
    is "$(cat $name.twice)" "$(cat $name.ours)" "$name: the same losses"
done
done_testing
