#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Writes tests/data/optim/*.txt: 20 steps of torch's optimizers (Lion: its published rule, in
# torch's float64) on parameters and gradients that the test can make again.
#     make.py DIR
import sys
import torch

N, STEPS = 6, 20


def value(stream, i):
    """The test's own sequence: a linear congruential generator, in [-1, 1)."""
    x = (stream * 1000003 + i * 7919 + 12345) & 0xFFFFFFFF
    for _ in range(3):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
    return (x >> 8) / 8388608.0 - 1.0


def lion(p, g, m, lr, b1, b2, wd):
    p.mul_(1 - lr * wd).sub_(lr * torch.sign(b1 * m + (1 - b1) * g))
    m.mul_(b2).add_((1 - b2) * g)


def run(make, name, out):
    p = torch.tensor([value(1, i) for i in range(N)], dtype=torch.float32, requires_grad=True)
    o = make([p]) if make else None
    m = torch.zeros(N, dtype=torch.float64)
    q = p.detach().double()
    for t in range(1, STEPS + 1):
        g = torch.tensor([value(100 + t, i) for i in range(N)], dtype=torch.float32)
        if o:
            p.grad = g
            o.step()
            q = p.detach().double()
        else:
            lion(q, g.double(), m, 1e-2, 0.9, 0.99, 0.1)
    with open(f"{out}/{name}.txt", "w", encoding="ascii") as f:
        f.writelines(f"{x:.9g}\n" for x in q.tolist())


out = sys.argv[1]
run(lambda p: torch.optim.AdamW(p, 1e-2, (0.9, 0.95), 1e-8, 0.1, foreach=False), "adamw", out)
run(lambda p: torch.optim.SGD(p, 1e-2, foreach=False), "sgd", out)
run(lambda p: torch.optim.SGD(p, 1e-2, 0.9, weight_decay=0.1, foreach=False), "sgd-momentum", out)
run(lambda p: torch.optim.SGD(p, 1e-2, 0.9, weight_decay=0.1, nesterov=True, foreach=False),
    "sgd-nesterov", out)
run(None, "lion", out)
