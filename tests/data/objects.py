# SPDX-License-Identifier: Apache-2.0
"""examples/gan.c and examples/distill.c in PyTorch, from the same initial values.

Usage: objects.py gan|distill TENSORS STEPS: TENSORS is what second_reader.py has
extracted from a checkpoint whose optimizers had a rate of 0. Prints "STEP LOSS", the loss
being the sum of all losses of the step, as the log of a run has it.
"""
import sys

import torch
import torch.nn.functional as F

BATCH = 64
MASK = (1 << 64) - 1


def draw(first, count, width):
    out = []
    for n in range(first, first + count * width):
        x = (n + 0x9E3779B97F4A7C15) & MASK
        x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
        out.append(((x ^ x >> 31) >> 40) / 8388608.0 - 1.0)
    return torch.tensor(out, dtype=torch.float32).reshape(count, width)


def net(tensors, model, inputs, wide, outputs):
    layers = torch.nn.Sequential(torch.nn.Linear(inputs, wide), torch.nn.SiLU(),
                                 torch.nn.Linear(wide, outputs))
    for k, name in ((0, "in"), (2, "out")):
        for kind in ("weight", "bias"):
            raw = open(f"{tensors}/model/{model}/{name}.{kind}", "rb").read()
            values = torch.frombuffer(bytearray(raw), dtype=torch.float32)
            p = getattr(layers[k], kind)
            p.data = values.reshape(p.shape).clone()
    return layers


def score(x, want):
    return F.binary_cross_entropy_with_logits(x, torch.full_like(x, want))


def soft(student, teacher, t=2.0):
    return t * t * F.cross_entropy(student / t, F.softmax(teacher / t, -1))


def gan(tensors, steps):
    g, d = net(tensors, "generator", 8, 32, 2), net(tensors, "critic", 2, 32, 1)
    og, od = (torch.optim.AdamW(m.parameters(), 2e-3, (0.5, 0.9), 1e-8, 0) for m in (g, d))
    for step in range(steps):
        noise = draw(step * BATCH * 8, BATCH, 8)
        real = draw(step * BATCH * 2 + (1 << 30), BATCH, 2)
        od.zero_grad()
        with torch.no_grad():
            fake = g(noise)
        losses = [score(d(real), 1), score(d(fake), 0)]
        for loss in losses:
            loss.backward()
        od.step()
        og.zero_grad()
        losses.append(score(d(g(noise)), 1))
        losses[-1].backward()
        og.step()
        print(step + 1, "%.9g" % sum(x.item() for x in losses))


def distill(tensors, steps):
    t, s = net(tensors, "teacher", 8, 64, 4), net(tensors, "student", 8, 16, 4)
    adamw = torch.optim.AdamW(s.parameters(), 5e-3, (0.9, 0.95), 1e-8, 0)
    for step in range(steps):
        x = draw(step * BATCH * 8, BATCH, 8)
        labels = ((draw(step * BATCH + (1 << 30), BATCH, 1) + 1) * 2).long().flatten()
        adamw.zero_grad()
        with torch.no_grad():
            answers = t(x)
        losses = [soft(s(x), answers), F.cross_entropy(s(x), labels)]
        for loss in losses:
            loss.backward()
        adamw.step()
        print(step + 1, "%.9g" % sum(x.item() for x in losses))


torch.set_num_threads(1)
{"gan": gan, "distill": distill}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
