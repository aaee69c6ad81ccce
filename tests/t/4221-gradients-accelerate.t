#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The gradients of accumulated steps beside accelerate itself: a linear model, several
# micro-batches per step, 1 and 2 ranks; one process of Accelerate has the whole batch.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

python=${ACCEL_PEERS_PYTHON:-python3}
"$python" -c 'import accelerate, torch' 2>/dev/null ||
    skip_all "no accelerate and torch in $python (set ACCEL_PEERS_PYTHON)"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED SLURM_JOB_ID SLURM_PROCID CUDA_VISIBLE_DEVICES
printf 'distributed_type: MULTI_CPU\nuse_cpu: true\naccel: {checkpoint: {save: false}}\n' >run.yaml

cat >peers.py <<'PY'
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState

STEPS, BATCH, WIDTH = 12, 4, 3


def number(sample, i):
    return ((sample * 37 + i * 11 + sample * sample % 7) % 19 - 9) / 9


def gradients(ranks, every):
    GradientState._reset_state()
    AcceleratorState._reset_state(True)
    a = Accelerator(cpu=True, gradient_accumulation_steps=every)
    model = torch.nn.Linear(WIDTH, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    model, sgd = a.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    done = 0
    for micro in range(STEPS * every):
        some = range(micro * BATCH * ranks, (micro + 1) * BATCH * ranks)
        x = torch.tensor([[number(n, i) for i in range(WIDTH)] for n in some])
        y = torch.tensor([[number(n, WIDTH)] for n in some])
        with a.accumulate(model):
            a.backward(((model(x) - y) ** 2).mean())
            # the loop's rate falls to a tenth along a cosine
            at = torch.tensor(torch.pi * (done + 1) / STEPS, dtype=torch.float64)
            sgd.param_groups[0]["lr"] = 0.1 * (0.1 + 0.45 * (1 + at.cos().item()))
            if a.sync_gradients:
                done += 1
                yield done, [w.grad.reshape(-1).tolist() for w in model.parameters()][0]
            sgd.step()
            sgd.zero_grad()


for ranks in (1, 2):
    for every in (1, 2, 3, 5):
        with open(f"{ranks}.{every}.theirs", "w") as out:
            for step, g in gradients(ranks, every):
                out.write(" ".join([str(step)] + ["%.9g" % v for v in g]) + "\n")
PY
"$python" -W ignore peers.py >said 2>&1
ok $? "accelerate runs" || diag "$(tail -n 5 said)"

for ranks in 1 2; do
    for every in 1 2 3 5; do
        "$ACCEL_BUILD/accel" launch -n $ranks --config run.yaml \
            "$ACCEL_BUILD/tests/helpers/accumulated" "out.$ranks.$every" 12 $every \
            >"$ranks.$every.ours" 2>said
        ok $? "$every micro-batches on $ranks ranks" || diag "$(tail -n 5 said)"
        paste -d ' ' "$ranks.$every.ours" "$ranks.$every.theirs" | awk '
            NF != 8 || $1 != $5 { bad = 1 }
            { for (i = 2; i < 5; i++) { d = $i - $(i + 4); if (d < 0) d = -d
                                        if (d > 1e-6) bad = 1 } }
            END { exit bad || NR != 12 }'
        ok $? "the gradients of 12 steps are Accelerate's" ||
            diag "$(paste -d ' ' "$ranks.$every.ours" "$ranks.$every.theirs" | head -n 3)"
    done
done
done_testing
