#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The loss scale beside torch.amp.GradScaler itself: random rules and random overflows, scale and
# tracker after each update, to the bit.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

python=${ACCEL_PEERS_PYTHON:-python3}
"$python" -c 'import torch; torch.amp.GradScaler("cpu")' 2>/dev/null ||
    skip_all "no torch with a GradScaler for CPUs in $python (set ACCEL_PEERS_PYTHON)"
helper=$ACCEL_BUILD/tests/unit/test_scaler
[ -x "$helper" ] || skip_all "tests/unit/test_scaler is not built"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"

cat >torch_scaler.py <<'PY'
import random
import subprocess
import sys
import torch

helper, count = sys.argv[1], int(sys.argv[2])
draw = random.Random(17)
wrong = updates = 0
for _ in range(count):
    rule = dict(init_scale=draw.choice([1.0, 3.7, 65536.0, 2.0**100]),
                growth_factor=draw.choice([1.5, 2.0, 10.0, 1e30]),
                backoff_factor=draw.choice([0.1, 0.5, 0.9]), growth_interval=draw.randint(1, 20))
    rare = draw.randint(1, 30)
    found = [draw.randrange(rare) == 0 for _ in range(60)]
    scaler = torch.amp.GradScaler("cpu", **rule)
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler.scale(torch.zeros(1))
    theirs = []
    for overflow in found:
        weight.grad = torch.tensor([float("inf") if overflow else 0.0])
        scaler.step(optimizer)
        scaler.update()
        theirs.append((scaler.get_scale(), scaler._get_growth_tracker()))
    text = "%r %r %r %d\n" % tuple(rule.values()) + "".join("01"[f] for f in found)
    out = subprocess.run([helper, "play"], input=text, capture_output=True, text=True, check=True)
    ours = [(float.fromhex(a), int(b)) for a, b in (l.split() for l in out.stdout.splitlines())]
    wrong += ours != theirs
    updates += len(found)
print(wrong, updates)
PY

"$python" -W ignore torch_scaler.py "$helper" 200 >said 2>errors
ok $? "torch and the helper ran" || diag "$(tail -n 5 errors)"
is "$(cat said)" "0 12000" "12000 updates in 200 sequences as torch's"
done_testing
