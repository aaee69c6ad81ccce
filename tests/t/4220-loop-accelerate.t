#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The rules of the loop beside accelerate itself: random loops with nested loaders and changing
# accumulation, random calls of prepared schedules, and random settings of torch's schedules.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

python=${ACCEL_PEERS_PYTHON:-python3}
"$python" -c 'import accelerate, torch' 2>/dev/null ||
    skip_all "no accelerate and torch in $python (set ACCEL_PEERS_PYTHON)"
rules=$ACCEL_BUILD/tests/helpers/loop_rules
[ -x "$rules" ] || skip_all "tests/helpers/loop_rules is not built"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"

cat >cases.py <<'PY'
import random
import sys
import torch
from accelerate import Accelerator
from accelerate.scheduler import AcceleratedScheduler
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import GradientAccumulationPlugin
from torch.optim import lr_scheduler as T

draw = random.Random(int(sys.argv[1]))


def optimizer(lr=0.5):
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)


def loader(accelerator, batches):
    return accelerator.prepare(torch.utils.data.DataLoader(range(batches), batch_size=1))


def accumulate():
    """One line: the events of a few epochs, loaders in loaders."""
    GradientState._reset_state()
    AcceleratorState._reset_state(True)
    across, k = draw.random() < 0.4, draw.randint(1, 5)
    a = Accelerator(cpu=True, gradient_accumulation_plugin=GradientAccumulationPlugin(
        num_steps=k, sync_with_dataloader=not across))
    events = [f"accumulate {k} {int(across)}"]
    loaders = [loader(a, draw.randint(1, 8)) for _ in range(3)]

    def micro():
        if draw.random() < 0.15:
            a.gradient_accumulation_steps = draw.randint(1, 5)
            events.append(f"k{a.gradient_accumulation_steps}")
        with a.accumulate():
            events.append(f"m{int(a.sync_gradients)},{a.step}")

    def walk(depth):
        mine = loaders[depth]
        batches = iter(mine)
        first = True
        for _ in batches:
            if first:
                events.append(f"b{depth}")
            first = False
            if mine.end_of_dataloader:
                events.append(f"l{depth}")
            micro()
            if depth < 2 and draw.random() < 0.3:
                walk(depth + 1)
                micro()
        events.append(f"e{depth}")

    for _ in range(draw.randint(1, 3)):
        walk(0)
        if draw.random() < 0.3:
            micro()
    return " ".join(events)


def schedule():
    GradientState._reset_state()
    AcceleratorState._reset_state(True)
    a = Accelerator(cpu=True)
    with_optimizer, split = draw.random() < 0.8, draw.random() < 0.5
    ranks = draw.randint(1, 5)
    total = draw.randint(30, 60) if draw.random() < 0.5 else 0
    o = optimizer()
    inner = T.OneCycleLR(o, 0.5, total) if total else T.LambdaLR(o, lambda p: 1.0)
    wrapped = a.prepare(o)
    s = AcceleratedScheduler(inner, wrapped, with_optimizer, split)
    PartialState._shared_state["num_processes"] = ranks
    events = [f"schedule {int(with_optimizer)} {int(split)} {ranks} {total}"]
    for _ in range(draw.randint(1, 25)):
        sync, skipped = draw.random() < 0.7, draw.random() < 0.2
        a.gradient_state._set_sync_gradients(sync)
        wrapped._is_overflow = skipped
        o.step()
        s.step()
        events.append(f"{int(sync)},{int(skipped)},{inner.last_epoch}")
    return " ".join(events)


def rates():
    """torch's own schedules, where it has one with the same formula."""
    lr, steps = draw.choice([1e-3, 3e-4, 0.1]), draw.randint(2, 60)
    end, power = draw.choice([0, 0.1, 0.5]), draw.choice([1, 2, 0.5])
    o = optimizer(lr)
    kind = draw.choice(["linear", "cosine", "polynomial", "one-cycle", "constant"])
    if kind == "linear":
        number, s = 1, T.LinearLR(o, 1.0, end, steps)
    elif kind == "cosine":
        number, s = 2, T.CosineAnnealingLR(o, steps, lr * end)
    elif kind == "polynomial":
        number, end, s = 4, 0, T.PolynomialLR(o, steps, power)
    elif kind == "one-cycle":
        number, end, s = 5, 0, T.OneCycleLR(o, lr, steps)
    else:
        number, s = 0, T.ConstantLR(o, 1.0, steps)
    got = []
    for _ in range(steps):
        got.append(o.param_groups[0]["lr"])
        o.step()
        s.step()
    return f"rates {number} {lr} {steps} 0 {end} 0 {power} 0 " + " ".join(map(repr, got))


with open("cases", "w", encoding="ascii") as f:
    for make, count in ((accumulate, 150), (schedule, 300), (rates, 150)):
        for _ in range(count):
            f.write(make() + "\n")
PY
for seed in 1 2; do
    "$python" -W ignore cases.py $seed >said 2>&1
    ok $? "accelerate runs (seed $seed)" || diag "$(tail -n 5 said)"
    "$rules" <cases >said
    ok $? "its loops, schedules and rates are ours: $(tail -n 1 said)" ||
        diag "$(cut -c 1-300 said)"
done
done_testing
