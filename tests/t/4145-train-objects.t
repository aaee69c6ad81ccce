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

train() { # NAME STEPS RATE OUT [TEACHER]
    name_=$1
    shift
    "$ACCEL_BUILD/examples/$name_" "$@" >said 2>&1
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
printf 'use_cpu: true\ndistributed_type: FSDP\nmixed_precision: "no"\n' >two.yaml
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
        "$ACCEL_BUILD/accel" launch -n 2 --config two.yaml "$ACCEL_BUILD/examples/$name" \
            $STEPS $rate $name.two >said 2>&1
        ok $? "$name: on 2 ranks" || diag "$(tail -n 5 said)"
        curve $name.two >$name.both
        close $name.both $name.theirs
        ok $? "$name: as well" || diag "$(paste -d ' ' $name.both $name.theirs | tail -n 3)"
    else
        skip 4 "no PyTorch for python3 (ACCEL_TORCH_PYTHON names another)"
    fi
    # the number of steps of a run may change, and these rates do not depend on it
    train $name 20 $rate $name.parts && train $name $STEPS $rate $name.parts
    ok $? "$name: resumed after 20 steps" || diag "$(tail -n 5 said)"
    curve $name.parts >$name.twice
    is "$(cat $name.twice)" "$(cat $name.ours)" "$name: the same losses"
done

# a teacher from a file of its own: the one above, with all values doubled
cp -R distill.values taught.values
python3 - taught.values/tensors/model/teacher >said 2>&1 <<'PY'
import array, json, os, struct, sys
shape = {"in.weight": [64, 8], "in.bias": [64], "out.weight": [4, 64], "out.bias": [4]}
header, body = {}, b""
for name in sorted(shape):
    path = os.path.join(sys.argv[1], name)
    values = array.array("f", open(path, "rb").read())
    raw = array.array("f", (2 * x for x in values)).tobytes()
    open(path, "wb").write(raw)
    header[name] = {"dtype": "F32", "shape": shape[name],
                    "data_offsets": [len(body), len(body) + len(raw)]}
    body += raw
text = json.dumps(header).encode()
open("teacher.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
PY
ok $? "weights of a teacher" || diag "$(tail -n 5 said)"
train distill $STEPS 5e-3 taught teacher.safetensors
ok $? "distill: from that teacher" || diag "$(tail -n 5 said)"
curve taught >taught.ours
[ -s taught.ours ] && ! cmp -s taught.ours distill.ours
ok $? "distill: it learns something else"
if [ -n "$torch" ]; then
    "$torch" "$ACCEL_SRC/tests/data/objects.py" distill taught.values/tensors $STEPS \
        >taught.theirs 2>said
    close taught.ours taught.theirs
    ok $? "distill: what PyTorch learns from it, within 1e-5" || diag "$(tail -n 5 said)"
else
    skip 1 "no PyTorch for python3 (ACCEL_TORCH_PYTHON names another)"
fi
done_testing
