# SPDX-License-Identifier: Apache-2.0
"""The networks of examples/cnn.c and examples/mlp.c in PyTorch, on the same pictures.

Prints "cnn ACCURACY" and "mlp ACCURACY" on the same held-out samples. Initial values and
the order of the samples are PyTorch's own: accuracies compare, losses do not.
"""
import math

import numpy as np
import torch
from torch import nn

SIDE, CLASSES, SAMPLES, HELD = 16, 10, 10240, 2048


def draw(index, n):
    x = np.uint64(index * 1024 + n) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return ((x ^ x >> np.uint64(31)) >> np.uint64(11)) / 9007199254740992.0


def pictures():
    index = np.arange(SAMPLES, dtype=np.uint64)
    kind = (draw(index, np.uint64(0)) * CLASSES).astype(np.int64)
    angle, phase = math.pi * kind / CLASSES, 2 * math.pi * draw(index, np.uint64(1))
    x = np.zeros((SAMPLES, SIDE * SIDE))
    for i in range(SIDE * SIDE):
        along = i // SIDE * np.cos(angle) + i % SIDE * np.sin(angle)
        noise = draw(index, np.uint64(2 * i + 2)) + draw(index, np.uint64(2 * i + 3)) - 1
        x[:, i] = np.sin(1.1 * along + phase) + 4 * noise
    x = torch.tensor(x, dtype=torch.float32).reshape(SAMPLES, 1, SIDE, SIDE)
    return x, torch.tensor(kind)


def train(net, x, y, steps, batch, lr):
    optimizer = torch.optim.AdamW(net.parameters(), lr, (0.9, 0.95), 1e-8, 0)
    order = torch.randperm(len(x) - HELD)
    for step in range(steps):
        rate = lr * min(1, (step + 1) / 20)
        if step >= 20:
            part = (step - 20) / max(1, steps - 20)
            rate = lr * (0.1 + 0.45 * (1 + math.cos(math.pi * part)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        at = torch.arange(step * batch, (step + 1) * batch) % len(order)
        loss = nn.functional.cross_entropy(net(x[order[at]]), y[order[at]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        return (net(x[-HELD:]).argmax(1) == y[-HELD:]).float().mean().item()


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    np.seterr(over="ignore")
    x, y = pictures()
    cnn = nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, CLASSES))
    mlp = nn.Sequential(
        nn.Flatten(), nn.Linear(256, 192), nn.GELU(approximate="tanh"), nn.Dropout(0.1),
        nn.Linear(192, 192), nn.GELU(approximate="tanh"), nn.Dropout(0.1),
        nn.Linear(192, CLASSES))
    print("cnn %.4f" % train(cnn, x, y, 500, 32, 5e-3), flush=True)
    print("mlp %.4f" % train(mlp, x, y, 300, 64, 2e-3), flush=True)


main()
