#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Writes DIR/powersgd.txt: gradients that torch's PowerSGD hooks leave on one rank, a line per
# step: the four of a vector, then the 108 of a matrix [12, 9]. First powerSGD_hook, then
# batched_powerSGD_hook, both with rank 2 and given factors to begin with.
#     make_powersgd.py DIR
import os
import sys
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as hooks

VECTOR, ROWS, COLS, STEPS, RANK = 4, 12, 9, 5, 2


def value(stream, i):
    """The test's own sequence: a linear congruential generator, in [-1, 1)."""
    x = (stream * 1000003 + i * 7919 + 12345) & 0xFFFFFFFF
    for _ in range(3):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
    return (x >> 8) / 8388608.0 - 1.0


# The batched hook of torch 2.15 hands a matrix to a function that wants a stack of them, and
# fails there.
of_stacks = hooks._orthogonalize
hooks._orthogonalize = lambda m, epsilon=0: of_stacks(m[None] if m.dim() == 2 else m, epsilon)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(ROWS, COLS))
        self.b = torch.nn.Parameter(torch.zeros(VECTOR))

    def forward(self, g, h):
        return (self.w * g).sum() + (self.b * h).sum()


def run(hook, side, out):
    net = torch.nn.parallel.DistributedDataParallel(Net())
    state = hooks.PowerSGDState(None, RANK, start_powerSGD_iter=2)

    def ordered(s, bucket):
        names = [tuple(p.shape) for p in bucket.parameters()]
        # DDP orders them anew after its first step
        assert s.iter == 0 or names == [(VECTOR,), (ROWS, COLS)], names
        return hook(s, bucket)
    net.register_comm_hook(state, ordered)
    for step in range(-2, STEPS):
        if step == 0:
            rows, cols = (side, side) if side else (ROWS, COLS)
            p = torch.zeros(rows * RANK)
            q = torch.tensor([value(7, i) for i in range(cols * RANK)])
            state.p_memory_dict[0] = p.reshape(side, RANK) if side else p
            state.q_memory_dict[0] = q.reshape(side, RANK) if side else q
        net.zero_grad()
        g = torch.tensor([value(200 + step, i) for i in range(ROWS * COLS + VECTOR)])
        net(g[VECTOR:].reshape(ROWS, COLS), g[:VECTOR]).backward()
        if step >= 0:
            both = torch.cat([net.module.b.grad, net.module.w.grad.flatten()])
            out.write(" ".join(f"{x:.9g}" for x in both.tolist()) + "\n")


os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29555")
dist.init_process_group("gloo", rank=0, world_size=1)
with open(f"{sys.argv[1]}/powersgd.txt", "w", encoding="ascii") as f:
    run(hooks.powerSGD_hook, 0, f)
    run(hooks.batched_powerSGD_hook, 11, f)
dist.destroy_process_group()
